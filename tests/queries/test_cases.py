"""Every query gives, on a trace of a few rows, what a reader finds in his head."""

from __future__ import annotations

import csv
import io
import sqlite3

import pytest
import tracekit
from querykit import CATALOG, HERE, NAMES, cases
from tracekit import KernelName, TraceBuilder

from k25trace.prepared import prepared

SHORT = {k.demangled: name for name, k in vars(tracekit).items() if isinstance(k, KernelName)}
"""Names of kernels as the cases write them: those of the constants in tracekit."""

ALL = [pytest.param(name, case, id=f"{name}-{case.name}") for name in NAMES for case in cases(name)]


def test_every_query_has_a_case_and_every_case_a_query():
    assert sorted(path.stem for path in (HERE / "cases").glob("*.py")) == sorted(NAMES)
    assert all(cases(name) for name in NAMES)


@pytest.mark.parametrize(("name", "case"), ALL)
def test_cases(name, case, tmp_path):
    path = tmp_path / "trace.sqlite"
    if isinstance(case.trace, TraceBuilder):
        case.trace.write(path)
    else:
        database = sqlite3.connect(path)
        database.executescript(case.trace)
        database.close()
    out = io.StringIO()
    with prepared(path, CATALOG) as session:
        found = session.run(CATALOG.get(name), case.params)
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(found.columns)
        writer.writerows([SHORT.get(cell, cell) if isinstance(cell, str) else cell for cell in row] for row in found)
    assert out.getvalue() == case.out

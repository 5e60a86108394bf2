"""The form of a case of a query: a trace, parameters, and the rows it gives, as CSV; and how queries are run."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k25trace.catalog import Catalog, find
from k25trace.prepared import prepared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit import TraceBuilder

CATALOG: Catalog = find()
NAMES = [query.name for query in CATALOG]
HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
GOLDENS = sorted(GOLDEN.glob("*.sqlite"))


@dataclass(frozen=True)
class Case:
    """``out`` is the CSV that the query gives, indented as you like; ``trace`` a builder, or SQL of a database."""

    name: str
    trace: TraceBuilder | str
    out: str
    params: Mapping[str, Any] = field(default_factory=dict)


def rows(name: str, path: Path, rules: Any = None, **params: Any) -> list[dict[str, Any]]:
    """Return the rows of a query of the catalogue."""
    with prepared(path, CATALOG, rules=rules) as session:
        found = session.run(CATALOG.get(name), params)
        return [dict(zip(found.columns, row, strict=True)) for row in found]


def cases(name: str) -> tuple[Case, ...]:
    """Return the cases of a query: ``CASES`` of ``cases/NAME.py``."""
    spec = importlib.util.spec_from_file_location(f"case_of_{name}", HERE / "cases" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CASES

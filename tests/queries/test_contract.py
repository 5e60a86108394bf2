"""A query's header says what it does: no more, no less."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from querykit import CATALOG, GOLDENS, HERE, NAMES, rows
from tracekit import MARLIN, TraceBuilder

from k25trace.catalog import find, parse
from k25trace.contract import check
from k25trace.errors import BadQuery, CannotAnswer, UsageError
from k25trace.parameters import bound
from k25trace.prepared import prepared

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "queries"
TYPES = {"INTEGER": int, "REAL": float, "TEXT": str}

GOOD = """\
-- mine: Kernels by device.
--
-- More of it.
--
-- standalone: yes
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(start, end,
--   deviceId)
-- param: :least_ns INTEGER [ns] shortest kernel; default 0
-- column: device INTEGER ordinal
-- column: kernel_ns INTEGER NULL [ns] kernel time
-- order: kernel_ns DESC, device
SELECT deviceId AS device, sum("end" - start) AS kernel_ns
FROM CUPTI_ACTIVITY_KIND_KERNEL
WHERE "end" - start >= coalesce(:least_ns, 0)
GROUP BY deviceId
ORDER BY kernel_ns DESC, device;
"""


def test_there_are_queries_enough():
    assert len(NAMES) >= 24
    assert sum(query.standalone for query in CATALOG) >= 12


@pytest.mark.parametrize("name", sorted(CATALOG.queries))
def test_a_query_reads_what_it_declares_and_returns_what_it_names(name):
    query = CATALOG.queries[name]
    check(query, CATALOG.with_steps(r.table for r in query.requires))
    assert all(column.meaning for column in (*query.columns, *query.params))


def test_the_parts_of_a_header():
    query = parse(GOOD, "some/where/mine.sql")
    check(query)
    assert (query.name, query.summary, query.doc) == ("mine", "Kernels by device.", "More of it.")
    assert query.requires[0].columns == ("start", "end", "deviceId")
    assert (query.params[0].name, query.params[0].unit) == ("least_ns", "ns")
    assert [(c.name, c.type, c.nullable, c.unit) for c in query.columns] == [
        ("device", "INTEGER", False, ""),
        ("kernel_ns", "INTEGER", True, "ns"),
    ]
    assert query.order == ("kernel_ns DESC", "device")


BROKEN = {
    "title": ("-- mine: Kernels by device.", "-- Kernels by device", 1, "first line"),
    "name": ("-- mine:", "-- yours:", 1, "in a file named"),
    "no_standalone": ("-- standalone: yes\n", "", 10, "no line standalone"),
    "standalone": ("standalone: yes", "standalone: maybe", 5, "not one of yes, no"),
    "not_standalone": ("standalone: yes", "standalone: no", 5, "every table of it is one of nsys"),
    "table": ("KERNEL(start", "KERNEL start", 6, "not of the form TABLE"),
    "twice": ("(start, end,", "(start, start,", 6, "a second time"),
    "type": ("device INTEGER", "device NUMBER", 9, "not of the form"),
    "unit": ("NULL [ns]", "NULL [us]", 10, "[ns] by its name"),
    "no_unit": ("NULL [ns]", "NULL", 10, "[ns] by its name"),
    "nullable_param": ("INTEGER [ns] shortest", "INTEGER NULL [ns] shortest", 8, "may be NULL"),
    "order": ("-- order: kernel_ns", "-- order: kernels", 11, "no column"),
    "key": ("-- order: kernel_ns DESC, device", "-- sorted: kernel_ns", 11, "unknown key"),
    "place": ("-- column: device", "-- requires: T(x)\n-- column: device", 9, "requires after param"),
    "prose": ("-- order:", "-- so to say\n-- order:", 11, "neither a key nor"),
    "reserved": (":least_ns INTEGER [ns]", ":format TEXT", 8, "--format is an option of k25trace query"),
    "least_of_text": (":least_ns INTEGER [ns]", ":least TEXT >=1", 8, "parameters that are numbers"),
    "least_of_column": ("device INTEGER ordinal", "device INTEGER >=0 ordinal", 9, "parameters that are numbers"),
    "no_select": ("SELECT", "UPDATE", 12, "no SELECT"),
    "no_end": ("device;", "device", 12, "no SELECT that ends with ;"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_header_is_refused_with_its_line(broken):
    old, new, line, says = BROKEN[broken]
    assert old in GOOD
    with pytest.raises(BadQuery) as error:
        parse(GOOD.replace(old, new, 1), "mine.sql")
    assert error.value.message.startswith(f"mine.sql:{line}: "), error.value.message
    assert says in error.value.message


UNTRUE = {
    "reads_more": ("(start, end,\n--   deviceId)", "(start, end)"),
    "reads_less": ("--   deviceId)", "--   deviceId, streamId)"),
    "another_table": ("FROM CUPTI_ACTIVITY_KIND_KERNEL", "FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds"),
    "other_columns": ("AS device,", "AS gpu,"),
    "other_order": ("ORDER BY kernel_ns DESC, device", "ORDER BY device"),
    "no_such_param": (":least_ns, 0", "0, 0"),
    "two_statements": ("DESC, device;", "DESC, device; SELECT 1;"),
    "does_more_than_read": ('sum("end" - start) AS', "load_extension('x') AS"),
}


@pytest.mark.parametrize("untrue", UNTRUE)
def test_an_untrue_header_is_refused(untrue):
    old, new = UNTRUE[untrue]
    assert old in GOOD
    head, sql = GOOD.split("SELECT", 1)
    text = head + ("SELECT" + sql).replace(old, new, 1) if old not in head else GOOD.replace(old, new, 1)
    with pytest.raises(BadQuery):
        check(parse(text, "mine.sql"))


# ---- on real traces


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    """A saved analysis of a real trace."""
    path = tmp_path_factory.mktemp("analysis") / "analysis.db"
    source = HERE.parent / "golden" / "h200x2_decode_graph.sqlite"
    argv = [sys.executable, "-m", "k25trace", "attribute", source, "--save", path]
    subprocess.run(list(map(str, argv)), check=True, capture_output=True, cwd=ROOT)
    return path


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """A report of a newer schema, with what the real ones lack."""
    t = TraceBuilder(schema="3.28.1")
    t.diagnostic("3 events were dropped", 2)
    for device in (0, 1):
        t.kernel(MARLIN, 10, 5, launch=2, device=device)
    t.api("cuLaunchKernel", 3, corr=101)
    t.kernel(MARLIN, 20, 5)
    t.push_pop("step", 0, 10)
    return t.write(tmp_path_factory.mktemp("newer") / "newer.sqlite")


RARE = {"diagnostics", "duplicate_correlations"}
"""What no real trace here has: exports of nsys 2023.4 have no table of messages, and it gives each call its own id."""


@pytest.mark.parametrize("name", NAMES)
def test_every_query_says_something_of_a_real_trace_in_its_types_and_order(name, analysis, newer):
    query = CATALOG.get(name)
    params = {"step": "*"} if any(param.name == "step" for param in query.params) else {}
    answered = 0
    for path in [newer] if name in RARE else [*GOLDENS, analysis]:
        try:
            found = rows(name, path, **params)
        except CannotAnswer:
            continue
        answered += bool(found)
        for column in query.columns:
            for row in found[:200]:
                value = row[column.name]
                assert isinstance(value, TYPES[column.type]) or (value is None and column.nullable), column
                assert column.unit not in {"count", "bytes"} or value is None or value >= 0
                assert column.unit != "share" or 0 <= value <= 1
        keys = [tuple(row[part.split()[0]] for part in query.order) for row in found]
        assert len(set(keys)) == len(keys), "the order is not total"
    assert answered


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="no sqlite3 program")
@pytest.mark.parametrize("name", [query.name for query in CATALOG if query.standalone])
def test_standalone_queries_run_in_the_program_of_sqlite(name, analysis, newer, tmp_path):
    paths = [analysis] if name.startswith("analysis_") else [newer]
    if name in {"memcpy_sum", "sync_sum"}:
        paths = [HERE.parent / "golden" / "h200x2_vllm_graph.sqlite"]
    for path in paths:
        copy = Path(shutil.copy(path, tmp_path / "trace.sqlite"))
        sql = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
        argv = ["sqlite3", "-bail", copy]
        done = subprocess.run(argv, input=sql, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert len(done.stdout.splitlines()) == len(rows(name, copy))


def test_a_report_is_never_written(tmp_path, unchanged):
    path = Path(shutil.copy(HERE.parent / "golden" / "h200x2_decode_graph.sqlite", tmp_path / "trace.sqlite"))
    with unchanged(tmp_path):
        for name in ("time_by_path", "kernel_sum", "step_time"):
            rows(name, path)


def test_the_queries_pass_the_linter():
    sqlfluff = Path(sys.executable).with_name("sqlfluff")
    if not sqlfluff.exists():
        pytest.skip("sqlfluff is in the lint extra")
    done = subprocess.run([sqlfluff, "lint", "queries"], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout


# ---- what is missing


def test_a_missing_table_names_the_flag_that_records_it(tmp_path):
    path = TraceBuilder().write(tmp_path / "trace.sqlite")
    for name, says in (
        ("kernel_sum", "--trace=cuda,nvtx"),
        ("memcpy_sum", "--trace=cuda"),
        ("nvtx_ranges", "NVTX ranges"),
        ("diagnostics", "nsys 2024 or newer"),
        ("analysis_wall", "--save"),
    ):
        with pytest.raises(CannotAnswer) as error:
            rows(name, path)
        assert says in (error.value.hint or "")
        assert name in error.value.message


@pytest.mark.parametrize("schema", ["2.9.1", "3.7.2", "3.16.1", "3.28.1"])
def test_both_tables_of_graph_nodes_are_read(schema, tmp_path):
    t = TraceBuilder(schema=schema)
    t.push_pop("attn", 10, 20)
    t.node(15, 1)
    t.kernel(MARLIN, 320, 7, corr=t.graph_launch(150), node=1)
    (row,) = rows("graph_node_ranges", t.write(tmp_path / "trace.sqlite"))
    assert (row["path"], row["kernel_ns"]) == ('["attn"]', 7)


def test_a_column_that_only_some_exports_have_may_be_absent(tmp_path):
    without = (
        "CUPTI_ACTIVITY_KIND_KERNEL.graphNodeId",
        "NVTX_EVENTS.domainId",
        "CUPTI_ACTIVITY_KIND_KERNEL.gridX",
    )
    t = TraceBuilder(without=without)
    t.push_pop("step", 0, 10)
    t.kernel(MARLIN, 20, 7, launch=5)
    path = t.write(tmp_path / "trace.sqlite")
    assert [r["path"] for r in rows("time_by_path", path)] == ['["step"]']
    with pytest.raises(CannotAnswer, match="gridX"):
        rows("kernel_shapes", path)


# ---- folders of users


def test_queries_of_ones_own(tmp_path):
    (tmp_path / "mine.sql").write_text(GOOD, encoding="utf-8")
    catalog = find([tmp_path])
    assert catalog.get("mine").summary == "Kernels by device."
    t = TraceBuilder()
    t.kernel(MARLIN, 20, 7)
    with prepared(t.write(tmp_path / "trace.sqlite"), catalog) as session:
        assert list(session.run(catalog.get("mine"), {"least_ns": "0.001us"})) == [(0, 7)]
        with pytest.raises(UsageError):
            session.run(catalog.get("mine"), {"least": "1"})
        with pytest.raises(UsageError):
            session.run(catalog.get("mine"), {"least_ns": "soon"})


def test_a_name_that_is_taken_is_an_error_of_that_file_alone(tmp_path):
    text = (FOLDER / "gpu_busy.sql").read_text(encoding="utf-8")
    (tmp_path / "gpu_busy.sql").write_text(text, encoding="utf-8")
    catalog = find([tmp_path])
    assert catalog.get("kernel_sum").summary
    with pytest.raises(BadQuery, match="already in"):
        catalog.get("gpu_busy")


def test_a_broken_file_leaves_the_others_alone(tmp_path):
    (tmp_path / "mine.sql").write_text(GOOD, encoding="utf-8")
    (tmp_path / "broken.sql").write_text("SELECT 1;", encoding="utf-8")
    (tmp_path / "binary.sql").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.sql").mkdir()
    catalog = find([tmp_path])
    assert sorted(catalog.broken) == ["binary", "broken", "folder"]
    assert catalog.get("mine").summary == "Kernels by device."
    for name in catalog.broken:
        with pytest.raises(BadQuery, match=f"{name}.sql"):
            catalog.get(name)


def test_lower_case_is_sql_too(tmp_path):
    text = GOOD.replace("SELECT", "select").replace("ORDER BY kernel_ns DESC", "order by kernel_ns desc")
    check(parse(text, "mine.sql"))


def test_a_colon_in_a_text_is_no_parameter():
    text = GOOD.replace("SELECT deviceId", "SELECT /* :not */ deviceId").replace(
        "GROUP BY", "-- :nor\n  AND 'a:b' <> ':c'\nGROUP BY"
    )
    check(parse(text, "mine.sql"))


@pytest.mark.parametrize(
    ("replaced", "by", "says"),
    [
        (
            "coalesce(:least_ns, 0)",
            "coalesce(:least_ns, :other)",
            ":other is in the SQL and not in the header",
        ),
        ("coalesce(:least_ns, 0)", "coalesce(:least_ns, ?)", "without a name"),
        (":least_ns, 0", "0, 0", "parameter :least_ns is in the header and not in the SQL"),
        ("FROM CUPTI", "FROM (SELECT load_extension('x')), CUPTI", "load_extension() is more than reading"),
    ],
)
def test_what_is_wrong_with_a_statement_is_said(replaced, by, says):
    head, sql = GOOD.split("SELECT", 1)
    with pytest.raises(BadQuery) as error:
        check(parse(head + "SELECT" + sql.replace(replaced, by), "mine.sql"))
    assert says in error.value.message


STEP = """\
-- _long: Kernels of some length.
--
-- standalone: no
-- requires: CUPTI_ACTIVITY_KIND_KERNEL(start, end)
-- param: :least_ns INTEGER [ns] >=0 shortest kernel; default 0
-- column: kernel_ns INTEGER [ns] kernel time
-- index: kernel_ns
SELECT "end" - start AS kernel_ns
FROM CUPTI_ACTIVITY_KIND_KERNEL
WHERE "end" - start >= coalesce(:least_ns, 0);
"""
OVER_STEP = """\
-- over: How many kernels of some length.
--
-- standalone: no
-- requires: _long(kernel_ns)
-- param: :least_ns INTEGER [ns] >=0 shortest kernel; default 0
-- column: kernel_count INTEGER [count] kernels
-- order: kernel_count
SELECT count(kernel_ns) AS kernel_count
FROM _long
ORDER BY kernel_count;
"""


def test_a_step_has_the_parameters_of_the_query_that_stands_on_it(tmp_path):
    (tmp_path / "_long.sql").write_text(STEP, encoding="utf-8")
    (tmp_path / "over.sql").write_text(OVER_STEP, encoding="utf-8")
    catalog = find([tmp_path])
    t = TraceBuilder()
    for at, length in ((10, 3), (20, 5), (30, 7)):
        t.kernel(MARLIN, at, length)
    with prepared(t.write(tmp_path / "trace.sqlite"), catalog) as session:
        for least, count in ((None, 3), (4, 2), (6, 1), (4, 2), (None, 3)):
            assert list(session.run(catalog.get("over"), {"least_ns": least})) == [(count,)]
        assert list(session.sql("SELECT count(*) FROM _long")) == [(3,)]
        with pytest.raises(UsageError, match="less than 0"):
            session.run(catalog.get("over"), {"least_ns": "-1"})
    without = parse(re.sub("-- param.*\n", "", OVER_STEP), "over.sql")
    with pytest.raises(BadQuery, match="_long takes parameter :least_ns"):
        check(without, [catalog.queries["_long"]])
    with pytest.raises(BadQuery, match="give it an index"):
        parse(STEP.replace("-- index: kernel_ns\n", ""), "_long.sql")


def test_a_step_that_is_not_there_or_broken_is_named(tmp_path):
    (tmp_path / "over.sql").write_text(OVER_STEP, encoding="utf-8")
    path = TraceBuilder().write(tmp_path / "trace.sqlite")
    for text, says in ((None, "no step has that name"), ("SELECT 1;", "_long.sql:1")):
        if text is not None:
            (tmp_path / "_long.sql").write_text(text, encoding="utf-8")
        catalog = find([tmp_path])
        with prepared(path, catalog) as session, pytest.raises(BadQuery, match=says):
            session.run(catalog.get("over"))


def test_a_table_that_one_query_can_do_without_is_still_missing_for_the_next(tmp_path):
    t = TraceBuilder()
    t.push_pop("step", 0, 10)
    with prepared(t.write(tmp_path / "trace.sqlite"), CATALOG) as session:
        assert len(list(session.run(CATALOG.get("capture_health")))) == 5
        for name in ("diagnostics", "gpu_time"):
            with pytest.raises(CannotAnswer):
                session.run(CATALOG.get(name))
        with pytest.raises(CannotAnswer):
            session.sql("SELECT * FROM _kernels")


def test_a_query_none_of_whose_tables_is_there_abstains(tmp_path):
    path = tmp_path / "other.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE other (x)")
    database.close()
    with pytest.raises(CannotAnswer, match="none of the tables"):
        rows("capture_health", path)


VALUES = {
    "too_much": ("least_ns", "9223372036854775808", "64 bits"),
    "too_little": ("least_ns", -(1 << 63) - 1, "64 bits"),
    "far_too_much": ("least_ns", "1" * 30 + "s", "64 bits"),
    "half_a_nanosecond": ("least_ns", "1.5", "whole number of nanoseconds"),
    "fraction": ("least_ns", 0.5, "no INTEGER"),
    "nan": ("ratio", "nan", "64 bits"),
    "infinite": ("ratio", float("inf"), "64 bits"),
    "no_number": ("ratio", "half", "no REAL"),
    "not_text": ("text", 3, "no TEXT"),
    "not_utf8": ("text", "\udcff", "no TEXT"),
    "below": ("least", "0", "less than 1"),
}


@pytest.mark.parametrize("value", VALUES)
def test_values_that_no_parameter_can_have(value):
    name, given, says = VALUES[value]
    text = GOOD.replace(
        "-- column: device", "-- param: :text TEXT any\n-- param: :ratio REAL any\n"
        "-- param: :least INTEGER >=1 any\n-- column: device",
    )  # fmt: skip
    with pytest.raises(UsageError) as error:
        bound(parse(text, "mine.sql"), {name: given})
    assert says in error.value.message
    assert name.replace("_", "-") in error.value.message


def test_values_at_the_ends_of_64_bits_are_bound():
    query = parse(GOOD, "mine.sql")
    for value in (-(1 << 63), (1 << 63) - 1):
        assert bound(query, {"least_ns": value}) == bound(query, {"least_ns": str(value)}) == {"least_ns": value}


def test_statements_that_do_more_than_read_are_refused(tmp_path):
    path = TraceBuilder().write(tmp_path / "trace.sqlite")
    with prepared(path, CATALOG) as session:
        for statement in (
            "DELETE FROM StringIds",
            "CREATE TABLE t (x)",
            "CREATE TEMP TABLE t (x)",
            "ATTACH 'other.db' AS o",
            "PRAGMA user_version = 3",
            "SELECT load_extension('x')",
            "SELECT 1; SELECT 2",
            "nonsense",
            "",
        ):
            with pytest.raises(BadQuery):
                session.sql(statement)
        assert list(session.sql("SELECT count(*) FROM StringIds")) == [(0,)]
    assert sqlite3.connect(path).execute("PRAGMA user_version").fetchone() == (0,)


def test_the_query_of_the_page_is_a_query():
    page = (ROOT / "docs" / "reference" / "queries.md").read_text(encoding="utf-8")
    text = page.partition("```sql\n")[2].partition("```")[0]
    check(parse(text, "long_kernels.sql"))

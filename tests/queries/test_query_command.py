"""``k25trace query``: what it prints, how it refuses, how it stops."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from querykit import GOLDEN, NAMES
from tracekit import MARLIN, TraceBuilder, unknown

from k25trace.catalog import RESERVED_PARAMS
from k25trace.cli import app

ROOT = Path(__file__).resolve().parents[2]
DECODE = GOLDEN / "h200x2_decode_graph.sqlite"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


def test_the_list_names_every_query(run_in_process):
    listed = json.loads(run_in_process("query", "--list", "--format", "json").stdout)
    assert listed["schema"] == "k25trace.queries/1"
    assert [query["name"] for query in listed["queries"]] == NAMES
    assert all(query["summary"] and query["columns"] and query["order"] for query in listed["queries"])
    shown = run_in_process("query", "--list").stdout.splitlines()
    assert [line.split()[0] for line in shown[2:]] == NAMES


def test_a_name_alone_shows_what_the_query_does(run_in_process):
    shown = run_in_process("query", "gpu_busy").stdout
    for word in (
        "--window-start-ns",
        "INTEGER [ns]",
        "busy_ns",
        "order: device",
        "CUPTI_ACTIVITY_KIND_KERNEL(start",
    ):
        assert word in shown


def test_formats_hold_the_same_rows(run_in_process):
    def text(*options):
        outcome = run_in_process("query", "stream_sum", DECODE, *options)
        assert outcome.code == 0, outcome
        return outcome.stdout

    want = json.loads(text("--format", "json"))
    assert len(want) == 4
    assert [json.loads(line) for line in text("--nl").splitlines()] == want
    for option, delimiter in (("--csv", ","), ("--tsv", "\t")):
        found = list(csv.DictReader(io.StringIO(text(option)), delimiter=delimiter))
        assert found == [{k: str(v) for k, v in row.items()} for row in want]
    for shown in (text(), text("--table"), text("--format", "markdown"), text("--fmt", "github")):
        assert all(str(row["kernel_ns"]) in shown for row in want)


def test_parameters_are_options_with_units(run_in_process):
    both = [
        json.loads(run_in_process("query", "gpu_busy", DECODE, "-f", "json", *options).stdout)
        for options in (
            ["--window-start-ns", "40ms", "--window-end-ns=60000000"],
            ["--window_start_ns=40000000", "--window-end-ns", "0.06s"],
        )
    ]
    assert both[0] == both[1]
    assert all(0 < row["busy_ns"] <= 20_000_000 for row in both[0])


def test_names_cannot_steer_the_terminal_and_stay_whole_for_programs(run_in_process, tmp_path):
    t = TraceBuilder()
    t.kernel(unknown("a\x1b[31m|<b>\n"), 10, 5)
    t.kernel(unknown(b"\xff\xfe bytes"), 20, 3)
    path = t.write(tmp_path / "trace.sqlite")
    assert "\x1b" not in run_in_process("query", "kernel_sum", path).stdout
    marked = run_in_process("query", "kernel_sum", path, "-f", "markdown").stdout
    assert "<b>" not in marked
    assert len(marked.splitlines()) == 4
    names = [row["name"] for row in json.loads(run_in_process("query", "kernel_sum", path, "-f", "json").stdout)]
    assert names == ["a\x1b[31m|<b>\n", "\ufffd\ufffd bytes"]


def test_values_of_all_types_are_written(run_in_process, tmp_path):
    path = TraceBuilder().write(tmp_path / "trace.sqlite")
    sql = "SELECT 1 AS i, 0.5 AS r, 9e999 AS inf, 'x' AS t, x'00ff' AS b, NULL AS n"
    found = json.loads(run_in_process("query", "--sql", sql, path, "-f", "json").stdout)
    assert found == [{"i": 1, "r": 0.5, "inf": None, "t": "x", "b": {"$base64": True, "encoded": "AP8="}, "n": None}]
    assert json.loads(run_in_process("query", "--sql", "SELECT 1 AS i WHERE 0", path, "-f", "json").stdout) == []


def test_columns_of_one_name_are_numbered(run_in_process):
    sql = "SELECT 1 AS a, 2 AS a, 3 AS a_2, 4 AS a"
    (row,) = json.loads(run_in_process("query", "--sql", sql, DECODE, "-f", "json").stdout)
    assert row == {"a": 1, "a_3": 2, "a_2": 3, "a_4": 4}


def test_a_window_that_ends_before_it_begins_holds_nothing(run_in_process, tmp_path):
    t = TraceBuilder()
    t.kernel(MARLIN, 10, 50)
    path = t.write(tmp_path / "trace.sqlite")
    outcome = run_in_process(
        "query", "gpu_busy", path, "--window-start-ns", "40", "--window-end-ns", "20", "-f", "json"
    )
    assert (outcome.code, json.loads(outcome.stdout)) == (0, [])


def test_sql_of_ones_own_may_use_the_steps(run_in_process):
    sql = "SELECT gpu, category, count(*) AS n FROM _kernels GROUP BY gpu, category ORDER BY n DESC LIMIT 1"
    (row,) = json.loads(run_in_process("query", "--sql", sql, DECODE, "-f", "json").stdout)
    assert row["gpu"] in {"0:0", "0:1"}


def test_rules_of_ones_own_decide_categories(run_in_process, tmp_path):
    t = TraceBuilder()
    t.kernel(unknown("my_kernel(int)"), 10, 5)
    path = t.write(tmp_path / "trace.sqlite")
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'format = 1\n[[rule]]\nid = "mine"\ncategory = "norm"\nfamily = "mine"\nmatch = { name = "my_kernel" }\n'
        'source = "test"\nexamples = ["my_kernel(int)"]\n'
    )
    outcome = run_in_process("query", "category_share", path, "-f", "json", "--rules", mine)
    if outcome.code == 0:
        assert json.loads(outcome.stdout)[0]["category"] == "norm"
    plain = json.loads(run_in_process("query", "category_share", path, "-f", "json").stdout)
    assert plain[0]["category"] == "unclassified"


REFUSALS = {
    "no_such_query": (["gpu_bussy", DECODE], 2, "did you mean gpu_busy"),
    "no_query": ([], 2, "0 arguments"),
    "no_such_option": (["gpu_busy", DECODE, "--window", "3"], 2, "no parameter --window"),
    "no_value": (["gpu_busy", DECODE, "--window-start-ns"], 2, "needs a value"),
    "not_a_time": (["gpu_busy", DECODE, "--window-start-ns", "soon"], 2, "no time"),
    "two_formats": (["gpu_busy", DECODE, "--csv", "--nl"], 2, "one format"),
    "no_such_fmt": (["gpu_busy", DECODE, "--fmt", "nonsense"], 2, "--fmt"),
    "no_table": (["memcpy_sum", DECODE], 3, "--trace=cuda"),
    "no_file": (["gpu_busy", "nowhere.sqlite"], 1, "no such file"),
    "not_sqlite": (["gpu_busy", ROOT / "README.md"], 1, "not a SQLite database"),
    "parquet": (["gpu_busy", GOLDEN / "cpu_nvtx_parquetdir"], 3, "SQL runs on SQLite exports"),
    "writes": (["--sql", "DROP TABLE StringIds", DECODE], 1, "only SELECT"),
    "wrong_sql": (["--sql", "SELECT x FROM StringIds", DECODE], 1, "no such column"),
    "no_folder": (["--list", "--queries", "nowhere"], 2, "no such folder"),
    "given_twice": (["gpu_busy", DECODE, "--window-start-ns", "1", "--window_start_ns=2"], 2, "given twice"),
    "more_than_64_bits": (["gpu_busy", DECODE, "--window-start-ns", "9" * 20], 2, "64 bits"),
    "below_the_least": (["occupancy_limits", DECODE, "--threads-per-sm", "-5"], 2, "less than 1"),
    "half_a_nanosecond": (["gpu_gaps", DECODE, "--min-gap-ns", "1.5"], 2, "whole number"),
    "value_like_an_option": (["step_time", DECODE, "--step", "--csv"], 2, "--step=VALUE"),
    "negative_limit": (["gpu_busy", DECODE, "--time-limit", "-1"], 2, "--time-limit -1"),
    "limit_that_is_none": (["gpu_busy", DECODE, "--time-limit", "nan"], 2, "--time-limit nan"),
    "endless_limit": (["gpu_busy", DECODE, "--time-limit", "inf"], 2, "--time-limit inf"),
    "fmt_and_csv": (["gpu_busy", DECODE, "--fmt", "github", "--csv"], 2, "one format"),
    "format_and_csv": (["gpu_busy", DECODE, "--format", "json", "--csv"], 2, "one format"),
    "sql_without_table": (["--sql", "SELECT * FROM diagnostic_event", DECODE], 3, "nsys 2024"),
    "sql_of_an_analysis": (["--sql", "SELECT * FROM wall", DECODE], 3, "--save"),
    "sql_without_copies": (["--sql", "SELECT * FROM CUPTI_ACTIVITY_KIND_MEMCPY", DECODE], 3, "--trace=cuda"),
    "sql_of_osrt": (["--sql", "SELECT * FROM OSRT_API", DECODE], 3, "osrt"),
    "sql_of_a_newer_table": (
        ["--sql", "SELECT * FROM CUDA_GRAPH_NODE_EVENTS", DECODE],
        1,
        "it CUDA_GRAPH_EVENTS",
    ),
    "sql_with_a_slip": (["--sql", "SELECT * FROM StringId", DECODE], 1, "did you mean StringIds"),
    "sql_with_a_parameter": (["--sql", "SELECT :x", DECODE], 1, ":x has no value"),
    "sql_with_a_mark": (["--sql", "SELECT ?", DECODE], 1, "without a name"),
    "sql_twice": (["--sql", "SELECT 1; SELECT 2", DECODE], 1, "more than one statement"),
    "pragma": (["--sql", "PRAGMA user_version", DECODE], 1, "PRAGMA is more than reading"),
    "virtual_table": (["--sql", "SELECT * FROM pragma_table_info('StringIds')", DECODE], 1, "json_each and json_tree"),
    "step": (["_kernels", DECODE], 2, "SELECT * FROM _kernels"),
    "upper_case": (["GPU_BUSY", DECODE], 2, "did you mean gpu_busy"),
    "schema": (["--sql", "CREATE TABLE t (x)", DECODE], 1, "changing the schema is more than reading"),
    "not_utf8": (["--sql", "SELECT '\udcff'", DECODE], 2, "UTF-8"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusals(refusal, run_in_process):
    words, code, says = REFUSALS[refusal]
    outcome = run_in_process("query", *words)
    assert (outcome.code, outcome.stdout) == (code, ""), outcome
    assert says in outcome.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["--list", "-o", "out"],
        ["--list", "--sql", "SELECT 1"],
        ["--list", "--fmt", "github"],
        ["--list", "--step", "x"],
        ["--list", "gpu_busy"],
        ["--list", "--datasette", DECODE],
        ["gpu_busy", "--format", "json"],
        ["gpu_busy", "--force"],
        ["gpu_busy", "--window-start-ns", "3"],
        ["gpu_busy", "--help", "--csv"],
        ["--datasette", DECODE, "--csv"],
        ["--datasette", DECODE, "--time-limit", "3"],
        ["--sql", "SELECT 1", DECODE, "--step", "x"],
    ],
)
def test_options_that_would_do_nothing_are_refused(run_in_process, words):
    outcome = run_in_process("query", *words)
    assert (outcome.code, outcome.stdout) == (2, ""), outcome
    assert "does nothing with" in outcome.stderr


def test_no_option_of_the_command_can_be_a_parameter_of_a_query():
    command = typer.main.get_command(app).commands["query"]
    spelled = {word[2:].replace("-", "_") for p in command.params for word in p.opts if word.startswith("--")}
    assert spelled == RESERVED_PARAMS


def test_help_of_a_query_is_what_it_does(run_in_process):
    described = run_in_process("query", "gpu_busy").stdout
    for words in (["gpu_busy", "--help"], ["gpu_busy", "-h"], ["--help", "gpu_busy", DECODE]):
        assert run_in_process("query", *words).stdout == described
    assert "Usage" in run_in_process("query", "--help").stdout


def test_values_may_look_like_short_options(run_in_process, tmp_path):
    t = TraceBuilder()
    t.push_pop("-foo", 0, 10)
    t.kernel(MARLIN, 20, 5, launch=5)
    path = t.write(tmp_path / "trace.sqlite")
    for words in (["--step", "-foo"], ["--step=-foo"]):
        outcome = run_in_process("query", "step_time", path, *words, "-f", "json")
        assert [row["name"] for row in json.loads(outcome.stdout)] == ["-foo"]


def test_names_of_the_catalogue_are_sql_names_in_any_case(run_in_process):
    for table in ("_KERNELS", "K25_gpus", "_Steps"):
        assert run_in_process("query", "--sql", f"SELECT count(*) FROM {table}", DECODE).code == 0


def test_a_broken_file_of_the_user_is_named_and_in_nobodys_way(run_in_process, tmp_path):
    (tmp_path / "broken.sql").write_text("SELECT 1;", encoding="utf-8")
    options = ["--queries", tmp_path]
    outcome = run_in_process("query", "stream_sum", DECODE, "--csv", *options)
    assert (outcome.code, outcome.stdout) == (0, run_in_process("query", "stream_sum", DECODE, "--csv").stdout)
    assert "left out" in outcome.stderr
    assert "broken.sql:1" in outcome.stderr
    outcome = run_in_process("query", "broken", DECODE, *options)
    assert (outcome.code, outcome.stdout, outcome.stderr.count("broken.sql:1")) == (1, "", 1)
    outcome = run_in_process("query", "--list", *options)
    assert (outcome.code, "broken.sql:1" in outcome.stderr) == (1, True)
    assert [line.split()[0] for line in outcome.stdout.splitlines()[2:]] == NAMES


def test_times_that_add_up_to_more_than_64_bits_are_the_reports_fault(run_in_process, tmp_path):
    t = TraceBuilder()
    for _ in range(3):
        t.kernel(MARLIN, 1, (1 << 62) - 2)
    outcome = run_in_process("query", "kernel_sum", t.write(tmp_path / "trace.sqlite"), "--format", "json")
    assert (outcome.code, outcome.stdout) == (1, "")
    assert "trace.sqlite: kernel_sum: times in it" in outcome.stderr
    assert ".sql:" not in outcome.stderr


def test_a_column_that_this_export_lacks_is_the_reports_lack(run_in_process, tmp_path):
    t = TraceBuilder(without=("CUPTI_ACTIVITY_KIND_KERNEL.gridX",))
    t.kernel(MARLIN, 10, 5)
    path = t.write(tmp_path / "trace.sqlite")
    sql = "SELECT {} FROM CUPTI_ACTIVITY_KIND_KERNEL"
    assert run_in_process("query", "--sql", sql.format("gridX"), path).code == 3
    assert run_in_process("query", "--sql", sql.format("gridQ"), path).code == 1


def test_a_time_limit_ends_a_statement_with_its_own_code(run_in_process):
    outcome = run_in_process("query", "--sql", ENDLESS, DECODE, "--time-limit", "0.2")
    assert (outcome.code, outcome.stdout) == (4, "")
    assert "0.2 s" in outcome.stderr


def test_ctrl_c_ends_a_statement():
    argv = [sys.executable, "-m", "k25trace", "query", "--sql", ENDLESS, str(DECODE)]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        time.sleep(3)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 130
    assert out == b""
    assert b"Traceback" not in err


def test_an_output_file_is_never_overwritten_by_accident(run_in_process, tmp_path):
    target = tmp_path / "out.csv"
    assert run_in_process("query", "stream_sum", DECODE, "--csv", "-o", target).code == 0
    first = target.read_bytes()
    assert run_in_process("query", "api_sum", DECODE, "--csv", "-o", target).code == 1
    assert target.read_bytes() == first
    assert run_in_process("query", "api_sum", DECODE, "--csv", "-o", target, "--force").code == 0
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_rows_are_streamed(tmp_path):
    """A reader that has seen enough ends the command, long before the last of many rows."""
    sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"
    argv = [sys.executable, "-m", "k25trace", "query", "--sql", sql, str(DECODE), "--nl"]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    assert process.stdout.readline() == b'{"i": 1}\n'
    process.stdout.close()
    assert process.wait(timeout=30) != 0


def test_the_report_and_its_folder_stay_as_they_are(run_in_process, unchanged, tmp_path):
    path = Path(shutil.copy(DECODE, tmp_path / "trace.sqlite"))
    os.chmod(path, 0o444)
    with unchanged(tmp_path):
        assert run_in_process("query", "time_by_path", path).code == 0


def test_a_query_without_rows_is_an_answer(run_in_process, tmp_path):
    t = TraceBuilder()
    t.kernel(MARLIN, 10, 5, launch=2)
    outcome = run_in_process("query", "duplicate_correlations", t.write(tmp_path / "t.sqlite"), "-f", "json")
    assert (outcome.code, json.loads(outcome.stdout)) == (0, [])


@pytest.mark.parametrize("words", [["gpu_time"], ["--datasette"]])
def test_a_report_is_never_written_over_even_with_force(tmp_path, run_in_process, words):
    report = tmp_path / "report.sqlite"
    report.write_bytes(Path(DECODE).read_bytes())
    outcome = run_in_process("query", *words, str(report), "-o", str(report), "--force")
    assert (outcome.code, outcome.stdout) == (2, ""), outcome
    assert report.read_bytes() == Path(DECODE).read_bytes()

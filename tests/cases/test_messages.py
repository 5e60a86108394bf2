"""What the command says of reports that answer in part or not at all: the very words."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from tracekit import CAST, KERNEL, MARLIN, TraceBuilder

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
NODE = "capture with --cuda-graph-trace=node"
CUDA = "capture with --trace=cuda,nvtx, the program's workers included, and open the capture range around GPU work"
FOREIGN = "this is not how nsys writes the table; export the report again"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Reports by name, in the current folder."""
    monkeypatch.chdir(tmp_path)

    def opaque(count: int) -> TraceBuilder:
        t = TraceBuilder()
        for i in range(count):
            t.api("cudaGraphLaunch_v10000", 100 + 100 * i, 10)
        t.api("cudaStreamSynchronize_v3020", 600, 10)
        return t

    kernel = TraceBuilder()
    kernel.push_pop("decode", 0, 90)
    kernel.kernel(MARLIN, 100, 50, launch=10)
    mixed = opaque(2)
    mixed.kernel(MARLIN, 1000, 100, launch=900)
    instant = TraceBuilder()
    instant.kernel(MARLIN, 100, 50, launch=10)
    instant.kernel(CAST, 150, 0, launch=20)
    nothing = TraceBuilder()
    nothing.process(1000)
    builders = {"one": opaque(1), "two": opaque(2), "kernel": kernel, "mixed": mixed, "none": nothing, "at": instant}
    for name, builder in builders.items():
        builder.write(tmp_path / name)
    return tmp_path


REFUSED = {
    "one": ("one: no CUDA kernels: all ran inside 1 CUDA graph launch recorded without its kernels", NODE),
    "two": ("two: no CUDA kernels: all ran inside 2 CUDA graph launches recorded without their kernels", NODE),
    "none": ("none: no CUDA kernels: none was recorded (no-kernels)", CUDA),
    "none two": (
        "no kernels in any of 2 reports: none: none was recorded (no-kernels);"
        " two: all ran inside 2 CUDA graph launches recorded without their kernels",
        f"{CUDA}; {NODE}",
    ),
    "mixed --window 0:500": (
        "mixed: no kernels in the window: what ran there may be inside 2 CUDA graph launches recorded without their"
        " kernels",
        NODE,
    ),
    "kernel --window 150:200": ("kernel: no kernel runs in the window 150:200 (ns)", "kernels run in 100:150"),
    "kernel --window 50:100": ("kernel: no kernel runs in the window 50:100 (ns)", "kernels run in 100:150"),
    "kernel --range dec": ("kernel: no NVTX range matches 'dec'", "ranges in this report: decode"),
    "kernel --by path --domain default --domain x": (
        "kernel: no NVTX range of domain 'x'",
        "domains in this report: default",
    ),
    "kernel --by path --domain x": ("kernel: no NVTX range of domain 'x'", "domains in this report: default"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_reports_that_cannot_answer(words, made, run_in_process):
    outcome = run_in_process("attribute", *words.split())
    assert (outcome.code, outcome.stdout) == (3, "")
    assert outcome.stderr.splitlines() == [f"k25trace: {REFUSED[words][0]}", f"  {REFUSED[words][1]}"]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("kernel --window 149:150", 1),
        ("kernel --window 149:200", 1),
        ("at --window 150:200", 1),
        ("at --window 151:200", None),
        ("mixed --window 500:1001", 1),
    ],
)
def test_the_edges_of_a_window(words, count, made, run_in_process):
    outcome = run_in_process("attribute", *words.split(), "--format", "json")
    if count is None:
        assert outcome.code == 3
    else:
        assert [gpu["kernel_count"] for gpu in json.loads(outcome.stdout)["gpus"]] == [count]


def test_one_of_several_reports_without_kernels_keeps_its_row_and_number(made, run_in_process):
    outcome = run_in_process("attribute", "two", "kernel", "none", "--format", "json")
    document = json.loads(outcome.stdout)
    assert [(r["report"], r["file"]) for r in document["reports"]] == [(0, "two"), (1, "kernel"), (2, "none")]
    assert [window["report"] for window in document["windows"]] == [1]
    assert [gpu["gpu"] for gpu in document["gpus"]] == ["1:0"]
    said = {w["code"]: (w["level"], w["count"], w["message"]) for w in document["warnings"]}
    assert said["no-kernels"] == (
        "error", 2,
        f"no kernels in two: all ran inside 2 CUDA graph launches recorded without their kernels ({NODE});"
        f" no kernels in none: none was recorded (no-kernels) ({CUDA}): nothing of such a report is in any figure",
    )  # fmt: skip
    table = run_in_process("attribute", "two", "kernel", "none").stdout
    assert "\nreport 0: two (nsys 2023.4.4.54)\nreport 1: kernel (nsys 2023.4.4.54)\nreport 2: none (" in table
    assert "\nwindow 1: 100 ns to 150 ns, 50 ns (first kernel to last)\n" in table


def test_clocks_of_several_reports_are_said_to_differ(made, run_in_process):
    def said(*words):
        document = json.loads(run_in_process("attribute", *words, "--format", "json").stdout)
        return [(w["count"], w["message"]) for w in document["warnings"] if w["code"] == "clock-unaligned"]

    assert said("kernel") == []
    assert said("kernel", "--window", "0:120") == []
    effect = "instants of different reports are not comparable"
    assert said("kernel", "at") == [(2, f"each report has a clock of its own: {effect}")]
    assert said("kernel", "at", "--window", "0:120") == [
        (2, f"each report has a clock of its own, on which --window is taken: {effect}")
    ]


def test_warnings_of_several_reports_say_which(made, run_in_process):
    messages = [
        w["message"]
        for w in json.loads(run_in_process("attribute", "kernel", "mixed", "--format", "json").stdout)["warnings"]
        if w["code"] == "opaque-graphs"
    ]
    assert [m.split(": ")[0:2] for m in messages] == [
        ["report 1", "2 CUDA graph launches recorded without their kernels"]
    ]


def test_counts_of_one_have_no_plural(tmp_path, run_in_process):
    t = TraceBuilder()
    t.push_pop("open", 0, None)
    t.kernel(MARLIN, 100, 50)
    t.kernel(CAST, 120, 50, launch=10)
    t.kernel(CAST, 90, -10, launch=20)
    outcome = run_in_process("attribute", t.write(tmp_path / "t.sqlite"), "--by", "path")
    lines = {line.split(": ")[1]: line for line in outcome.stdout.split("\n\n")[0].splitlines() if "warning" in line}
    assert lines == {
        code: f"warning: {code}: {text}"
        for code, text in {
            "kernels-without-launch": "1 kernel without a launch call: counted, under no range",
            "ranges-without-end": "1 NVTX range without an end: taken to reach to the end of the report",
            "unusable-times": "1 kernel with impossible times: left out of every figure",
            "stream-overlap": "1 kernel starting before the one ahead on the same stream ends: programmatic dependent"
            " launch does that; kernel time counts the overlap twice, busy and wall time do not",
        }.items()
    }


SECRETS = ("hunter2", "hf_SecretTokenOfTheUser", "/home/alice/run.py", "gpu7.example", "sk-abc", "Xq7RtzPl")


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_diagnostics_are_quoted_without_what_they_found_on_the_machine(form, tmp_path, run_in_process):
    t = TraceBuilder(schema="3.20.0")
    t.kernel(MARLIN, 100, 50, launch=10)
    t.diagnostic("Not all CUDA events might have been collected by /home/alice/run.py --api-key sk-abc", 3)
    t.diagnostic("Failed to start on gpu7.example: HF_TOKEN=hf_SecretTokenOfTheUser, password: hunter2 Xq7RtzPl", 2)
    outcome = run_in_process("attribute", t.write(tmp_path / "t.sqlite"), "--format", form)
    text = outcome.stdout.replace("\\", "")
    assert "nsys says: Not all CUDA events might have been collected by ***: kernels may be missing" in text
    assert "nsys says: Failed to start on ***: ***, password: ***: what that concerns may be missing" in text
    assert [secret for secret in SECRETS if secret in outcome.stdout] == []


def changed(folder: Path, *statements: str) -> Path:
    t = TraceBuilder()
    t.kernel(MARLIN, 100, 50, launch=10)
    path = t.write(folder / "t.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"ALTER TABLE {KERNEL} RENAME TO old")
        columns = ", ".join(row[1] for row in database.execute("PRAGMA table_info(old)"))
        for statement in statements:
            database.execute(statement.format(table=KERNEL, columns=columns))
        database.commit()
    return path


TABLES = {
    "view": ("CREATE VIEW {table} AS SELECT * FROM old", "a table of it is a view, or has no row ids"),
    "without_rowid": (
        "CREATE TABLE {table} ({columns}, PRIMARY KEY (start)) WITHOUT ROWID;INSERT INTO {table} SELECT * FROM old",
        "a table of it is a view, or has no row ids",
    ),
    "no_start": (
        "ALTER TABLE old DROP COLUMN start;ALTER TABLE old RENAME TO {table}",
        f"{KERNEL} has no column start",
    ),
    "no_end": ("ALTER TABLE old DROP COLUMN end;ALTER TABLE old RENAME TO {table}", f"{KERNEL} has no column end"),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_that_nsys_did_not_write(kind, tmp_path, run_in_process):
    path = changed(tmp_path, *TABLES[kind][0].split(";"))
    outcome = run_in_process("attribute", path)
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.splitlines() == [f"k25trace: {path}: {TABLES[kind][1]}", f"  {FOREIGN}"]


def test_a_parquet_column_of_another_type(tmp_path, run_in_process):
    folder = tmp_path / "report_pqtdir"
    shutil.copytree(GOLDEN / "cpu_nvtx_parquetdir", folder)
    file = folder / "NVTX_EVENTS.parquet"
    pl.read_parquet(file).with_columns(pl.lit("soon").alias("start")).write_parquet(file)
    outcome = run_in_process("doctor", folder)
    assert (outcome.code, outcome.stdout) == (1, "")
    assert outcome.stderr.splitlines() == [
        f"k25trace: {file}: column start of NVTX_EVENTS holds other values than int",
        f"  {FOREIGN}",
    ]


def test_a_list_that_is_cut_says_so_and_one_that_is_whole_does_not(tmp_path, run_in_process):
    for count, ends in ((8, "r7"), (9, "r7, ...")):
        t = TraceBuilder()
        for i in range(count):
            t.push_pop(f"r{i}", i, 100 - i)
        t.kernel(MARLIN, 100, 50, launch=10)
        outcome = run_in_process("attribute", t.write(tmp_path / f"{count}.sqlite"), "--range", "x*")
        assert outcome.stderr.splitlines()[1] == f"  ranges in this report: r0, r1, r2, r3, r4, r5, r6, {ends}"

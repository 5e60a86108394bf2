"""Inputs that give no figures: what is said, with which exit code, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from casekit import Case, Refusal, Want, check_product, needs_product, params
from tracekit import CAST, KERNEL, MARLIN, TraceBuilder, unknown

REPORT_HEAD = b"NVIDIA Tegra Profiler Report 2023@4@4@54-234433681190v0\n"
EXPORT_IT = ["nsys export", "not a SQLite", "not an SQLite", "not a database"]
DAMAGED = ["truncated", "malformed", "corrupt", "damaged", "incomplete"]
NOT_FOUND = ["not found", "No such file", "does not exist"]
NO_KERNELS = ["no CUDA kernel", "no kernel", "no-kernels", KERNEL]
CAPTURE_CUDA = ["--trace", "-t cuda", "trace=cuda"]


def file_of(name: str, content: bytes) -> Callable[[Path], Path]:
    def build(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content)
        return path

    return build


def a_pipe(folder: Path) -> Path:
    """What process substitution gives; nothing will ever come through this one."""
    path = folder / "trace.sqlite"
    os.mkfifo(path)
    return path


def noise(seed: int, size: int = 8192) -> bytes:
    return random.Random(seed).randbytes(size)


def big_trace(folder: Path) -> Path:
    t = TraceBuilder()
    for i in range(1500):
        t.kernel(unknown(f"kernel_number_{i}(float *, int)"), 10 * i, 5)
    return t.write(folder / "trace.sqlite")


def truncated(where: Callable[[int], int]) -> Callable[[Path], Path]:
    """Cut a good file off at a size that depends on its own."""

    def build(folder: Path) -> Path:
        path = big_trace(folder)
        os.truncate(path, where(path.stat().st_size))
        return path

    return build


def overwritten(first: int, count: int) -> Callable[[Path], Path]:
    """A good file with pages of noise in it."""

    def build(folder: Path) -> Path:
        path = big_trace(folder)
        with path.open("r+b") as f:
            f.seek(4096 * first)
            f.write(noise(1, 4096 * count))
        return path

    return build


def other_database(folder: Path) -> Path:
    path = folder / "history.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE visits (id INTEGER, url TEXT)")
    db.execute("INSERT INTO visits VALUES (1, 'x')")
    db.commit()
    db.close()
    return path


def empty_database(folder: Path) -> Path:
    path = folder / "empty.sqlite"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE t (a)")
    db.execute("DROP TABLE t")
    db.commit()
    db.close()
    return path


def no_kernel_table(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.process(1000)
    t.push_pop("decode", 100, 900)
    t.api("cudaGetDeviceCount_v3020", 50, 10)
    return t


def empty_kernel_table(folder: Path) -> TraceBuilder:
    """What `nsys export --lazy=false` writes of a capture without kernels."""
    return no_kernel_table(folder).table(KERNEL)


def only_unusable_kernels(_: Path) -> TraceBuilder:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 0)
    t.kernel(MARLIN, 50, -10)
    return t


def second_is_missing(folder: Path) -> list[Path]:
    t = TraceBuilder()
    t.kernel(MARLIN, 0, 100)
    return [t.write(folder / "good.sqlite"), folder / "missing.sqlite"]


CASES = [
    Case("no_such_file", lambda folder: folder / "trace.sqlite", Refusal(1, [NOT_FOUND, ["trace.sqlite"]])),
    Case("no_such_folder", lambda folder: folder / "no" / "trace.sqlite", Refusal(1, [NOT_FOUND])),
    Case("one_of_two_is_missing", second_is_missing, Refusal(1, [NOT_FOUND, ["missing.sqlite"]])),
    Case("a_folder", lambda folder: folder, Refusal((1, 3), [["directory", "folder", "parquet"]])),
    Case("a_pipe", a_pipe, Refusal(1, [["pipe"], ["file first"]])),
    Case("no_bytes", file_of("trace.sqlite", b""), Refusal(1, [["empty", "0 bytes", *EXPORT_IT]])),
    Case("a_text", file_of("trace.sqlite", b"hello, this is text\n" * 300), Refusal(1, [EXPORT_IT])),
    Case("a_csv_under_its_own_name", file_of("table.csv", b"a,b\n1,2\n"), Refusal((1, 3), [EXPORT_IT])),
    Case("noise", file_of("trace.sqlite", noise(3)), Refusal(1, [EXPORT_IT])),
    Case("half_a_header", file_of("trace.sqlite", b"SQLite format 3\x00"[:10]), Refusal(1)),
    Case("a_header_alone", file_of("trace.sqlite", b"SQLite format 3\x00"), Refusal(1)),
    Case("a_header_before_noise", file_of("trace.sqlite", b"SQLite format 3\x00" + noise(4)), Refusal(1)),
    Case("the_report_itself", file_of("trace.nsys-rep", REPORT_HEAD + noise(26)), Refusal((1, 3), [EXPORT_IT])),
    Case(
        "the_report_under_another_name",
        file_of("trace.sqlite", REPORT_HEAD + noise(27)),
        Refusal((1, 3), [EXPORT_IT]),
    ),
    Case(
        "raw_events",
        file_of("trace.qdstrm", noise(28)),
        Refusal((1, 3), [["nsys export", "import", *EXPORT_IT]]),
    ),
    Case(
        "cut_in_a_page",
        truncated(lambda n: n // 3 // 4096 * 4096 + 100),
        Refusal(1, [DAMAGED, ["trace.sqlite"]]),
    ),
    Case(
        "cut_between_pages",
        truncated(lambda n: n // 2 // 4096 * 4096),
        Refusal(1, [DAMAGED, ["trace.sqlite"]]),
    ),
    Case("cut_in_the_first_page", truncated(lambda _: 2000), Refusal(1, [["trace.sqlite"]])),
    Case("cut_after_the_first_page", truncated(lambda _: 4096), Refusal(1, [DAMAGED])),
    Case("cut_in_the_last_page", truncated(lambda n: n - 100), Refusal(1, [DAMAGED])),
    Case("without_the_last_page", truncated(lambda n: n - 4096), Refusal(1, [DAMAGED])),
    Case("noise_in_the_middle", overwritten(20, 10), Refusal(1, [DAMAGED])),
    Case("another_programs_database", other_database, Refusal((1, 3), [["nsys"]])),
    Case("a_database_without_tables", empty_database, Refusal((1, 3), [["nsys"]])),
    Case("no_kernel_table", no_kernel_table, Refusal(3, [NO_KERNELS, CAPTURE_CUDA])),
    Case("an_empty_kernel_table", empty_kernel_table, Refusal(3, [NO_KERNELS, CAPTURE_CUDA])),
    Case("no_kernel_of_usable_times", only_unusable_kernels, Refusal(3)),
    Case(
        "a_window_that_is_no_window",
        lambda _: good(),
        Refusal(2),
        args=("--window", "200:100"),
    ),
    Case("a_window_of_words", lambda _: good(), Refusal(2), args=("--window", "from:to")),
    Case(
        "a_range_that_nothing_matches",
        lambda _: good(),
        Refusal(3, [["nowhere"]]),
        args=("--range", "nowhere"),
    ),
]


def good() -> TraceBuilder:
    t = TraceBuilder()
    t.push_pop("decode", 0, 500)
    t.kernel(MARLIN, 100, 600, launch=10)
    t.kernel(CAST, 700, 400, launch=20)
    return t


@needs_product
@pytest.mark.parametrize("case", params(CASES))
def test_attribute_refuses(case: Case, tmp_path: Path, run_in_process, unchanged) -> None:
    check_product(case, tmp_path, run_in_process, unchanged)


@needs_product
@pytest.mark.parametrize("case", params(CASES[:3] + CASES[14:15] + CASES[23:24]))
def test_the_command_refuses_in_a_process_of_its_own(case: Case, tmp_path: Path, run_cli, unchanged) -> None:
    check_product(case, tmp_path, run_cli, unchanged)


RIGHT = Want(categories={("0:0", "gemm.marlin"): (600, 1), ("0:0", "cast"): (400, 1)}, inclusive={"decode": 1000})


@needs_product
@pytest.mark.parametrize(
    "name", ["export", "trace.db", "with space.sqlite", "pct%20?mode=rwc#x.sqlite", "-dash.sqlite"]
)
def test_any_file_name_is_read(name: str, tmp_path: Path, run_cli, unchanged) -> None:
    case = Case(name, lambda folder: good().write(folder / name), RIGHT)
    check_product(case, tmp_path, run_cli, unchanged)


@needs_product
def test_a_file_in_wal_mode_is_read_and_nothing_is_left_beside_it(tmp_path: Path, run_cli, unchanged) -> None:
    case = Case("wal", lambda folder: good().write(folder / "trace.sqlite", journal_mode="WAL"), RIGHT)
    check_product(case, tmp_path, run_cli, unchanged)


def wal_with_rows_in_it(folder: Path) -> Path:
    """Leave rows in the write-ahead log, as a writer does that was killed."""
    path = good().write(folder / "trace.sqlite", journal_mode="WAL")
    code = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA wal_autocheckpoint=0')\n"
        f"db.execute('INSERT INTO {KERNEL} SELECT * FROM {KERNEL}')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert (folder / "trace.sqlite-wal").stat().st_size > 0
    return path


@needs_product
def test_rows_in_the_write_ahead_log_are_never_left_out_in_silence(tmp_path: Path, run_cli, unchanged) -> None:
    path = wal_with_rows_in_it(tmp_path)
    with unchanged(tmp_path):
        outcome = run_cli("attribute", path, "--format", "json")
    assert "Traceback" not in outcome.stderr
    assert outcome.code in (0, 1), outcome
    if outcome.code == 0:
        assert sum(g["kernel_count"] for g in json.loads(outcome.stdout)["gpus"]) == 4


def hot_journal(folder: Path) -> Path:
    """Leave a rollback journal, as a writer does that was killed within a transaction."""
    path = big_trace(folder)
    code = (
        "import os, sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('PRAGMA cache_size=1')\n"
        "db.execute('BEGIN')\n"
        f"db.execute('UPDATE {KERNEL} SET end = end + 1000000')\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert (folder / "trace.sqlite-journal").stat().st_size > 0
    return path


@needs_product
def test_a_half_written_file_gives_no_figures(tmp_path: Path, run_cli, unchanged) -> None:
    path = hot_journal(tmp_path)
    with unchanged(tmp_path):
        outcome = run_cli("attribute", path, "--format", "json")
    assert outcome.code == 1, outcome
    assert "Traceback" not in outcome.stderr
    assert '"categories"' not in outcome.stdout


@needs_product
def test_a_file_that_another_process_locks_is_a_plain_message(tmp_path: Path, run_cli, unchanged) -> None:
    path = good().write(tmp_path / "trace.sqlite")
    code = (
        "import sqlite3, sys\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('BEGIN EXCLUSIVE')\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        with unchanged(tmp_path):
            outcome = run_cli("attribute", path, "--format", "json")
    finally:
        holder.communicate(timeout=30)
    assert "Traceback" not in outcome.stderr
    assert outcome.code == 1, outcome
    assert outcome.stderr == (f"k25trace: {path}: locked by another program\n  wait until the export has finished\n")


@needs_product
@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_must_not_be_read_is_a_plain_message(tmp_path: Path, run_cli) -> None:
    path = good().write(tmp_path / "trace.sqlite")
    path.chmod(0)
    outcome = run_cli("attribute", path, "--format", "json")
    assert outcome.code == 1
    assert "permission" in outcome.stderr.lower()
    assert "Traceback" not in outcome.stderr


@needs_product
def test_a_file_in_a_folder_without_write_permission_is_read(tmp_path: Path, run_cli) -> None:
    folder = tmp_path / "readonly"
    folder.mkdir()
    path = good().write(folder / "trace.sqlite")
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        outcome = run_cli("attribute", path, "--format", "json")
    finally:
        folder.chmod(0o755)
    assert outcome.code == 0, outcome


@needs_product
def test_a_mistyped_path_leaves_no_empty_database(tmp_path: Path, run_cli) -> None:
    path = tmp_path / "mistyped.sqlite"
    assert run_cli("attribute", path).code == 1
    assert not path.exists()

"""The command `attribute`: what is refused before any work, and what a terminal is shown meanwhile."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tracekit import CAST, MARLIN, TraceBuilder

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TOY = GOLDEN / "h200x1_toy_graph.sqlite"


def attribute(*words: str | Path, **popen: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "k25trace", "attribute", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **popen)


@pytest.mark.parametrize("option", ["--output", "--save"])
def test_a_target_that_exists_is_refused_before_the_report_is_opened(tmp_path, option):
    target = tmp_path / "there"
    target.write_text("mine")
    done = attribute(tmp_path / "no such report.sqlite", option, target)
    assert (done.returncode, done.stdout) == (1, "")
    assert "exists already" in done.stderr
    assert target.read_text() == "mine"


def test_force_replaces_a_target_and_leaves_nothing_else(tmp_path):
    target = tmp_path / "there"
    target.write_text("mine")
    done = attribute(TOY, "--format", "csv", "--no-header", "-o", target, "--force")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert target.read_text().startswith("gpu,category,kernel_count,")
    assert os.listdir(tmp_path) == ["there"]


MEANINGLESS = {
    "--depth 2": "--depth goes with --by path",
    "--inclusive": "--inclusive goes with --by range",
    "--by path --depth 0": "--depth counts from 1",
    "--by path --depth 1 --format json": "--depth does not go with --format json, which has whole paths",
    "--window 5:1": "--window 5:1: it ends before it starts",
    "--window soon": "--window soon: not of the form A:B",
    "--by gpu --per-gpu": "--per-gpu does not go with --by gpu",
    "--by kernel --per-gpu": "--per-gpu does not go with --by kernel: kernel names have rows over all GPUs alone",
    "--top -1": "--top counts rows",
    "--top 5 --format csv": "--top goes with tables: --format csv has all rows",
    "--top 5 --format json": "--top goes with tables: --format json has all rows",
    "--verbose --format csv": "--verbose goes with tables, not with --format csv",
    "--no-header": "--header and --no-header go with --format csv",
    "--header --format json": "--header and --no-header go with --format csv",
    "--domain NCLL": "--domain does nothing for --by category: it says which ranges own kernels",
    "--domain NCCL --by gpu": "--domain does nothing for --by gpu: it says which ranges own kernels",
    "--max-unclassified=": "--max-unclassified: '' is not between 0 and 1",
    "--max-unclassified nan": "--max-unclassified: 'nan' is not between 0 and 1",
    "--max-unclassified=-1%": "--max-unclassified: '-1%' is not between 0 and 1",
    "--max-unclassified 101%": "--max-unclassified: '101%' is not between 0 and 1",
    "--max-unclassified 1e-2": "--max-unclassified: '1e-2' is not between 0 and 1",
    "-o a.txt --save a.txt": "a.txt: is read or written by this command already",
    "-o a.txt --save ./b/../a.txt": "a.txt: is read or written by this command already",
}


@pytest.mark.parametrize("words", MEANINGLESS)
def test_options_that_make_no_sense_exit_2(words, run_in_process, tmp_path, monkeypatch):
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path)
    done = run_in_process("attribute", TOY, *words.split())
    assert (done.code, done.stdout) == (2, "")
    said, *hint = done.stderr.splitlines()
    assert said == f"k25trace: {MEANINGLESS[words]}"
    assert len(hint) <= 1
    assert os.listdir(tmp_path) == ["b"]


def test_top_limits_any_table(run_in_process):
    shown = run_in_process("attribute", TOY, "--top", "1").stdout.split("\n\n")[1].splitlines()
    assert [line.split()[0] for line in shown[2:-1]] == ["cast", "idle", "total"]
    assert re.match(r"\d more rows?; --top N shows more, --top 0 all\. Wall of comm\.\*", shown[-1])


def header_of(outcome):
    assert outcome.code == 0, outcome
    lines = outcome.stdout.split("\n\n")[0].splitlines()
    return dict(line.split(": ", 1) for line in lines)


@pytest.fixture
def two_gpus(tmp_path):
    """Two GPUs; a range `step` around two kernels of 10 ns on one and one of 30 ns on the other, 100 ns apart."""
    t = TraceBuilder()
    for pid, kernels in ((1000, ((100, 10), (200, 10))), (1001, ((150, 30),))):
        t.process(pid)
        for at, ns in kernels:
            t.push_pop("step", at - 20, at - 10, pid=pid)
            t.kernel(MARLIN, at, ns, launch=at - 15, pid=pid, device=pid - 1000)
    t.push_pop("late", 900, 960)
    t.kernel(CAST, 950, 50, launch=940)
    return t.write(tmp_path / "trace.sqlite")


def test_the_header_states_the_denominators_of_the_rows(two_gpus, run_in_process):
    both = header_of(run_in_process("attribute", two_gpus))
    assert both["window"] == "100 ns to 1.00 µs, 900 ns (first kernel to last)"
    assert both["share"] == "of the kernel time: 100 ns, 4 kernels over 2 GPUs"
    assert both["wall share"] == "of the window: 1.80 µs over 2 GPUs; the wall rows add up to it exactly"
    each = header_of(run_in_process("attribute", two_gpus, "--per-gpu"))
    assert each["share"] == "of the kernel time of the row's GPU; all together 100 ns, 4 kernels over 2 GPUs"
    assert each["wall share"] == (
        "of the window of the row's GPU; all together 1.80 µs; the wall rows of a GPU add up to its window exactly"
    )
    assert "ranges" not in both
    for by in ("family", "kernel", "gpu", "range", "path"):
        header = header_of(run_in_process("attribute", two_gpus, "--by", by))
        assert header["share"] == both["share"]
        assert "wall share" not in header  # no such column


def test_the_header_says_of_how_many_pieces_a_window_is(two_gpus, run_in_process):
    window = header_of(run_in_process("attribute", two_gpus, "--range", "step"))["window"]
    assert window == (
        "3 pieces over 2 GPUs between 100 ns and 210 ns, together 50 ns"
        " (--range step: while operations of the selected ranges run)"
    )
    document = json.loads(run_in_process("attribute", two_gpus, "--range", "step", "--format", "json").stdout)
    assert document["windows"][0]["piece_count"] == 3
    assert sum(gpu["window_ns"] for gpu in document["gpus"]) == 50
    given = header_of(run_in_process("attribute", two_gpus, "--window", "0:400"))["window"]
    assert given == "0 ns to 400 ns, 400 ns (--window)"


def test_the_header_repeats_the_options_that_choose(two_gpus, run_in_process, tmp_path):
    rules = tmp_path / "mine.toml"
    rules.write_text(
        '[[rule]]\nid = "x"\ncategory = "norm"\nfamily = "x"\nsource = "x"\nmatch = {exact = "x"}\nexamples = ["x"]\n'
    )
    done = run_in_process(
        "attribute", two_gpus, "--by", "path", "--depth", "2", "--domain", "default", "--rules", rules
    )  # fmt: skip
    header = header_of(done)
    assert header["rules"] == f"{rules} first"
    assert header["domains"] == "only ranges of default own kernels"
    assert header["ranges"] == (
        "exclusive: a kernel's time belongs to the innermost range that it was launched in;"
        " of a path, the outermost 2 are kept"
    )
    assert "\nBy path to depth 2, exclusive, over all GPUs\n" in done.stdout
    inclusive = run_in_process("attribute", two_gpus, "--by", "range", "--inclusive", "--per-gpu")
    assert header_of(inclusive)["ranges"] == (
        "inclusive: time inside a range at any depth, a kernel once for each name"
    )
    assert "\nBy range, inclusive, for each GPU\n" in inclusive.stdout
    assert inclusive.stdout.endswith("A kernel counts once for each name in its path, so rows overlap.\n")


def test_a_terminal_is_shown_what_is_read_and_a_file_is_not():
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "k25trace", "attribute", str(TOY)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=terminal, text=True, check=False)
    os.close(terminal)
    shown = os.read(main, 1 << 16).decode()
    os.close(main)
    assert done.returncode == 0
    assert "reading" in shown
    assert "reading" not in done.stdout
    assert attribute(TOY).stderr == ""


@pytest.mark.parametrize("option", ["--output", "--save"])
def test_a_report_is_never_written_over_even_with_force(tmp_path, option):
    report = tmp_path / "report.sqlite"
    report.write_bytes(TOY.read_bytes())
    done = attribute(report, option, tmp_path / "." / "report.sqlite", "--force")
    assert (done.returncode, done.stdout) == (2, "")
    assert report.read_bytes() == TOY.read_bytes()


def test_what_a_name_does_to_a_terminal_does_not_come_through_messages(tmp_path):
    done = attribute(tmp_path / "no\x1b[31msuch\nfile")
    assert done.returncode == 1
    assert "\x1b" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_top_0_shows_all_rows(run_in_process):
    shown = run_in_process("attribute", TOY, "--by", "kernel", "--top", "0").stdout
    assert "more row" not in shown
    names = {row["name"] for row in json.loads(run_in_process("attribute", TOY, "-f", "json").stdout)["kernels"]}
    assert all(name[:40] in " ".join(shown.split()) for name in names)


def test_a_hyphen_is_standard_output(run_in_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_in_process("attribute", TOY, "-o", "-").stdout == run_in_process("attribute", TOY).stdout
    refused = run_in_process("timeline", TOY, "-o", "-")
    assert (refused.code, list(tmp_path.iterdir())) == (2, [])
    assert "standard output" in refused.stderr

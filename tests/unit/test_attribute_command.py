"""The command `attribute`: what is refused before any work, and what a terminal is shown meanwhile."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "words",
    [["--depth", "2"], ["--inclusive"], ["--by", "path", "--depth", "0"], ["--window", "5:1"], ["--window", "soon"]],
)
def test_options_that_make_no_sense_exit_2(words):
    done = attribute(TOY, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) <= 2


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

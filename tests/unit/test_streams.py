"""Standard streams that are closed, full or of an old encoding, and outputs that are no plain files: every verb."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils
from tracekit import TraceBuilder, unknown

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TOY = GOLDEN / "h200x1_toy_graph.sqlite"
NAME = "kernel µ 漢(int)"
NO_TEXT = os.fsdecode(b"caf\xe9.sqlite")


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A report whose file and kernel have names that are not ASCII; the file's is not even UTF-8."""
    t = TraceBuilder()
    t.push_pop("grün", 0, 100)
    t.kernel(unknown(NAME), 50, 10, launch=10)
    return t.write(tmp_path_factory.mktemp("trace") / NO_TEXT)


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    file = tmp_path_factory.mktemp("rules") / "mine.toml"
    file.write_text(
        '[[rule]]\nid = "x"\ncategory = "norm"\nfamily = "x"\nsource = "µ"\nmatch = {exact = "µ"}\nexamples = ["µ"]\n',
        encoding="utf-8",
    )
    return file


VERBS = {
    "attribute": ["attribute", "TRACE"],
    "attribute_json": ["attribute", "TRACE", "--format", "json"],
    "attribute_csv": ["attribute", "TRACE", "--by", "kernel", "--format", "csv"],
    "attribute_markdown": ["attribute", "TRACE", "--by", "kernel", "--format", "markdown"],
    "query": ["query", "kernel_sum", "TRACE"],
    "query_csv": ["query", "kernel_sum", "TRACE", "--csv"],
    "query_one": ["query", "kernel_sum"],
    "query_list": ["query", "--list"],
    "query_datasette": ["query", "--datasette", "TRACE"],
    "doctor": ["doctor", "TRACE"],
    "rules_list": ["rules", "list", "--rules", "RULES"],
    "rules_explain": ["rules", "explain", "µ\u202e", "--rules", "RULES"],
    "rules_classify": ["rules", "classify", "RULES"],
    "rules_check": ["rules", "check", "RULES"],
    "version": ["--version"],
    "help": ["attribute", "--help"],
}


def run(words, trace, rules, *, shell="", env=None):
    given = [{"TRACE": str(trace), "RULES": str(rules)}.get(word, word) for word in words]
    command = [os.fsencode(word) for word in [sys.executable, "-m", "k25trace", *given]]
    script = b'"$@" ' + shell.encode()
    return subprocess.run(
        [b"bash", b"-c", script, b"bash", *command],
        capture_output=True, check=False, env={**os.environ, "COLUMNS": "200", **(env or {})}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_output_that_cannot_be_written_is_told_in_one_line(verb, trace, rules):
    for shell, why in ((">/dev/full", "no space left on device"), (">&-", "bad file descriptor")):
        done = run(VERBS[verb], trace, rules, shell=shell)
        assert (done.returncode, done.stdout) == (1, b"")
        assert done.stderr.decode() == f"k25trace: the output cannot be written: {why}\n"
    done = run(VERBS[verb], trace, rules, shell="| true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.parametrize("verb", VERBS)
def test_any_encoding_will_do(verb, trace, rules):
    wanted = run(VERBS[verb], trace, rules, env={"PYTHONIOENCODING": "utf-8"})
    wanted.stdout.decode("utf-8")
    for encoding in ("ascii", "latin-1"):
        done = run(VERBS[verb], trace, rules, env={"PYTHONIOENCODING": encoding})
        assert (done.returncode, done.stderr) == (wanted.returncode, b"")
        if verb.endswith(("json", "csv", "datasette")):
            assert done.stdout == wanted.stdout
        else:
            done.stdout.decode(encoding)
    c = run(VERBS[verb], trace, rules, env={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"})
    assert c.returncode == wanted.returncode
    assert b"Traceback" not in c.stderr


def test_an_old_terminal_is_shown_stand_ins(trace, rules):
    done = run(VERBS["attribute"], trace, rules, env={"PYTHONIOENCODING": "ascii"})
    assert re.search(rb"^idle +- +- +- +- +0 ns +0\.0 % +- +- +-$", done.stdout, re.MULTILINE)
    done = run(["attribute", "TRACE", "--by", "kernel"], trace, rules, env={"PYTHONIOENCODING": "ascii"})
    assert b"kernel u \\u6f22(int)" in done.stdout
    assert b"report: " + os.fsencode(trace.parent) + b"/caf\\xe9.sqlite (" in done.stdout


def test_programs_get_utf8_whatever_the_terminal_has(trace, rules):
    done = run(VERBS["attribute_json"], trace, rules, env={"PYTHONIOENCODING": "ascii"})
    document = json.loads(done.stdout)
    assert document["kernels"][0]["name"] == NAME
    assert document["reports"][0]["file"] == f"{trace.parent}/caf\\xe9.sqlite"
    done = run(VERBS["query_csv"], trace, rules, env={"PYTHONIOENCODING": "latin-1"})
    assert next(csv.DictReader(io.StringIO(done.stdout.decode("utf-8"))))["name"] == NAME


def test_a_closed_standard_error_changes_nothing(trace, rules):
    done = run(VERBS["attribute_json"], trace, rules, shell="2>&-")
    assert done.returncode == 0
    assert json.loads(done.stdout)["schema"] == "k25trace.attribution/1"
    assert run(["attribute", "nowhere"], trace, rules, shell="2>&-").returncode == 1
    assert run(["attribute", "nowhere"], trace, rules, shell="2>/dev/full").returncode == 1
    assert run(["rules", "classify", "-"], trace, rules, shell="<&-").stderr == (
        b"k25trace: the output cannot be written: bad file descriptor\n"
    )


def test_words_that_are_no_text_are_refused(trace, rules):
    done = run(["query", "--sql", os.fsdecode(b"SELECT '\xff'"), "TRACE"], trace, rules)
    assert done.returncode == 2
    assert done.stderr == b"k25trace: --sql: not UTF-8\n"
    done = run(["query", os.fsdecode(b"gpu_\xff"), "TRACE"], trace, rules)
    assert done.returncode in {1, 2}
    assert done.stderr.startswith(b"k25trace: ")
    assert done.stderr.count(b"\n") <= 2


# ---------------------------------------------------------------- outputs

OUTPUTS = {
    "attribute": (["attribute", TOY, "--by", "gpu", "--format", "csv", "--no-header", "-o"], b"gpu,report,"),
    "query": (["query", "kernel_sum", TOY, "--csv", "-o"], b"name,"),
    "datasette": (["query", "--datasette", TOY, "-o"], b"{\n"),
}
DATABASES = {
    "save": ["attribute", TOY, "--save"],
    "scrub": ["scrub", TOY, "-o"],
}


@pytest.fixture
def terminal():
    """A device that a wrong program could not replace: nobody can make a file in the folder of terminals."""
    ends = pty.openpty()
    yield Path(os.ttyname(ends[1]))
    for end in ends:
        os.close(end)


@pytest.mark.parametrize("verb", OUTPUTS)
def test_a_link_stays_and_what_it_leads_to_is_written(verb, tmp_path, run_in_process):
    words, begins = OUTPUTS[verb]
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    target, link = folder / "target", tmp_path / "link"
    link.symlink_to("elsewhere/target")
    outcome = run_in_process(*words, link)
    assert outcome.code == 0, outcome
    target.chmod(0o600)
    assert run_in_process(*words, link).code == 1
    assert run_in_process(*words, link, "--force").code == 0
    assert (os.readlink(link), target.stat().st_mode & 0o777) == ("elsewhere/target", 0o600)
    assert target.read_bytes().startswith(begins)
    assert sorted(p.name for p in (*tmp_path.iterdir(), *folder.iterdir())) == ["elsewhere", "link", "target"]


@pytest.mark.parametrize("verb", DATABASES)
def test_databases_go_behind_a_link_and_to_no_pipe(verb, tmp_path, run_in_process, terminal):
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(target)
    os.mkfifo(pipe)
    assert run_in_process(*DATABASES[verb], link).code == 0
    assert link.is_symlink()
    with closing(sqlite_utils.Database(target)) as database:
        assert database.table_names()
    before = target.read_bytes()
    assert run_in_process(*DATABASES[verb], link).code == 1
    for place in (pipe, terminal, Path("/proc/self/fd/1")):
        outcome = run_in_process(*DATABASES[verb], place, "--force")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == f"k25trace: {place}: a pipe or a device, and this output has to be a file\n"
    assert pipe.is_fifo()
    assert target.read_bytes() == before


@pytest.mark.parametrize("verb", OUTPUTS)
def test_pipes_and_devices_are_written_to_and_stay(verb, tmp_path, run_cli):
    words, begins = OUTPUTS[verb]
    wanted = run_cli(*words[:-1]).stdout.encode()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE)
    assert run_cli(*words, pipe).code == 0
    assert reader.communicate()[0] == wanted
    assert wanted.startswith(begins)
    assert pipe.is_fifo()
    assert run_cli(*words, "/proc/self/fd/1").stdout.encode() == wanted
    full = run([*map(str, words), "/proc/self/fd/1"], TOY, TOY, shell=">/dev/full")
    assert (full.returncode, full.stdout) == (1, b"")
    assert full.stderr == b"k25trace: /proc/self/fd/1: cannot be written: no space left on device\n"


def test_a_terminal_is_written_to(run_cli):
    main, terminal = pty.openpty()
    words, begins = OUTPUTS["attribute"]
    assert run_cli(*words, os.ttyname(terminal)) == (0, "", "")
    assert os.read(main, 1 << 12).startswith(begins)
    for end in (main, terminal):
        os.close(end)


def test_what_standard_output_appends_to_is_appended_to(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    argv = [sys.executable, "-m", "k25trace", *map(str, OUTPUTS["query"][0]), "/proc/self/fd/1"]
    with log.open("a") as out:
        done = subprocess.run(argv, stdout=out, check=False)
    assert done.returncode == 0
    assert log.read_text().startswith("before\nname,")


@pytest.mark.parametrize("words", [*(words for words, _ in OUTPUTS.values()), *DATABASES.values()])
def test_places_where_no_file_can_be(words, tmp_path, run_in_process):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for place, why in (
        (loop, "neither a file nor a place for one"),
        (tmp_path, "a folder"),
        (tmp_path / "no" / "x", f"cannot be written: there is no folder {tmp_path / 'no'}"),
        (tmp_path / ("x" * 300), "cannot be written: file name too long"),
    ):
        outcome = run_in_process(*words, place, "--force")
        assert (outcome.code, outcome.stdout) == (1, "")
        assert outcome.stderr == f"k25trace: {place}: {why}\n"
    assert os.listdir(tmp_path) == ["loop"]


def test_an_output_beside_one_whose_name_is_no_text(trace, tmp_path, run_cli):
    target = tmp_path / os.fsdecode(b"out\xff.db")
    assert run_cli("attribute", os.fsencode(trace).decode("utf-8", "surrogateescape"), "--save", str(target)).code == 0
    with closing(sqlite_utils.Database(target)) as database:
        assert [row["file"] for row in database["reports"].rows] == [f"{trace.parent}/caf\\xe9.sqlite"]


@pytest.mark.parametrize(("raised", "told"), [("KeyboardInterrupt", False), ("ValueError", True)])
def test_an_interrupt_while_a_reader_is_put_away_says_nothing_of_it(raised, told):
    program = f"""
from k25trace.cli import streams
streams.prepare()
def reader():
    try:
        yield 1
    finally:
        raise {raised}
given = reader()
next(given)
del given
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ("Exception ignored" in done.stderr) is told

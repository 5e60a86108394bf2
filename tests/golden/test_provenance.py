"""The golden files are those that PROVENANCE.md describes, and hold nothing of the machine they come from."""

import hashlib
import re
import sqlite3
import subprocess
import sys

import pytest
import refresh
from nsys_says import GOLDEN

TRACES = sorted(GOLDEN.glob("*.sqlite"))


def test_every_golden_file_has_its_checksum_in_the_provenance():
    said = dict(re.findall(r"^([0-9a-f]{64})  (\S+)$", (GOLDEN / "PROVENANCE.md").read_text(), re.MULTILINE))
    assert said == {hashlib.sha256(f.read_bytes()).hexdigest(): f.name for f in TRACES}


@pytest.mark.parametrize("trace", TRACES, ids=lambda p: p.stem)
def test_a_golden_file_holds_no_environment_host_user_or_path(trace):
    db = sqlite3.connect(f"file:{trace.as_posix()}?mode=ro", uri=True)
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "ProcessStreams" in tables:
        assert db.execute("SELECT count(*) FROM ProcessStreams").fetchone() == (0,)
    if "TARGET_INFO_SYSTEM_ENV" in tables:
        # What `k25trace scrub` leaves there are facts such as the driver's version: no assignment, no path.
        named = "SELECT name FROM TARGET_INFO_SYSTEM_ENV WHERE value LIKE '%=%' OR value LIKE '%/%'"
        assert db.execute(named).fetchall() == []
    facts = dict(db.execute("SELECT name, value FROM META_DATA_EXPORT"))
    private = ["EXPORT_HOST", "EXPORT_USER", "EXPORT_PARAM_INPUT_PATH_ABS", "EXPORT_PARAM_OUTUPT_PATH_ABS"]
    assert {facts.get(p) or "" for p in private} == {""}
    db.text_factory = bytes
    strings = [value for (value,) in db.execute("SELECT value FROM StringIds")]
    assert strings
    assert [s for s in strings if s.startswith(b"/") or re.search(rb"\b(PATH|HOME|USER)=", s)] == []
    db.close()


@pytest.mark.nsys
def test_the_committed_tables_are_those_of_the_real_nsys():
    try:
        nsys = refresh.find_nsys(None)
    except SystemExit:
        pytest.skip("no nsys on the PATH or in .nsys/ (.ci/get-nsys.sh puts one there)")
    version = subprocess.run([nsys, "--version"], capture_output=True, text=True, check=True).stdout
    if "2023.4.4" not in version:
        pytest.skip(f"the tables are those of 2023.4.4, not of {version.strip()}")
    done = subprocess.run(
        [sys.executable, refresh.__file__, "--check", "--nsys", nsys],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")

"""The two commands of the how-to page: metadata, and a real Datasette server that answers from it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
from querykit import CATALOG, GOLDEN, rows

pytest.importorskip("datasette", reason="in the datasette extra")

ROOT = Path(__file__).resolve().parents[2]
DECODE = GOLDEN / "h200x2_decode_graph.sqlite"


def run(*argv: str | Path) -> None:
    subprocess.run([sys.executable, "-m", *map(str, argv)], check=True, cwd=ROOT, capture_output=True)


def serve(database: Path, metadata: Path):
    """Start a server on loopback; yield a function that fetches JSON from it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    argv = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "datasette",
        database,
        "--metadata",
        metadata,
        "--port",
        port,
    ]
    process = subprocess.Popen(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def fetch(path: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
            return answer.read()

    try:
        for _ in range(150):
            try:
                fetch("-/versions.json")
                break
            except OSError:
                if process.poll() is not None:
                    raise AssertionError(process.stdout.read().decode()) from None
                time.sleep(0.2)
        yield fetch
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    place = tmp_path_factory.mktemp("datasette")
    run("k25trace", "query", "--datasette", DECODE, "-o", place / "metadata.json")
    yield from serve(DECODE, place / "metadata.json")


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    place = tmp_path_factory.mktemp("datasette")
    run("k25trace", "attribute", DECODE, "--save", place / "analysis.db")
    run("k25trace", "query", "--datasette", place / "analysis.db", "-o", place / "metadata.json")
    for fetch in serve(place / "analysis.db", place / "metadata.json"):
        yield fetch, place / "analysis.db"


ANSWERED = [q.name for q in CATALOG if q.standalone and not q.name.startswith("analysis_")]
NOT_IN_IT = {"memcpy_sum", "diagnostics"}


@pytest.mark.parametrize("name", sorted(set(ANSWERED) - NOT_IN_IT))
def test_canned_queries_of_a_report_say_what_the_command_says(report, name):
    path = f"{DECODE.stem}/{name}.json?_shape=array&_size=max"
    assert json.loads(report(path)) == rows(name, DECODE)[:1000]


def test_parameters_are_fields_of_a_form(report):
    page = report(f"{DECODE.stem}/gpu_busy").decode()
    assert 'name="window_start_ns"' in page
    asked = urllib.parse.urlencode({"window_start_ns": "40000000", "window_end_ns": "60000000", "_shape": "array"})
    want = rows("gpu_busy", DECODE, window_start_ns=40_000_000, window_end_ns=60_000_000)
    assert json.loads(report(f"{DECODE.stem}/gpu_busy.json?{asked}")) == want


def test_only_what_the_database_can_answer_is_offered(report, analysis):
    def offered(fetch, stem: str) -> set[str]:
        return {query["name"] for query in json.loads(fetch(f"{stem}.json"))["queries"]}

    assert offered(report, DECODE.stem) == set(ANSWERED) - NOT_IN_IT
    assert offered(analysis[0], "analysis") == {"analysis_categories", "analysis_ranges", "analysis_wall"}


@pytest.mark.parametrize("name", ["analysis_categories", "analysis_ranges", "analysis_wall"])
def test_canned_queries_of_a_saved_analysis(analysis, name):
    fetch, path = analysis
    assert json.loads(fetch(f"analysis/{name}.json?_shape=array&_size=max")) == rows(name, path)[:1000]

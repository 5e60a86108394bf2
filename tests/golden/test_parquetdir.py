"""The parquetdir writer of the tests makes what nsys makes: checked on real exports of one report."""

import importlib.util
import sqlite3
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from k25trace.trace import open_trace

GOLDEN = Path(__file__).resolve().parent
PAIR = GOLDEN / "cpu_nvtx.sqlite", GOLDEN / "cpu_nvtx_parquetdir"
# Describes the export itself: format and names of files, time.
ABOUT_THE_EXPORT = {"META_DATA_EXPORT"}

_spec = importlib.util.spec_from_file_location("to_parquetdir", GOLDEN.parent / "tools" / "to_parquetdir.py")
to_parquetdir = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(to_parquetdir)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair") / "parquetdir"
    to_parquetdir.convert(PAIR[0], folder)
    return folder


def test_same_files_as_the_real_export(ours):
    real = {p.name for p in PAIR[1].iterdir()}
    assert {p.name for p in ours.iterdir()} == real
    assert "NVTX_EVENTS.parquet" in real
    assert "META_DATA_CAPTURE.parquet" not in real


@pytest.mark.parametrize("table", sorted(p.stem for p in PAIR[1].iterdir()))
def test_same_names_types_and_rows_as_the_real_export(ours, table):
    real, made = (pl.read_parquet(folder / f"{table}.parquet") for folder in (PAIR[1], ours))
    assert made.schema == real.schema
    if table in ABOUT_THE_EXPORT:
        assert made["name"].to_list() == real["name"].to_list()
    else:
        assert_frame_equal(made, real)


def test_a_negative_global_id_of_sqlite_is_the_same_64_bits_unsigned(tmp_path):
    source, folder = tmp_path / "t.sqlite", tmp_path / "out"
    with sqlite3.connect(source) as db:
        db.execute("CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, globalTid INTEGER, newColumn REAL)")
        db.execute("INSERT INTO NVTX_EVENTS VALUES (-5, -72057594037927936, 0.5)")
    db.close()
    assert to_parquetdir.convert(source, folder) == ["NVTX_EVENTS"]
    frame = pl.read_parquet(folder / "NVTX_EVENTS.parquet")
    assert frame.schema == {"start": pl.Int64, "globalTid": pl.UInt64, "newColumn": pl.Float64}
    assert frame.rows() == [(-5, 2**64 - 72057594037927936, 0.5)]


def test_nsys_writes_bytes_that_are_not_utf8_into_a_text_column_as_they_are():
    """Which polars refuses to read as text: a reader of parquetdirs has to expect it."""
    name = b"bad \xff\xfe name"
    with sqlite3.connect(f"file:{(GOLDEN / 'cpu_bytes.sqlite').as_posix()}?mode=ro", uri=True) as db:
        db.text_factory = bytes
        assert (name,) in db.execute("SELECT value FROM StringIds").fetchall()
    db.close()
    strings = GOLDEN / "cpu_bytes_parquetdir" / "StringIds.parquet"
    assert name in strings.read_bytes()
    assert pl.read_parquet_schema(strings)["value"] == pl.String
    with pytest.raises(pl.exceptions.ComputeError, match="UTF-8"):
        pl.read_parquet(strings)


@pytest.mark.parametrize("pair", ["cpu_nvtx", "cpu_bytes"])
def test_the_real_pair_opens_to_the_same_ranges(pair):
    columns = ["push_pop", "process", "thread", "start_ns", "end_ns", "closed", "name", "domain"]
    found = []
    for source in (GOLDEN / f"{pair}.sqlite", GOLDEN / f"{pair}_parquetdir"):
        trace = open_trace(source)
        rows = trace.ranges.select(columns).sort("start_ns").rows()
        named = [(*r[:2], trace.threads[r[2]], *r[3:6], trace.names[r[6]], trace.names[r[7]]) for r in rows]
        found.append([(r[0], trace.processes[r[1]].pid, *r[2:]) for r in named])
    assert found[0] == found[1]
    names = {r[6] for r in found[0]}
    assert names >= ({"bad \ufffd\ufffd name"} if pair == "cpu_bytes" else {"", 'größe <b> "x"', "start/end", "inner"})

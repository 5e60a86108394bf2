"""The comparison of event times with kernel times, on a trace of three kernels."""

import importlib.util
import sqlite3
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "gpu" / "agree.py"
SPEC = importlib.util.spec_from_file_location("agree", SOURCE)
agree = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(agree)

TID = 5 << 24 | 7
PID = 5 << 24


def trace(kernel_ns):
    database = sqlite3.connect(":memory:")
    database.executescript("""
        CREATE TABLE StringIds (id, value);
        CREATE TABLE NVTX_EVENTS (start, end, eventType, text, textId, globalTid);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, end, correlationId, globalTid);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, globalPid);
        INSERT INTO StringIds VALUES (1, 'bench.o_proj');
    """)
    database.execute("INSERT INTO NVTX_EVENTS VALUES (0, 100, 59, NULL, 1, ?)", (TID,))
    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (10, 20, 1, ?)", (TID,))
    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (200, 210, 2, ?)", (TID,))
    for correlation, process in ((1, PID), (1, PID), (2, PID), (1, 9 << 24)):
        database.execute(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, ?, ?, ?)",
            (1000 + kernel_ns, correlation, process),
        )
    return database


@pytest.mark.parametrize(
    ("event_ns", "kernel_ns", "agrees"),
    [(12_000, 10_000, True), (12_400, 10_000, False), (206_000, 200_000, True), (207_000, 200_000, False)],
)
def test_three_percent_and_two_microseconds_a_kernel(event_ns, kernel_ns, agrees):
    found = {
        "options": {"calls": 2},
        "results": [
            {"range": "bench.o_proj", "time_ns": {"mean": event_ns}},
            {"range": "bench.other", "time_ns": {"mean": 1}},
            {"range": "bench.o_proj", "time_ns": None},
        ],
    }
    (row,) = agree.compare(found, trace(kernel_ns))
    assert (row.kernels, row.kernel_ns) == (1, kernel_ns)
    assert row.agrees is agrees

"""A report as if its graphs had been captured before the recording: no capture, and no ranges in it."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

CALLS = "SELECT id FROM StringIds WHERE value LIKE 'cudaStreamBeginCapture%' OR value LIKE 'cudaStreamEndCapture%'"
OF_CALLS = f"CUPTI_ACTIVITY_KIND_RUNTIME WHERE nameId IN ({CALLS})"


def stripped(source: Path, target: Path) -> Path:
    """Copy a report without the calls that begin and end captures and the ranges between them, its nodes earlier."""
    shutil.copy(source, target)
    with sqlite3.connect(target) as db:
        spans = db.execute(f"SELECT globalTid, min(start), max(end) FROM {OF_CALLS} GROUP BY 1").fetchall()
        for thread, start, end in spans:
            db.execute("DELETE FROM NVTX_EVENTS WHERE globalTid = ? AND start >= ? AND end <= ?", (thread, start, end))
        db.execute(f"DELETE FROM {OF_CALLS}")
        db.execute("UPDATE CUDA_GRAPH_EVENTS SET start = start - 10000000000")
    db.close()
    return target

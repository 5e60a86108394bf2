"""Compare the time that a benchmark took by CUDA events with the kernel time that nsys recorded for it.

    python tests/gpu/agree.py gemm.json gemm.sqlite

The JSON is what a workload wrote under nsys with `--json`. For each row: the kernels launched inside its range,
their durations added, divided by calls and samples; of several ranks, the one with the most, since the slowest
rank's time is what a row states. Events see what kernels do not (the gaps between them), so the allowed difference
is 3 % and 2 µs a kernel; where kernels take more than 100 µs each, it is 3 %. Prints a row each; exit code 1 if one
disagrees.
"""

import json
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SHARE = 0.03
NS_PER_KERNEL = 2_000
LONG_NS = 100_000

# Process (the global id without its thread) and correlation id tell whose launch a kernel is. A graph launch
# has one correlation id for all its kernels.
IN_RANGES = """
    SELECT coalesce(e.text, s.value) AS name, count(DISTINCT e.rowid) AS instances,
        count(k.start) AS kernels, sum(k.end - k.start) AS kernel_ns
    FROM NVTX_EVENTS e LEFT JOIN StringIds s ON e.textId = s.id
    JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.globalTid = e.globalTid AND r.start >= e.start AND r.start < e.end
    JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.correlationId = r.correlationId
        AND k.globalPid & -16777216 = r.globalTid & -16777216
    WHERE e.eventType = 59 GROUP BY 1, e.globalTid & -16777216 ORDER BY 4
"""


class Agreement(NamedTuple):
    """One row of both."""

    name: str
    kernels: float
    event_ns: float
    kernel_ns: float
    allowed_ns: float

    @property
    def agrees(self) -> bool:
        """Whether the two differ by no more than is allowed."""
        return abs(self.event_ns - self.kernel_ns) <= self.allowed_ns


def compare(found: dict[str, Any], database: sqlite3.Connection) -> Iterator[Agreement]:
    """Yield a row for each result whose range has kernels in the trace; times and kernels of one call."""
    traced = {row[0]: row[1:] for row in database.execute(IN_RANGES)}
    for row in found["results"]:
        if row["time_ns"] is None or row.get("range") not in traced:
            continue
        instances, kernels, kernel_ns = traced[row["range"]]
        one = instances * row.get("calls", found["options"].get("calls"))
        # The mean: of the events, too, since the kernels' is one.
        event = row["time_ns"]["mean"]
        short = kernel_ns / kernels <= LONG_NS
        allowed = SHARE * event + (NS_PER_KERNEL * kernels / one if short else 0)
        yield Agreement(row["range"], kernels / one, event, kernel_ns / one, allowed)


def main(results: Path, trace: Path) -> int:
    """Print the comparison."""
    database = sqlite3.connect(f"file:{trace.as_posix()}?mode=ro", uri=True)
    rows = list(compare(json.loads(results.read_text(encoding="utf-8")), database))
    database.close()
    for row in rows:
        print(
            f"{'ok ' if row.agrees else 'NOT'} {row.name:40} {row.kernels:6.1f} kernels"
            f" {row.event_ns:12,.0f} ns by events {row.kernel_ns:12,.0f} ns of kernels"
        )
    if not rows:
        print("no range of the results has kernels in the trace")
    return int(not rows or not all(row.agrees for row in rows))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:3])))

"""Projected spans and inclusive figures of ranges against the rows of the report, range by range."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import traces
from tracekit import MARLIN, TraceBuilder, classify_known

from k25trace import Attribution, Trace, nesting, open_trace
from k25trace.errors import CannotAnswer

ASKED = st.sampled_from([None, None, ["default"], ["NCCL", "default"], ["engine", "default"]])


class ByHand:
    """Launches of a report, and the owning push/pop ranges, as the oracle reads them."""

    def __init__(self, path: Path, domains: list[str] | None) -> None:
        self.report = oracles._Report(path, classify_known)
        oracles._identify(self.report)
        chosen = oracles._chosen(self.report.ranges, domains)
        oracles._assign_paths(self.report, chosen)
        self.ranges = [r for r in chosen if not r.startend]

    def inside(self, r: oracles.Range) -> list[oracles.Operation]:
        """Return the operations whose launch call began on the range's thread while it was open."""
        calls = ((o, o.call) for o in self.report.operations)
        return [o for o, call in calls if call and call.thread == r.thread and r.open_at(call.start)]

    def spans(self) -> list[tuple]:
        out = []
        for r in self.ranges:
            by_gpu: dict[str, list[oracles.Operation]] = defaultdict(list)
            for o in self.inside(r):
                by_gpu[o.gpu].append(o)
            for gpu, mine in by_gpu.items():
                first, last = min(o.start for o in mine), max(o.end for o in mine)
                kernel_ns = sum(o.end - o.start for o in mine if o.kind == "kernel")
                out.append((r.thread, r.name, r.start, gpu, first, last, len(mine), kernel_ns))
        return sorted(out)

    def inclusive(self) -> dict[tuple[int, str], tuple[int, int]]:
        inside: dict[tuple[int, str], set[oracles.Operation]] = defaultdict(set)
        for r in self.ranges:
            inside[r.thread, r.name] |= {o for o in self.inside(r) if o.kind == "kernel"}
        return {key: (len(mine), sum(o.end - o.start for o in mine)) for key, mine in inside.items() if mine}


def spans(attribution: Attribution) -> list[tuple]:
    trace = attribution.trace
    frame = attribution.projected_spans()
    assert frame.select("row", "gpu").is_duplicated().sum() == 0
    assert frame.equals(frame.sort("row", "gpu"))
    columns = ("thread", "name", "start_ns", "gpu", "first_ns", "last_ns", "operation_count", "kernel_ns")
    return sorted(
        (trace.threads[thread], trace.names[name], start, trace.gpus[gpu].key, *rest)
        for thread, name, start, gpu, *rest in frame.select(columns).iter_rows()
    )


def inclusive(attribution: Attribution) -> dict[tuple[int, str], tuple[int, int]]:
    trace = attribution.trace
    rows = attribution.inclusive().rows()
    assert len({row[:3] for row in rows}) == len(rows)
    return {(trace.threads[thread], trace.names[name]): (count, ns) for _, thread, name, count, ns in rows}


def opened(trace: TraceBuilder, folder: Path) -> tuple[Path, Trace]:
    path = trace.write(folder / "trace.sqlite")
    return path, open_trace(path)


@pytest.mark.parametrize("levels", [1, 64])
@given(trace=traces(), domains=ASKED)
def test_ranges_hold_what_was_launched_while_they_were_open(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, levels: int, trace: TraceBuilder, domains: list[str] | None
) -> None:
    monkeypatch.setattr(nesting, "DEEPEST_SCAN", levels)
    path, report = opened(trace, tmp_path)
    attribution = Attribution(report, domains)
    try:
        found = spans(attribution)
    except CannotAnswer:
        assert domains is not None
        assert not set(domains) <= oracles.domain_names(path)
        return
    by_hand = ByHand(path, domains)
    assert found == by_hand.spans()
    assert inclusive(attribution) == by_hand.inclusive()


@given(depth=st.integers(1, 70), names=st.integers(1, 3))
def test_a_name_inside_itself_counts_a_kernel_once(tmp_path: Path, depth: int, names: int) -> None:
    t = TraceBuilder()
    for i in range(depth):
        t.push_pop(f"r{i % names}", i, 1000 - i)
    t.kernel(MARLIN, 500, 7, launch=200)
    t.kernel(MARLIN, 520, 5, launch=0)
    _, report = opened(t, tmp_path)
    attribution = Attribution(report)
    assert attribution.inclusive()["kernel_count"].to_list() == [2, 1, 1][: min(depth, names)]
    assert attribution.projected_spans()["kernel_ns"].to_list() == [12, *[7] * (depth - 1)]


def test_crossing_ranges_each_hold_their_launches_once(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.domain("engine", 1)
    t.push_pop("a", 0, 20)
    t.push_pop("b", 10, 30, domain=1)
    for launch in (5, 15, 25):
        t.kernel(MARLIN, 100 + launch, 2, launch=launch)
    _, report = opened(t, tmp_path)
    found = Attribution(report).projected_spans()
    assert found.select("first_ns", "last_ns", "operation_count", "kernel_ns").rows() == [
        (105, 117, 2, 4),
        (115, 127, 2, 4),
    ]


def test_without_ranges_there_are_no_spans(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.kernel(MARLIN, 10, 5, launch=0)
    t.memcpy(20, 5, launch=2)
    _, report = opened(t, tmp_path)
    attribution = Attribution(report)
    assert attribution.projected_spans().height == attribution.inclusive().height == 0

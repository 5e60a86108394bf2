"""Attribution equals what `nsys stats` says of the same real traces, and beyond that what is found by hand.

Where the definitions differ (see nsys_says.py), the comparison is made on what both define: attribution by
the launch alone, in all domains, NCCL's included. test_brute_force.py checks by hand that on these traces the
other differences (calls that straddle the end of a range, nested ranges of one name) do not occur.
"""

from collections import Counter
from typing import NamedTuple

import pytest
from nsys_says import LOSSY, WHOLE, Rows, path, pid, table, thread

from k25trace.attribution import Attribution
from k25trace.trace import open_trace


class Instance(NamedTuple):
    process: int
    thread: int
    name: str
    start: int
    length: int


class ByLaunch:
    """Range instances of every domain, and the operations launched inside each, as the product has them."""

    def __init__(self, trace: str):
        report = open_trace(path(trace))
        domains = sorted({report.names[d] for d in report.ranges["domain"].unique()})
        self.attribution = Attribution(report, domains)
        columns = ["process", "thread", "name", "domain", "start_ns", "end_ns"]
        self.instances = []
        for process, tid, name, domain, start, end in self.attribution.push_pop.select(columns).iter_rows():
            named = report.names[domain]
            full = report.names[name] if named == "default" else f"{named}:{report.names[name]}"
            owner = report.processes[process].pid, thread(report.threads[tid])
            self.instances.append(Instance(*owner, full, start, end - start))

    def inside(self, operations):
        """Pairs of an instance and the (start, end) of an operation launched in it."""
        for start, end, stack in operations.select("start_ns", "end_ns", "stack").iter_rows():
            for member in self.attribution.nesting.ancestors(stack):
                yield self.instances[member], start, end


@pytest.fixture(scope="module", params=[*WHOLE, LOSSY])
def both(request):
    return request.param, ByLaunch(request.param)


def test_inclusive_kernel_time_and_counts_equal_nvtx_kern_sum(both):
    trace, ours = both
    count, total = Counter(), Counter()
    for instance, start, end in ours.inside(ours.attribution.kernels):
        count[instance[:3]] += 1
        total[instance[:3]] += end - start
    said_count, said_total = Counter(), Counter()
    for r in table(trace, "nvtx_kern_sum"):
        if r["NVTX Range"]:
            key = int(r["PID"]), int(r["TID"]), r["NVTX Range"]
            said_count[key] += int(r["Kern Inst"])
            said_total[key] += int(r["Total Time (ns)"])
    assert count == said_count
    assert total == said_total


def test_projected_spans_equal_nvtx_gpu_proj_trace(both):
    trace, ours = both
    spans = {}
    for operations in (ours.attribution.kernels, ours.attribution.copies):
        for instance, start, end in ours.inside(operations):
            first, last = spans.get(instance, (start, end))
            spans[instance] = min(first, start), max(last, end)
    said = {}
    for r in table(trace, "nvtx_gpu_proj_trace"):
        if r["RangeId"]:
            where = (
                int(r["PID"]),
                int(r["TID"]),
                r["Name"],
                int(r["Orig Start (ns)"]),
                int(r["Orig Duration (ns)"]),
            )
            start = int(r["Projected Start (ns)"])
            assert where not in said
            said[where] = start, start + int(r["Projected Duration (ns)"])
    assert {tuple(i): span for i, span in spans.items()} == said


def test_operations_inside_each_instance_equal_those_counted_by_hand(both):
    """nsys' own count is of launch calls; operations, a replay's kernels each, are counted by hand."""
    trace, ours = both
    rows = Rows(trace)
    by_hand = Counter(
        Instance(pid(r.tid), thread(r.tid), r.name, r.start, r.end - r.start)
        for op in rows.operations
        for r in rows.around(op)
    )
    assert by_hand
    found = Counter()
    for operations in (ours.attribution.kernels, ours.attribution.copies):
        found.update(instance for instance, _, _ in ours.inside(operations))
    assert found == by_hand


@pytest.mark.parametrize("trace", [*WHOLE, LOSSY])
def test_every_kernel_has_the_path_found_by_hand(trace):
    """Launch path, then capture path; without a range open at a node's capture, the launch path alone."""
    rows = Rows(trace)
    by_hand = Counter()
    for kernel in rows.kernels:
        ranges = rows.open_at(*kernel.call[:2])
        captured = rows.open_at(*rows.capture_moment(kernel)) if kernel.graph_node is not None else []
        names = tuple(r.name.removeprefix("k25:") for r in [*ranges, *captured])
        by_hand[pid(kernel.call[0]), kernel.start, names or None, bool(captured)] += 1
    report = open_trace(path(trace))
    attribution = Attribution(report)
    found = Counter()
    columns = ["process", "start_ns", "path", "via_capture"]
    for process, start, number, via_capture in attribution.kernels.select(columns).iter_rows():
        owner = attribution.owner(number)
        found[report.processes[process].pid, start, owner and owner.names, via_capture] += 1
    assert found == by_hand

"""Attribution equals what `nsys stats` says of the same real traces, and beyond that what is found by hand.

Where the definitions differ (see nsys_says.py), the comparison is made on what both define: attribution by
the launch alone, in all domains, NCCL's included. test_brute_force.py checks by hand that on these traces the
other differences (calls that straddle the end of a range, nested ranges of one name) do not occur.
"""

from collections import Counter
from typing import NamedTuple

import pytest
from nsys_says import LOSSY, WHOLE, Rows, path, pid, table, thread

from k25trace.attribution import VIAS, Attribution
from k25trace.trace import open_trace


class Instance(NamedTuple):
    process: int
    thread: int
    name: str
    start: int
    length: int


class ByLaunch:
    """What the product says by launch alone, of the ranges of every domain, under the names that nsys gives them."""

    def __init__(self, trace: str):
        self.report = report = open_trace(path(trace))
        self.attribution = Attribution(report, sorted({report.names[d] for d in report.ranges["domain"].unique()}))

    def full_name(self, name: int, domain: int) -> str:
        names = self.report.names
        return names[name] if names[domain] == "default" else f"{names[domain]}:{names[name]}"

    def thread(self, process: int, tid: int) -> tuple[int, int]:
        return self.report.processes[process].pid, thread(self.report.threads[tid])

    def inclusive(self):
        """Kernel count and time of each (pid, tid, range name)."""
        columns = ["process", "thread", "name", "domain"]
        domains = {row[:3]: row[3] for row in self.attribution.push_pop.select(columns).unique().iter_rows()}
        # Otherwise a name would be two for nsys, and one for us.
        assert len(domains) == self.attribution.push_pop.select(columns).n_unique()
        for process, tid, name, count, ns in self.attribution.inclusive().iter_rows():
            full = self.full_name(name, domains[process, tid, name])
            yield (*self.thread(process, tid), full), count, ns

    def spans(self):
        """Instance, first start, last end and number of operations of each projected span; GPUs together."""
        by_instance = {}
        columns = ["process", "thread", "name", "domain", "start_ns", "end_ns", "first_ns", "last_ns"]
        spans = self.attribution.projected_spans().select(*columns, "operation_count", "row")
        for process, tid, name, domain, start, end, first, last, count, row in spans.iter_rows():
            instance = Instance(*self.thread(process, tid), self.full_name(name, domain), start, end - start)
            before = by_instance.get(row, (instance, first, last, 0))
            by_instance[row] = (instance, min(first, before[1]), max(last, before[2]), count + before[3])
        return by_instance.values()


@pytest.fixture(scope="module", params=[*WHOLE, LOSSY])
def both(request):
    return request.param, ByLaunch(request.param)


def test_inclusive_kernel_time_and_counts_equal_nvtx_kern_sum(both):
    trace, ours = both
    said_count, said_total = Counter(), Counter()
    for r in table(trace, "nvtx_kern_sum"):
        if r["NVTX Range"]:
            key = int(r["PID"]), int(r["TID"]), r["NVTX Range"]
            said_count[key] += int(r["Kern Inst"])
            said_total[key] += int(r["Total Time (ns)"])
    assert {key: count for key, count, _ in ours.inclusive()} == said_count
    assert {key: ns for key, _, ns in ours.inclusive()} == said_total


def test_projected_spans_equal_nvtx_gpu_proj_trace(both):
    trace, ours = both
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
    assert {tuple(instance): (first, last) for instance, first, last, _ in ours.spans()} == said
    assert len(ours.spans()) == len(said)


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
    for instance, _, _, count in ours.spans():
        found[instance] += count
    assert found == by_hand


def test_kernel_time_inside_each_instance_equals_that_added_up_by_hand(both):
    trace, ours = both
    rows = Rows(trace)
    by_hand = Counter()
    for kernel in rows.kernels:
        for r in rows.around(kernel):
            by_hand[pid(r.tid), thread(r.tid), r.start, r.end] += kernel.end - kernel.start
    found = Counter()
    columns = ["process", "thread", "start_ns", "end_ns", "kernel_ns"]
    for process, tid, start, end, ns in ours.attribution.projected_spans().select(columns).iter_rows():
        found[(*ours.thread(process, tid), start, end)] += ns
    assert +found == by_hand


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
    columns = ["process", "start_ns", "path", "via"]
    for process, start, number, via in attribution.kernels.select(columns).iter_rows():
        owner = attribution.owner(number)
        found[report.processes[process].pid, start, owner and owner.names, VIAS[via] == "capture"] += 1
    assert found == by_hand

"""What several lines of the check list look at, worked out once."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from k25trace.losses import Coverage, Tail, coverage, emptied, partial_replays, tails
from k25trace.nsystables import CAPTURE_TABLE, CONTEXT_TABLE
from k25trace.replays import replays
from k25trace.trace import Trace
from k25trace.trace.source import Col, decode, read
from k25trace.warnings import ReportWarning

_SAME_JOB_SHARE = 0.5
_SAME_JOB_NAMES = 2


@dataclass
class Seen:
    """What several lines look at."""

    trace: Trace

    @cached_property
    def kernels_by_gpu(self) -> dict[int, int]:
        """Kernels of every GPU, none included."""
        counts = dict(self.trace.kernels.group_by("gpu").len().iter_rows())
        return {gpu: counts.get(gpu, 0) for gpu in range(len(self.trace.gpus))}

    @cached_property
    def with_kernels(self) -> set[int]:
        """Processes that have kernels."""
        return set(self.trace.survey["process"].drop_nulls().to_list())

    @cached_property
    def opaque(self) -> int:
        """Graph launches whose kernels the report does not contain."""
        return replays(self.trace).opaque.height

    @cached_property
    def own_ranges(self) -> pl.DataFrame:
        """Ranges of the program: all but NCCL's."""
        return self.trace.ranges.filter(~pl.col("is_nccl"))

    @cached_property
    def launching(self) -> set[int]:
        """Processes that launched kernels or graphs."""
        calls = self.trace.calls("kernel_launch", "graph_launch").filter(~pl.col("failed"))
        return set(calls["process"].drop_nulls().to_list())

    @cached_property
    def silent(self) -> set[int]:
        """Processes that have no kernels, and launched some or have the ranges of those that have kernels."""
        if not self.with_kernels:
            return set()
        names = dict(self.own_ranges.filter("push_pop").group_by("process").agg(pl.col("name").unique()).iter_rows())
        known = {text for process in self.with_kernels for text in names.get(process, [])}
        found = self.launching - self.with_kernels - self._replaying
        for process, own in names.items():
            shared = len(known.intersection(own))
            if process not in self.with_kernels and shared >= max(_SAME_JOB_NAMES, _SAME_JOB_SHARE * len(own)):
                found.add(process)
        return found

    @cached_property
    def silent_pids(self) -> set[int]:
        """Process ids with a CUDA context that are not among the processes of any other row."""
        if not self.with_kernels:
            return set()
        seen = self.with_kernels | self.silent | self._replaying
        return {pid for pid, _ in self.contexts} - {self.trace.processes[process].pid for process in seen}

    @property
    def silent_labels(self) -> str:
        """Both of them, as they are named in messages."""
        pids = [f"process {pid}" for pid in sorted(self.silent_pids)]
        return ", ".join([*([self.labels(self.silent)] if self.silent else []), *pids])

    @cached_property
    def _replaying(self) -> set[int]:
        return set(self.trace.graph_calls["process"].drop_nulls().to_list())

    @cached_property
    def incomplete(self) -> list[ReportWarning]:
        """The warning of API calls that are missing inside ranges."""
        return emptied(self.trace, self._coverage)

    @cached_property
    def tails(self) -> list[Tail]:
        """Processes whose ranges go on after their API calls."""
        return tails(self.trace, self._coverage)

    @cached_property
    def _coverage(self) -> Coverage:
        return coverage(self.trace)

    @cached_property
    def partial_replays(self) -> int:
        """Graph launches with a part of their kernels only."""
        return partial_replays(self.trace)

    @property
    def lost_events(self) -> bool:
        """Whether the report gives away that nsys lost events at large."""
        return bool(self.incomplete or self.tails or self.partial_replays)

    @cached_property
    def cuda_was_traced(self) -> bool | None:
        """Whether nsys was told to trace CUDA; None where the report does not say."""
        frame = read(self.trace.source, CAPTURE_TABLE, [Col("name", "text"), Col("value", "text")])
        told = {decode(value) for name, value in frame.drop_nulls().iter_rows() if decode(name) == "CAPTURE_EVENT_TYPE"}
        return any("cuda" in text.lower() for text in told) if told else None

    @cached_property
    def contexts(self) -> set[tuple[int, int]]:
        """(pid, device ordinal) of every CUDA context."""
        columns = [Col("processId"), Col("deviceId")]
        return set(read(self.trace.source, CONTEXT_TABLE, columns).drop_nulls().iter_rows())

    @cached_property
    def nsys_version(self) -> tuple[int, ...]:
        """Numbers of the version of nsys that exported; empty where the report does not say."""
        return tuple(int(n) for n in re.findall(r"\d+", self.trace.facts.get("EXPORT_PRODUCT_VERSION", "")))

    def label(self, process: int) -> str:
        """Return how a process is named in messages."""
        found = self.trace.processes[process]
        return f"process {found.pid}" if found.rank is None else f"rank {found.rank} (process {found.pid})"

    def labels(self, processes: Iterable[int]) -> str:
        """Return how some processes are named in messages."""
        return ", ".join(sorted(self.label(process) for process in processes))

    def gpu_counts(self, counts: dict[int, int]) -> str:
        """Return counts by GPU as text."""
        return ", ".join(f"{self.trace.gpus[gpu].key}: {count:,}" for gpu, count in sorted(counts.items()))

"""What a Perfetto trace of a report holds: tracks, slices on them, flows from launch to kernel, counters.

Tracks are processes with their threads (NVTX ranges by domain, CUDA calls that launched something), and GPUs with their
streams (kernels and copies) and counters. Every slice is an interval of the report; nothing is cut or merged. Only a
range that was never closed has no end of its own: it ends with the last instant of the report, and says so.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import cast

import polars as pl

from k25trace import accounting
from k25trace.attribution import Attribution
from k25trace.classify import RuleSet
from k25trace.intervals import subtract, union
from k25trace.replays import replays
from k25trace.selection import Bounds, Window, kernel_window
from k25trace.tally import Classes
from k25trace.taxonomy import ALL_CATEGORIES, is_communication
from k25trace.trace import Trace
from k25trace.trace.interning import ID, integers
from k25trace.trace.tables import FAR_FUTURE_NS, LOW_24_BITS

BUSY, EXPOSED = "busy", "exposed communication"

_SLICE: dict[str, pl.DataType | type[pl.DataType]] = {
    "track": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "name": ID,
    "category": pl.UInt8(),
    "path": ID,
    "shape": ID,
    "latency_ns": pl.Int64(),
    "bytes": pl.Int64(),
    "starts_flow": pl.Int64(),
    "ends_flow": pl.Int64(),
    "closed": pl.Boolean(),
}


@dataclass(frozen=True)
class Track:
    """A row of the viewer. ``parent`` is another track's number; ``pid`` and ``tid`` make a process or a thread."""

    number: int
    name: str
    parent: int | None = None
    pid: int | None = None
    tid: int | None = None
    is_counter: bool = False


@dataclass(frozen=True)
class Slice:
    """What one slice is: its name, its category (a kernel's, or ``memcpy``, ``nvtx``, ``launch``, ...), its arguments.

    ``starts_flow`` and ``ends_flow`` are the number of a launch: an arrow goes from one to the other.
    """

    name: str
    category: str
    arguments: dict[str, str | int] = field(default_factory=dict[str, str | int])
    starts_flow: int | None = None
    ends_flow: int | None = None


_Number = int | None
_Row = tuple[int, int, int, int, int, _Number, _Number, _Number, _Number, _Number, _Number, bool | None]
Step = tuple[int, Slice | None]
"""An instant at which a slice begins, or (None) the one begun last and not yet ended ends."""


class Events:
    """The tracks, slices and counters of one report.

    Parameters
    ----------
    trace
        The report.
    rules
        Classification rules.
    bounds
        Only kernels, copies and ranges that touch this window; whole, not cut, but counted inside it. None: all.
    """

    def __init__(self, trace: Trace, rules: RuleSet, bounds: Bounds | None = None) -> None:
        self._trace = trace
        self._attribution = Attribution(trace)
        self._found = replays(trace)
        window = kernel_window(trace, self._found, bounds)
        self._classes = Classes(rules, trace)
        self._first, self._last = (window.start_ns, window.end_ns) if window.cuts else (-FAR_FUTURE_NS, FAR_FUTURE_NS)
        self.tracks: list[Track] = []
        self._shapes: list[str] = []
        self._names: list[str] = []
        self._counters: list[tuple[Track, pl.DataFrame]] = []
        self._gpu_tracks: dict[int, int] = {}
        self._threads: dict[tuple[int, int | None], int] = {}
        # An end before its start is no time that a viewer could show.
        self._slices = pl.concat([self._operations(window), self._ranges()]).filter(
            pl.col("end_ns") >= pl.col("start_ns")
        )
        self.origin_ns = min(0, *(x for x in (self._slices["start_ns"].min(), 0) if isinstance(x, int)))
        """What is taken from the report's clock: Perfetto knows no instant before 0."""

    # ---- tracks

    def _track(self, name: str, **place: int | None) -> int:
        number = len(self.tracks) + 1
        self.tracks.append(Track(number, name, place.get("parent"), place.get("pid"), place.get("tid")))
        return number

    def _numbered(self, frame: pl.DataFrame, keys: list[str], name: Callable[..., int]) -> pl.Series:
        """Return the track of each row, made where there is none for its keys."""
        distinct = frame.select(keys).unique().sort(keys)
        numbers = pl.Series("track", [name(*row) for row in distinct.iter_rows()], dtype=pl.Int64)
        known = distinct.with_columns(numbers)
        return frame.select(keys).join(known, on=keys, how="left", maintain_order="left", nulls_equal=True)["track"]

    # ---- slices

    def _operations(self, window: Window) -> pl.DataFrame:
        whole = self._attribution.kernels.with_columns(pl.col("start_ns").alias("s"), pl.col("end_ns").alias("e"))
        whole = whole.hstack(self._trace.kernel_shapes())
        kernels = window.chosen(whole).with_columns(pl.col("s").alias("start_ns"), pl.col("e").alias("end_ns"))
        copies = self._touching(self._attribution.copies)
        opaque = self._touching(self._found.opaque.filter(pl.col("gpu").is_not_null() & pl.col("bounded")))
        names = self._trace.names
        self._names = [*names, "memcpy", "memset", "graph replay, kernels not recorded"]
        extra = len(names)
        copy = [pl.when("is_set").then(extra + 1).otherwise(extra).alias("name"), "bytes"]
        parts = [
            kernels.with_columns(self._classes.of(kernels["name"])["category"], self._shape_of(kernels)),
            copies.with_columns(*copy, pl.lit(_MEMCPY, pl.UInt8).alias("category")),
            opaque.with_columns(pl.lit(extra + 2).alias("name"), pl.lit(_OPAQUE, pl.UInt8).alias("category")),
        ]
        columns = {**_SLICE, "gpu": ID, "stream": pl.Int64(), "process": ID, "thread": ID, "launch_ns": pl.Int64()}
        every = pl.concat([_filled(part, columns) for part in parts])
        every = every.with_columns((pl.col("start_ns") - pl.col("launch_ns")).alias("latency_ns"))
        every = every.with_columns(self._numbered(every, ["gpu", "stream"], self._stream_track(every)))
        launches, flows = self._launches(every)
        self._counters = self._count(window.chosen(self._attribution.kernels))
        return pl.concat([every.with_columns(flows).select(*_SLICE), launches])

    def _stream_track(self, every: pl.DataFrame) -> Callable[[int, int | None], int]:
        gpus: dict[int, int] = {}
        for gpu in integers(every["gpu"].unique().sort()):
            name = self._trace.gpu_names[gpu]
            gpus[gpu] = self._track(f"GPU {self._trace.gpus[gpu].key}" + (f" ({name})" if name else ""))
        self._gpu_tracks = gpus
        return lambda gpu, stream: self._track(
            "opaque graphs" if stream is None else f"stream {stream}", parent=gpus[gpu]
        )

    def _shape_of(self, kernels: pl.DataFrame) -> pl.Series:
        texts = kernels.select(pl.format("{} of {}", "grid", "block").alias("text"))["text"]
        distinct = texts.drop_nulls().unique(maintain_order=True)
        self._shapes = distinct.to_list()
        known = pl.DataFrame({"text": distinct, "shape": pl.int_range(distinct.len(), dtype=ID, eager=True)})
        return texts.to_frame("text").join(known, on="text", how="left", maintain_order="left")["shape"]

    def _launches(self, operations: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        """Return the calls that launched operations, as slices, and the flow that ends at each operation.

        Of the many kernels of a graph replay the first on each GPU is where the arrow ends.
        """
        place = ["process", "thread", "launch_ns"]
        calls = operations.select(place).drop_nulls("launch_ns").unique().sort(place).with_row_index("flow", offset=1)
        flow = operations.select(*place, "gpu", "start_ns").join(calls, on=place, how="left", maintain_order="left")
        first = flow.select((pl.col("start_ns") == pl.col("start_ns").min().over("flow", "gpu")).alias("f"))["f"]
        # Of several kernels that begin at one instant, one.
        once = flow.select(pl.struct("flow", "gpu", "start_ns").is_first_distinct().alias("f"))["f"]
        ends = flow["flow"].cast(pl.Int64).set(~(first & once), None).alias("ends_flow")
        known = (
            self._trace.launches.select(*place[:2], pl.col("start_ns").alias("launch_ns"), "end_ns", "name")
            .sort("end_ns", "name")
            .unique(place, keep="last", maintain_order=True)
        )
        slices = calls.join(known, on=place, how="left", maintain_order="left").rename({"launch_ns": "start_ns"})
        tracks = self._numbered(slices, ["process", "thread"], self._thread_track("CUDA calls"))
        slices = slices.with_columns(tracks, pl.col("flow").cast(pl.Int64).alias("starts_flow"))
        return _filled(slices.with_columns(pl.lit(_LAUNCH, pl.UInt8).alias("category")), _SLICE), ends

    def _ranges(self) -> pl.DataFrame:
        ranges = self._trace.ranges.filter(pl.col("start_ns").is_not_null())
        ends = pl.when("closed").then("end_ns").otherwise(self._last_instant(ranges)).alias("end_ns")
        touching = self._touching(ranges.with_columns(ends))
        keys = ["process", "thread", "domain", "push_pop"]

        def track(process: int, thread: int, domain: int, push_pop: bool) -> int:
            name = f"NVTX {self._trace.names[domain]}" + ("" if push_pop else " (start/end)")
            return self._thread_track(name)(process, thread)

        found = touching.with_columns(self._numbered(touching, keys, track), pl.lit(_NVTX, pl.UInt8).alias("category"))
        return _filled(found, _SLICE)

    def _last_instant(self, ranges: pl.DataFrame) -> int:
        """Return the last instant that the report knows: no range can begin after it."""
        ends = [
            self._trace.survey["last_ns"].max(),
            self._trace.launches["end_ns"].max(),
            self._attribution.copies["end_ns"].max(),
            ranges.filter("closed")["end_ns"].max(),
            ranges["start_ns"].max(),
        ]
        return max((end for end in ends if isinstance(end, int)), default=0)

    def _thread_track(self, name: str) -> Callable[[int, int | None], int]:
        return lambda process, thread: self._track(name, parent=self._thread(process, thread))

    def _thread(self, process: int, thread: int | None) -> int:
        known = self._threads
        if (process, None) not in known:
            found = self._trace.processes[process]
            rank = "" if found.rank is None else f"rank {found.rank}, "
            known[process, None] = self._track(f"{rank}pid {found.pid}", pid=found.pid)
        if (process, thread) not in known:
            tid = self._trace.threads[thread or 0] & LOW_24_BITS
            pid = self._trace.processes[process].pid
            known[process, thread] = self._track(f"thread {tid}", parent=known[process, None], pid=pid, tid=tid)
        return known[process, thread]

    def _touching(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.filter((pl.col("start_ns") < self._last) & (pl.col("end_ns") >= self._first))

    # ---- counters

    def _count(self, kernels: pl.DataFrame) -> list[tuple[Track, pl.DataFrame]]:
        communicates = [number for number, c in enumerate(ALL_CATEGORIES) if is_communication(c)]
        talking = self._classes.of(kernels["name"])["category"].is_in(communicates)
        busy = union(kernels, ["gpu"])
        exposed = subtract(kernels.filter(talking), kernels.filter(~talking), ["gpu"])
        found: list[tuple[Track, pl.DataFrame]] = []
        for name, intervals in ((BUSY, busy), (EXPOSED, exposed)):
            for gpu, parent in self._gpu_tracks.items():
                mine = intervals.filter(pl.col("gpu") == gpu)
                edges = pl.concat(
                    [
                        mine.select(pl.col("start_ns").alias("at_ns"), pl.lit(1).alias("value")),
                        mine.select(pl.col("end_ns").alias("at_ns"), pl.lit(0).alias("value")),
                    ]
                )
                track = Track(len(self.tracks) + 1, name, parent, is_counter=True)
                self.tracks.append(track)
                found.append((track, edges.sort("at_ns", "value")))
        return found

    def counters(self) -> Iterator[tuple[int, int, int]]:
        """Yield track, instant and value: 1 from where a GPU is busy, or communicates exposed, and 0 from its end."""
        for track, edges in self._counters:
            for at, value in edges.iter_rows():
                yield track.number, at - self.origin_ns, value

    # ---- steps

    def steps(self) -> Iterator[tuple[Track, list[Step]]]:
        """Yield each track with its beginnings and ends, in an order in which they nest.

        Slices that would cross (kernels of one stream that overlap) go to a further track of the same name.
        """
        by_number = {track.number: track for track in self.tracks}
        ordered = self._slices.sort("track", "start_ns", "end_ns", descending=[False, False, True], maintain_order=True)
        further = len(self.tracks)
        for (number,), slices in ordered.partition_by("track", as_dict=True, maintain_order=True).items():
            track = by_number[int(str(number))]
            for place, steps in enumerate(nested(self._told(slices))):
                if place:
                    further += 1
                    yield Track(further, track.name, track.parent, track.pid, track.tid), steps
                else:
                    yield track, steps

    def _told(self, slices: pl.DataFrame) -> Iterator[tuple[int, int, Slice]]:
        rows = cast("list[_Row]", slices.rows())
        for _, start, end, name, category, path, shape, latency, size, starts, ends, closed in rows:
            arguments: dict[str, str | int] = {}
            owner = self._attribution.owner(path) if path is not None else None
            if owner:
                arguments["path"] = " / ".join(owner.names)
            if shape is not None:
                arguments["grid of block"] = self._shapes[shape]
            if latency is not None:
                arguments["launch latency (ns)"] = latency
            if size is not None:
                arguments["bytes"] = size
            if closed is False:
                arguments["closed"] = "false"
            yield (
                start - self.origin_ns,
                end - self.origin_ns,
                Slice(self._names[name] or "(unnamed)", _CATEGORIES[category], arguments, starts, ends),
            )


_CATEGORIES = (*ALL_CATEGORIES, accounting.MEMCPY, accounting.OPAQUE, "launch", "nvtx")
_MEMCPY, _OPAQUE, _LAUNCH, _NVTX = range(len(ALL_CATEGORIES), len(_CATEGORIES))


def nested(slices: Iterator[tuple[int, int, Slice]]) -> list[list[Step]]:
    """Return beginnings and ends on as few tracks as it takes for slices to nest.

    Parameters
    ----------
    slices
        start, end, what; ordered by start, longer first.
    """
    lanes: list[tuple[list[Step], list[int]]] = []
    for start, end, what in slices:
        for steps, open_until in lanes:
            while open_until and open_until[-1] <= start:
                steps.append((open_until.pop(), None))
            if not open_until or open_until[-1] >= end:
                break
        else:
            steps, open_until = list[Step](), list[int]()
            lanes.append((steps, open_until))
        steps.append((start, what))
        open_until.append(end)
    for steps, open_until in lanes:
        steps.extend((end, None) for end in reversed(open_until))
    return [steps for steps, _ in lanes]


def _filled(frame: pl.DataFrame, columns: dict[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame:
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in columns.items()
    )

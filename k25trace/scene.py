"""What a timeline shows: lanes of GPU operations and ranges, taken from the frames that the figures are made of.

Kernels, their categories, their paths and the window come from the functions that `k25trace.analysis` calls, so that
the bars of a GPU's streams add up to its kernel time. Draws nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import polars as pl

from k25trace import accounting
from k25trace.attribution import VIAS, Attribution
from k25trace.classify import RuleSet
from k25trace.levels import single_bars
from k25trace.nesting import NO_STACK
from k25trace.palette import PARTS, PROJECTED, RANGE
from k25trace.replays import replays
from k25trace.selection import Bounds, Window, kernel_window
from k25trace.tally import Classes
from k25trace.taxonomy import ALL_CATEGORIES, is_communication
from k25trace.trace import Trace
from k25trace.trace.interning import ID, Interner, integers

STEPS, HOST, ON_GPU, COMMUNICATION, WAITS, STREAM, COPIES, OPAQUE, GAPS = range(9)
"""Kinds of lanes, in the order in which they lie below one another on each GPU."""

KIND_NAMES = (
    "steps", "host ranges", "ranges on GPU", "communication", "waits", "stream", "copies", "opaque graphs", "gaps",
)  # fmt: skip

MOST_DEPTH = 6
"""Levels of nested ranges that have a lane; deeper ones are counted and not drawn."""

MOST_THREADS = 2
MOST_STREAMS = 8
_OTHERS = -1

_COPY_KINDS = {1: "host to device", 2: "device to host", 8: "device to device", 10: "peer to peer"}

MARK_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "gpu": pl.String(),
    "kind": pl.UInt8(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "part": pl.UInt8(),
    "text": pl.String(),
    "note": pl.String(),
}
"""What others have found out and is drawn on a lane of its own: steps, waits, gaps."""

_ITEM: dict[str, pl.DataType | type[pl.DataType]] = {
    "report": pl.UInt16(),
    "gpu": pl.UInt32(),
    "kind": pl.UInt8(),
    "who": pl.Int64(),
    "row": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
    "part": pl.UInt8(),
    "text": ID,
    "path": ID,
    "shape": ID,
    "process": ID,
    "latency_ns": pl.Int64(),
    "bytes": pl.Int64(),
    "kernel_count": pl.Int64(),
    "kernel_ns": pl.Int64(),
}
_PART = {name: number for number, name in enumerate(PARTS)}


@dataclass(frozen=True)
class Scene:
    """The lanes of a timeline and what lies on them.

    Attributes
    ----------
    lanes
        lane UInt32 · gpu, kind (of `KIND_NAMES`), label String; from top to bottom.
    items
        The intervals: report, gpu, kind, who, row, start_ns, end_ns (in the drawing's clock, inside the window) ·
        part UInt8 (index into `k25trace.palette.PARTS`) · text, path, shape UInt32 (indices) · process ·
        latency_ns, bytes, kernel_count, kernel_ns Int64, null where they have no meaning.
    bars
        One bar an interval and lane (`k25trace.levels.single_bars`).
    texts, paths, shapes
        What the indices of ``items`` stand for; the first of paths and shapes means none.
    shifts
        By report: what was taken from the report's clock to get the drawing's. Zero for a single report.
    start_ns, end_ns
        The window in the drawing's clock.
    notes
        What is not drawn, and why.
    """

    lanes: pl.DataFrame
    items: pl.DataFrame
    bars: pl.DataFrame
    texts: list[str]
    paths: list[str]
    shapes: list[str]
    ranks: dict[str, list[int]]
    shifts: dict[int, int]
    start_ns: int
    end_ns: int
    notes: list[str]

    @cached_property
    def parts(self) -> frozenset[int]:
        """The parts that occur."""
        return frozenset(integers(self.items["part"].unique()))


def scene(
    traces: Sequence[Trace | Attribution],
    rules: RuleSet,
    *,
    bounds: Bounds | None = None,
    gpus: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    marks: pl.DataFrame | None = None,
) -> Scene:
    """Return what there is to draw of some reports.

    Parameters
    ----------
    traces
        Opened reports, or the attributions of their kernels where these are made already.
    bounds
        The window; None: from the first kernel to the last, per report.
    gpus
        Keys of the GPUs that are drawn; None: all.
    domains
        NVTX domains whose ranges own kernels; None: all but NCCL's. Attributions have theirs.
    marks
        Steps, waits and gaps (`MARK_SCHEMA`), in the clocks of their reports; None: none.
    """
    words = _Words()
    items: list[pl.DataFrame] = []
    labels: list[pl.DataFrame] = []
    shifts: dict[int, int] = {}
    notes: list[str] = []
    ranks: dict[str, list[int]] = {}
    ends: list[int] = []
    starts: list[int] = []
    for given in traces:
        part = _Part(given if isinstance(given, Attribution) else Attribution(given, domains), rules, bounds, words)
        trace = part.trace
        shift = part.window.start_ns if len(traces) > 1 else 0
        shifts[trace.report] = shift
        wanted = [i for i, gpu in enumerate(trace.gpus) if gpus is None or gpu.key in gpus]
        found = part.items(marks).filter(pl.col("gpu").is_in(wanted))
        items.append(found.with_columns(pl.col("start_ns", "end_ns") - shift))
        labels.append(part.lanes(found))
        notes += part.notes
        ranks |= part.ranks()
        starts.append(part.window.start_ns - shift)
        ends.append(part.window.end_ns - shift)
    every = pl.concat(items)
    lanes = pl.concat(labels).with_row_index("lane")
    keys = ["report", "gpu", "kind", "who", "row"]
    numbered = every.with_row_index("item").join(
        lanes.rename({"gpu": "key", "gpu_index": "gpu", "kind": "name", "kind_index": "kind"}).select("lane", *keys),
        on=keys,
        how="left",
        maintain_order="left",
    )
    numbered = _and_communication(numbered, lanes)
    return Scene(
        lanes.select("lane", "gpu", "kind", "label"),
        every,
        single_bars(numbered),
        words.texts.values,
        words.paths.values,
        words.shapes.values,
        ranks,
        shifts,
        min(starts),
        max(ends),
        notes,
    )


def _and_communication(numbered: pl.DataFrame, lanes: pl.DataFrame) -> pl.DataFrame:
    """Add the communication kernels once more, on the lane of their own that their GPU has."""
    own = lanes.filter(pl.col("kind_index") == COMMUNICATION).select("report", pl.col("gpu_index").alias("gpu"), "lane")
    parts = [_PART[c] for c in ALL_CATEGORIES if is_communication(c)]
    again = numbered.filter((pl.col("kind") == STREAM) & pl.col("part").is_in(parts)).drop("lane")
    again = again.join(own, on=["report", "gpu"], how="inner", maintain_order="left")
    return pl.concat([numbered, again.select(numbered.columns)])


class _Words:
    """The texts of a scene, each once."""

    def __init__(self) -> None:
        self.texts, self.paths, self.shapes = Interner[str](), Interner[str](), Interner[str]()
        self.paths.id("")
        self.shapes.id("")


class _Part:
    """One report's share of a scene."""

    def __init__(
        self,
        attribution: Attribution,
        rules: RuleSet,
        bounds: Bounds | None,
        words: "_Words",
    ) -> None:
        self.attribution = attribution
        self.trace = trace = attribution.trace
        self.found = replays(trace)
        self.window: Window = kernel_window(trace, self.found, bounds)
        self.classes = Classes(rules, trace)
        self.notes: list[str] = []
        self._texts, self._paths, self._shapes = words.texts, words.paths, words.shapes

    def ranks(self) -> dict[str, list[int]]:
        """Ranks of the processes that used each GPU."""
        processes = self.trace.processes
        found: dict[str, list[int]] = {}
        for process, _, gpu in self.trace.slots.iter_rows():
            rank = None if process is None else processes[int(process)].rank
            if rank is not None:
                found.setdefault(self.trace.gpus[int(gpu)].key, []).append(rank)
        return found

    def items(self, marks: pl.DataFrame | None) -> pl.DataFrame:
        """Return the intervals of every lane but the communication one, which repeats kernels."""
        frames = [self._kernels(), self._copies(), self._opaque(), self._host_ranges(), self._projected()]
        if marks is not None:
            frames.append(self._marks(marks))
        return pl.concat([_as_items(frame, self.trace.report) for frame in frames])

    def _marks(self, marks: pl.DataFrame) -> pl.DataFrame:
        keys = pl.DataFrame({"key": [gpu.key for gpu in self.trace.gpus]}).with_row_index("number")
        mine = self._inside(marks.join(keys, left_on="gpu", right_on="key", how="inner", maintain_order="left"))
        return mine.select(
            pl.col("number").alias("gpu"),
            "kind",
            "start_ns",
            "end_ns",
            "part",
            _mapped(mine["text"], lambda text: self._texts.id(str(text))).alias("text"),
            _mapped(mine["note"], lambda note: self._paths.id(str(note))).alias("path"),
        )

    # ---- operations

    def _kernels(self) -> pl.DataFrame:
        began = self.attribution.kernels.with_columns(pl.col("start_ns").alias("began_ns"))
        kernels = self.window.chosen(began.hstack([self._kernel_shapes()]))
        return kernels.select(
            "gpu",
            pl.lit(STREAM).alias("kind"),
            pl.col("process").cast(pl.Int64).alias("who"),
            self._stream_rows(kernels),
            "start_ns",
            "end_ns",
            self.classes.of(kernels["name"])["category"].alias("part"),
            self._text_of(kernels["name"]).alias("text"),
            self._path_of(kernels["path"]).alias("path"),
            "shape",
            "process",
            (pl.col("began_ns") - pl.col("launch_ns")).alias("latency_ns"),
        )

    def _stream_rows(self, kernels: pl.DataFrame) -> pl.Series:
        """Return the stream of each kernel; of a GPU with very many streams, the less busy ones share a lane."""
        span = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
        busy = kernels.group_by("gpu", "process", "stream").agg(span).sort("gpu", -pl.col("ns"))
        order = busy.with_columns(pl.int_range(pl.len()).over("gpu").alias("place"))
        few = order.filter(pl.col("place") < MOST_STREAMS)
        if few.height < order.height:
            self.notes.append(f"GPUs with more than {MOST_STREAMS} streams: the less busy streams share one row")
        known = few.select("gpu", "process", "stream", pl.col("stream").cast(pl.Int64).alias("row"))
        keys = ["gpu", "process", "stream"]
        joined = kernels.select(keys).join(known, on=keys, how="left", maintain_order="left", nulls_equal=True)
        return joined["row"].fill_null(_OTHERS)

    def _copies(self) -> pl.DataFrame:
        copies = self._inside(self.trace.copies)
        distinct = copies.select("is_set", "kind").unique(maintain_order=True)
        names = [
            self._texts.id("memset" if s else f"memcpy {_COPY_KINDS.get(k, '')}".strip()) for s, k in distinct.rows()
        ]
        named = copies.join(
            distinct.with_columns(pl.Series("text", names, dtype=ID)),
            on=["is_set", "kind"],
            how="left",
            maintain_order="left",
            nulls_equal=True,
        )
        part = pl.when("is_set").then(_PART[accounting.MEMSET]).otherwise(_PART[accounting.MEMCPY])
        return named.select(
            "gpu", pl.lit(COPIES).alias("kind"), "start_ns", "end_ns", part.alias("part"), "text", "process", "bytes"
        )

    def _opaque(self) -> pl.DataFrame:
        opaque = self._inside(self.found.opaque.filter(pl.col("gpu").is_not_null()))
        text = self._texts.id("graph replay whose kernels were not recorded")
        return opaque.select(
            "gpu",
            pl.lit(OPAQUE).alias("kind"),
            "start_ns",
            "end_ns",
            pl.lit(_PART[accounting.OPAQUE]).alias("part"),
            pl.lit(text, ID).alias("text"),
        )

    # ---- ranges

    def _host_ranges(self) -> pl.DataFrame:
        spans = self.attribution.projected_spans()
        depths = self.attribution.nesting.nodes.group_by("range").agg(pl.col("depth").min())
        rows = self.attribution.push_pop["row"].gather(depths["range"])
        ranked = spans.join(depths.select(rows.alias("row"), "depth"), on="row", how="left", maintain_order="left")
        busiest = (
            ranked.group_by("gpu", "thread")
            .agg(pl.col("kernel_ns").filter(pl.col("depth") == 1).sum())
            .sort("gpu", "kernel_ns", "thread", descending=[False, True, False])
            .with_columns(pl.int_range(pl.len()).over("gpu").alias("place"))
        )
        shown = busiest.filter(pl.col("place") < MOST_THREADS)
        if shown.height < busiest.height:
            self.notes.append(f"host ranges of more than {MOST_THREADS} threads a GPU: the busiest threads are drawn")
        ranked = ranked.join(shown.select("gpu", "thread"), on=["gpu", "thread"], how="semi")
        self._note_depth(ranked["depth"])
        inside = self._inside(ranked.filter(pl.col("depth") <= MOST_DEPTH))
        return inside.select(
            "gpu",
            pl.lit(HOST).alias("kind"),
            pl.col("thread").cast(pl.Int64).alias("who"),
            pl.col("depth").cast(pl.Int64).alias("row"),
            "start_ns",
            "end_ns",
            pl.lit(_PART[RANGE]).alias("part"),
            self._text_of(inside["name"]).alias("text"),
            "process",
            pl.col("operation_count").alias("kernel_count"),
            "kernel_ns",
        )

    def _projected(self) -> pl.DataFrame:
        """Return the spans of ranges on the GPU, capture-time ranges included: one span an instance and replay."""
        kernels = self.window.chosen(self.attribution.kernels)
        by_node = pl.col("via") != VIAS.index("launch")
        replay = pl.when(by_node).then("correlation").otherwise(pl.lit(None, pl.Int64)).alias("replay")
        groups = kernels.group_by("gpu", "process", "stack", "path", replay).agg(
            pl.col("start_ns").min(),
            pl.col("end_ns").max(),
            pl.len().cast(pl.Int64).alias("kernel_count"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("kernel_ns"),
        )
        prefixes, lengths = self._prefixes(groups["path"])
        depth = self.attribution.nesting.nodes["depth"]
        groups = groups.join(lengths, on="path", how="left", maintain_order="left").with_columns(
            _at(depth, groups["stack"]).fill_null(0).alias("launch_depth"), pl.col("stack").cast(pl.Int64).alias("at")
        )
        self._note_depth(groups["length"])
        deepest = groups["launch_depth"].max()
        parents = self.attribution.nesting.nodes["parent"]
        found: list[pl.DataFrame] = []
        for level in range(deepest if isinstance(deepest, int) else 0, MOST_DEPTH, -1):
            groups = _climbed(groups, parents, level)
        for level in range(MOST_DEPTH, 0, -1):
            groups = _climbed(groups, parents, level)
            mine = groups.filter(pl.col("length") >= level)
            captured = pl.col("launch_depth") < level
            spans = (
                mine.join(prefixes.filter(pl.col("level") == level), on="path", how="left", maintain_order="left")
                .with_columns(pl.when(captured).then("replay").otherwise(pl.lit(None, pl.Int64)).alias("replay"))
                .group_by("gpu", "process", "at", "replay", "prefix", "text")
                .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col("kernel_count", "kernel_ns").sum())
            )
            found.append(spans.with_columns(pl.lit(level, pl.Int64).alias("row")))
        together = pl.concat(found).sort("gpu", "row", "start_ns", "end_ns", "prefix", "process", "at", "replay")
        return together.select(
            "gpu",
            pl.lit(ON_GPU).alias("kind"),
            "row",
            "start_ns",
            "end_ns",
            pl.lit(_PART[PROJECTED]).alias("part"),
            "text",
            "process",
            "kernel_count",
            "kernel_ns",
        )

    def _prefixes(self, paths: pl.Series) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return path, level, prefix, text (of each level of each path), and path, length."""
        known = Interner[tuple[str, ...]]()
        rows: list[tuple[int, int, int, int]] = []
        lengths: list[tuple[int, int]] = []
        for path in paths.unique().sort().to_list():
            owner = self.attribution.owner(path)
            names = owner.names if owner else ()
            lengths.append((path, len(names)))
            rows += [
                (path, level, known.id(names[:level]), self._texts.id(names[level - 1]))
                for level in range(1, min(len(names), MOST_DEPTH) + 1)
            ]
        schema = {"path": ID, "level": pl.Int64, "prefix": pl.Int64, "text": ID}
        return (
            pl.DataFrame(rows, schema=schema, orient="row"),
            pl.DataFrame(lengths, schema={"path": ID, "length": pl.Int64}, orient="row"),
        )

    def _note_depth(self, depths: pl.Series) -> None:
        deeper = f"ranges nested deeper than {MOST_DEPTH} are not drawn"
        if depths.len() and (depths > MOST_DEPTH).any() and deeper not in self.notes:
            self.notes.append(deeper)

    # ---- texts

    def _text_of(self, names: pl.Series) -> pl.Series:
        return _mapped(names, lambda name: self._texts.id(self.trace.names[int(name)]))

    def _path_of(self, paths: pl.Series) -> pl.Series:
        def text(path: int) -> int:
            owner = self.attribution.owner(path)
            return self._paths.id(" / ".join(owner.names)) if owner else 0

        return _mapped(paths, text)

    def _kernel_shapes(self) -> pl.Series:
        """Return the shape of each kernel, aligned with the trace's."""
        shapes = self.trace.kernel_shapes()
        distinct = shapes.drop_nulls("grid").unique(maintain_order=True)
        ids = [self._shapes.id(f"grid {grid}, block {block}") for grid, block in distinct.iter_rows()]
        distinct = distinct.with_columns(pl.Series("shape", ids, dtype=ID))
        found = shapes.join(distinct, on=["grid", "block"], how="left", nulls_equal=True, maintain_order="left")
        return found["shape"].fill_null(0)

    def _inside(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return what of an interval frame is in the window, cut at its edges."""
        first, last = self.window.start_ns, self.window.end_ns
        touching = (pl.col("start_ns") < last) & (pl.col("end_ns") > first)
        return frame.filter(touching).with_columns(pl.col("start_ns", "end_ns").clip(first, last))

    # ---- lanes

    def lanes(self, items: pl.DataFrame) -> pl.DataFrame:
        """Return the lanes of some items: report, gpu (key), gpu_index, kind, kind_index, who, row, label."""
        keys = ["gpu", "kind", "who", "row"]
        used = items.select(keys).unique()
        parts = [_PART[c] for c in ALL_CATEGORIES if is_communication(c)]
        talking = items.filter((pl.col("kind") == STREAM) & pl.col("part").is_in(parts))["gpu"].unique()
        own = pl.DataFrame({"gpu": talking}).select(
            "gpu", *(pl.lit(v).cast(_ITEM[k]).alias(k) for k, v in (("kind", COMMUNICATION), ("who", 0), ("row", 0)))
        )
        ordered = pl.concat([used, own]).sort(keys)
        shared = used.filter(pl.col("kind") == STREAM).group_by("gpu").agg(pl.col("who").n_unique())
        several = set(shared.filter(pl.col("who") > 1)["gpu"].to_list())
        rows = list(self._labelled(ordered, several))
        schema = {
            "report": _ITEM["report"],
            "gpu": pl.String,
            "gpu_index": _ITEM["gpu"],
            "kind": pl.String,
            "kind_index": _ITEM["kind"],
            "who": pl.Int64,
            "row": pl.Int64,
            "label": pl.String,
        }
        return pl.DataFrame(rows, schema=schema, orient="row")

    def _labelled(self, ordered: pl.DataFrame, several: set[int]) -> Iterator[tuple[object, ...]]:
        keys = cast("list[tuple[int, int, int, int]]", ordered.rows())
        for gpu, kind, who, row in keys:
            if kind == STREAM:
                label = "other streams" if row == _OTHERS else f"stream {row}"
                if gpu in several:
                    label += f" pid {self.trace.processes[who].pid}"
            elif kind in {HOST, ON_GPU}:
                label = KIND_NAMES[kind] if row == 1 else ""
            else:
                label = KIND_NAMES[kind]
            yield self.trace.report, self.trace.gpus[gpu].key, gpu, KIND_NAMES[kind], kind, who, row, label


def _climbed(groups: pl.DataFrame, parents: pl.Series, level: int) -> pl.DataFrame:
    """Return the groups with ``at`` moved up to the range of this depth, where their launch was below it."""
    below = pl.col("launch_depth") > level
    above = _at(parents, groups["at"]).fill_null(NO_STACK).alias("above")
    return groups.with_columns(above).with_columns(
        pl.when(below).then("above").otherwise("at").alias("at"),
        pl.when(below).then(pl.lit(level)).otherwise("launch_depth").alias("launch_depth"),
    )


def _at(values: pl.Series, nodes: pl.Series) -> pl.Series:
    """Return the value of each node, null where there is none."""
    if values.len() == 0:
        return pl.repeat(None, nodes.len(), dtype=values.dtype, eager=True)
    return values.gather(nodes.clip(lower_bound=0)).set(nodes == NO_STACK, None)


def _mapped(values: pl.Series, number: Callable[[Any], int]) -> pl.Series:
    distinct = values.unique(maintain_order=True)
    table = pl.DataFrame({"key": distinct, "id": pl.Series([number(v) for v in distinct.to_list()], dtype=ID)})
    return values.to_frame("key").join(table, on="key", how="left", maintain_order="left")["id"]


def _as_items(frame: pl.DataFrame, report: int) -> pl.DataFrame:
    filled = {"who": 0, "row": 0, "path": 0, "shape": 0, "report": report}
    return frame.select(
        (pl.col(name) if name in frame.columns else pl.lit(filled.get(name))).cast(dtype).alias(name)
        for name, dtype in _ITEM.items()
    )

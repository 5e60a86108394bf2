"""What is analysed: the window of each GPU, and which kernels are meant.

The window is the span of all kernels, or given instants, or the time that the ranges of a pattern project
onto each GPU. Only the last selects kernels, too: those launched inside, or captured inside.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import polars as pl

from k25trace.attribution import Attribution
from k25trace.errors import CannotAnswer, UsageError
from k25trace.intervals import clip, union
from k25trace.quoting import shortened
from k25trace.replays import OPAQUE_HINT, Replays, recorded_whole
from k25trace.templates import Path_
from k25trace.trace import Trace
from k25trace.trace.interning import ID, Interner, integers
from k25trace.units import parse_ns

_PRESENT_SHOWN = 8


@dataclass(frozen=True)
class Bounds:
    """A window given by the user, in nanoseconds of the report's clock; None: open on that side.

    Examples
    --------
    >>> Bounds.parse("1.5ms:2ms")
    Bounds(start_ns=1500000, end_ns=2000000)
    """

    start_ns: int | None = None
    end_ns: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Bounds":
        """Return the bounds that ``A:B`` names; a side is a number with an optional unit (ns, us, ms, s) or empty."""
        sides = text.split(":")
        if len(sides) != 2:
            raise UsageError(f"--window {text}: not of the form A:B", "such as 1.2s:1.5s, 1200ms: or :5000000 (ns)")
        start, end = (parse_ns(side) if side.strip() else None for side in sides)
        if start is not None and end is not None and end <= start:
            raise UsageError(f"--window {text}: it ends before it starts")
        return cls(start, end)


@dataclass(frozen=True)
class Window:
    """The window of one report.

    Attributes
    ----------
    pieces
        gpu, start_ns, end_ns: disjoint, on every GPU.
    selector
        What it came from: ``kernels``, ``window`` or ``range``.
    cuts
        Whether the user's bounds may cut kernels; otherwise every selected one lies inside.
    pattern
        For ``range``: the pattern.
    """

    pieces: pl.DataFrame
    selector: str
    cuts: bool
    pattern: str | None = None

    @property
    def start_ns(self) -> int:
        """First instant of any GPU's window."""
        return _int(self.pieces["start_ns"].min())

    @property
    def end_ns(self) -> int:
        """First instant after every GPU's window."""
        return _int(self.pieces["end_ns"].max())

    def chosen(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """Return the selected kernels (column ``selected``; without it all) inside the window, clipped to it."""
        if "selected" in kernels.columns:
            kernels = kernels.filter("selected")
        if not self.cuts:
            return kernels
        first, last = self.start_ns, self.end_ns
        inside = (pl.col("start_ns") < last) & ((pl.col("end_ns") > first) | (pl.col("start_ns") >= first))
        return kernels.filter(inside).with_columns(
            pl.col("start_ns").clip(lower_bound=first), pl.col("end_ns").clip(upper_bound=last)
        )


def kernel_window(trace: Trace, found: Replays, bounds: Bounds | None = None) -> Window:
    """Return the window from the first kernel to the last, over all GPUs, or the given bounds.

    Opaque replays are kernels, too, as far as the report says when they ran.

    Raises
    ------
    CannotAnswer
        No kernel was recorded, or none runs within the bounds.
    """
    ran = found.opaque.filter("bounded")
    first = pl.concat([trace.survey["first_ns"], ran["start_ns"]]).min()
    last = pl.concat([trace.survey["last_ns"], ran["end_ns"]]).max()
    start, end = _int(first), _int(last)
    if bounds is not None:
        asked = (
            start if bounds.start_ns is None else bounds.start_ns,
            end if bounds.end_ns is None else bounds.end_ns,
        )
        after = asked[0] > end or (asked[0] == end and not _ends_at_once(trace, end))
        if asked[1] <= asked[0] or after or asked[1] <= start:
            raise CannotAnswer(
                f"{trace.path}: no kernel runs in the window {asked[0]}:{asked[1]} (ns)",
                f"kernels run in {start}:{end}",
            )
        start, end = asked
    gpus = pl.DataFrame({"gpu": range(len(trace.gpus))}, schema={"gpu": trace.slots.schema["gpu"]})
    pieces = gpus.with_columns(pl.lit(start, pl.Int64).alias("start_ns"), pl.lit(end, pl.Int64).alias("end_ns"))
    return Window(pieces, "kernels" if bounds is None else "window", cuts=bounds is not None)


def _ends_at_once(trace: Trace, at_ns: int) -> bool:
    """Whether a kernel of no length runs at an instant: a window that begins there holds it, and none that ended."""
    here = (pl.col("start_ns") == at_ns) & (pl.col("end_ns") == at_ns)
    return any(chunk.select(here.any()).item() for chunk in trace.kernel_chunks())


def refuse_opaque(trace: Trace, window: Window, found: Replays) -> None:
    """Raise if graph launches whose kernels are not in the report ran, or may have run, in a window without kernels.

    Raises
    ------
    CannotAnswer
        They did: shares of no kernels would say that nothing ran.
    """
    inside = (pl.col("start_ns") < window.end_ns) & (pl.col("end_ns") > window.start_ns)
    count = found.opaque.filter(inside).height
    if count:
        raise CannotAnswer(
            f"{trace.path}: no kernels in the window: what ran there may be inside {recorded_whole(count)}", OPAQUE_HINT
        )


def select_range(attribution: Attribution, glob: str, bounds: Bounds | None = None) -> tuple[Window, pl.Series]:
    """Return the window that the ranges matching a pattern project onto each GPU, and which kernels are inside.

    Parameters
    ----------
    attribution
        The paths of the report's kernels.
    glob
        Pattern of ``fnmatch`` for a range's name, case-sensitive; it may be any range of a kernel's path, or a
        start/end range that was open at the launch.
    bounds
        Clips the window further.

    Returns
    -------
    Window
        Per GPU the union of the instances' projected spans: first start to last end of the operations (kernels,
        copies, sets) launched inside an instance. For ranges open when a graph was captured, every replay is an
        instance of its own.
    pl.Series
        Boolean, aligned with ``attribution.kernels``.

    Raises
    ------
    CannotAnswer
        No range matches, or nothing was launched inside.
    """
    path = attribution.trace.path
    matches = _name_matcher(attribution, glob)
    selected, spans = _inside(attribution, attribution.kernels, matches)
    spans = pl.concat([spans, _inside(attribution, attribution.copies, matches)[1]])
    # An instance's copies and kernels make one span.
    spans = spans.group_by("gpu", "instance").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
    if not selected.any():
        raise CannotAnswer(f"{path}: no kernel was launched inside a range {glob!r}")
    pieces = union(spans, ["gpu"])
    if pieces.height == 0:  # all that was selected lasts no time
        pieces = (
            spans.group_by("gpu").agg(pl.col("start_ns").min(), pl.col("start_ns").min().alias("end_ns")).sort("gpu")
        )
    if bounds is not None:
        first, last = _int(pieces["start_ns"].min()), _int(pieces["end_ns"].max())
        pieces = clip(
            pieces,
            bounds.start_ns if bounds.start_ns is not None else first,
            bounds.end_ns if bounds.end_ns is not None else last,
        )
        if pieces.height == 0:
            raise CannotAnswer(
                f"{path}: no range {glob!r} has kernels in that window", f"theirs run in {first}:{last} (ns)"
            )
    return Window(pieces, "range", cuts=bounds is not None, pattern=glob), selected


def _name_matcher(attribution: Attribution, glob: str) -> Callable[[pl.DataFrame], pl.Series]:
    """Return a function that says which ranges of a frame match; raise if none of the report does."""
    names = attribution.trace.names
    learned = {name for path in _learned_paths(attribution) for name, _ in path}
    present = sorted({*integers(attribution.owning["name"].unique()), *map(attribution.trace.name_id, learned)})
    matching = [name for name in present if fnmatchcase(names[name], glob)]
    if not matching:
        every = sorted({shortened(" ".join(names[name].split()), 40) for name in present})
        shown = ", ".join(every[:_PRESENT_SHOWN]) + (", ..." if len(every) > _PRESENT_SHOWN else "")
        raise CannotAnswer(
            f"{attribution.trace.path}: no NVTX range matches {glob!r}",
            f"ranges in this report: {shown}"
            if present
            else "the report has no NVTX range; capture with --trace=cuda,nvtx",
        )
    return lambda ranges: ranges["name"].is_in(matching)


def _inside(
    attribution: Attribution, operations: pl.DataFrame, matches: Callable[[pl.DataFrame], pl.Series]
) -> tuple[pl.Series, pl.DataFrame]:
    """Return which operations are inside matching ranges, and the span of each instance on each GPU."""
    is_match = matches(attribution.push_pop)
    spanned = [pl.col("start_ns").min(), pl.col("end_ns").max()]
    stacks = operations["stack"].unique()
    by_stack = _members(stacks, [attribution.nesting.ancestors(node) for node in stacks.to_list()], is_match)
    captures = pl.Series(range(len(attribution.captures)), dtype=pl.Int32)
    by_capture = _members(captures, attribution.captures, is_match)
    selected = operations["stack"].is_in(by_stack["group"].unique().to_list()) | operations["captured"].is_in(
        by_capture["group"].unique().to_list()
    ).fill_null(value=False)
    launched = operations.group_by("gpu", pl.col("stack").alias("group")).agg(spanned).join(by_stack, on="group")
    replayed = operations.group_by("gpu", pl.col("captured").alias("group"), "process", "correlation").agg(spanned)
    instances = [
        launched.select("gpu", pl.format("range {}", "member").alias("instance"), "start_ns", "end_ns"),
        # Every replay of a graph is an instance of its own of the ranges it was captured in.
        replayed.join(by_capture, on="group").select(
            "gpu",
            pl.format("range {} replay {} of {}", "member", "correlation", "process").alias("instance"),
            "start_ns",
            "end_ns",
        ),
    ]
    if attribution.template is not None:
        by_path = _learned_members(_learned_paths(attribution), matches, attribution)
        selected |= operations["templated"].is_in(by_path["group"].unique().to_list()).fill_null(value=False)
        taught = operations.group_by("gpu", pl.col("templated").alias("group"), "process", "correlation").agg(spanned)
        instances.append(
            taught.join(by_path, on="group").select(
                "gpu",
                pl.format("learned {} replay {} of {}", "member", "correlation", "process").alias("instance"),
                "start_ns",
                "end_ns",
            )
        )
    across = attribution.owning.filter(~pl.col("push_pop")).pipe(lambda frame: frame.filter(matches(frame)))
    for row, process, start, end in across.select("row", "process", "start_ns", "end_ns").iter_rows():
        launch = operations["launch_ns"]
        open_then = ((operations["process"] == process) & (launch >= start) & (launch < end)).fill_null(value=False)
        selected |= open_then
        mine = operations.filter(open_then).group_by("gpu").agg(spanned)
        instances.append(mine.select("gpu", pl.lit(f"row {row}").alias("instance"), "start_ns", "end_ns"))
    return selected, pl.concat(instances)


def _learned_paths(attribution: Attribution) -> list[Path_]:
    return [] if attribution.template is None else attribution.templated.paths


def _learned_members(
    paths: Sequence[Path_], matches: Callable[[pl.DataFrame], pl.Series], attribution: Attribution
) -> pl.DataFrame:
    """Return the matching ranges of each learned path: group (the path), member (a path from its first range on)."""
    ranges: Interner[Path_] = Interner()
    members = [[ranges.id(path[: depth + 1]) for depth in range(len(path))] for path in paths]
    names = [attribution.trace.name_id(path[-1][0]) for path in ranges.values]
    is_match = matches(pl.DataFrame({"name": names}, schema={"name": ID}))
    return _members(pl.Series(range(len(paths)), dtype=pl.Int32), members, is_match)


def _members(groups: pl.Series, members: Sequence[Sequence[int]], is_match: pl.Series) -> pl.DataFrame:
    """Return the matching ranges of each group: group, member."""
    matching = is_match.to_list()
    pairs = [(group, r) for group, ranges in zip(groups.to_list(), members, strict=True) for r in ranges if matching[r]]
    return pl.DataFrame(pairs, schema={"group": groups.dtype, "member": pl.Int64}, orient="row")


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"an instant is missing: {value!r}")
    return value

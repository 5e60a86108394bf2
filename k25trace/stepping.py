"""Where the steps of a report begin and end: by NVTX ranges, else by graph launches, else by the kernels themselves.

A step is one iteration of the serving or workload loop. What was launched inside it belongs to it, whenever it ran.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise

import polars as pl

from k25trace.errors import CannotAnswer
from k25trace.examined import Examined
from k25trace.nesting import NO_STACK, Nesting, last_at
from k25trace.trace.interning import ID, integers

FEWEST_STEPS = 2
"""Instances below which a range or cycle is no loop."""

SMALL_SHARE = 0.5
"""Ranges with less than this share of the operations of the largest candidate are no steps of the program."""

REGULAR_SHARE = 0.8
"""Share of the spacings of a kernel that must be equal for it to mark a cycle, and of the kernels it must span."""

UNNAMED = '""'
"""What a range without a name is called."""

_NAMES_SHOWN = 6

_STEP_SCHEMA = {"process": ID, "name": ID, "range": pl.UInt32, "index": pl.Int64, "at_ns": pl.Int64}


@dataclass(frozen=True)
class Stepping:
    """The steps of one report.

    Attributes
    ----------
    steps
        One row a step, its number being the row: process, name (index into the trace's names; null where steps have
        no ranges), range (index into `Attribution.push_pop`; likewise), index Int64 (from 0, per process), at_ns.
    of_operations
        UInt32, aligned with `Examined.operations`: the step of each, null where it belongs to none.
    basis
        What the steps rest on: ``ranges``, ``graph launches``, ``kernels`` or ``none``.
    said
        The same in words, with the pattern and what else could have been taken; or why there are none.
    """

    steps: pl.DataFrame
    of_operations: pl.Series
    basis: str
    said: str

    @property
    def found(self) -> bool:
        """Whether there are steps."""
        return self.basis != "none"


def find_stepping(examined: Examined, glob: str | None = None) -> Stepping:
    """Return the steps of a report.

    Parameters
    ----------
    glob
        Pattern of ``fnmatch`` for the names of the step ranges, case-sensitive; of nested ones the outermost is the
        step. None: the most regular of the outermost repeated ranges; without ranges that repeat, cycles of graph
        launches; without those, cycles of kernels.

    Raises
    ------
    CannotAnswer
        No range matches the pattern, or nothing was launched inside one.
    """
    if glob is not None:
        return _by_ranges(examined, _matching(examined, glob), f"ranges {glob}")
    group, pattern, others = _repeated_ranges(examined)
    if group:
        left = ", ".join(other or UNNAMED for other in others)
        said = f"ranges {pattern or UNNAMED}" + (f"; not {left} (--step GLOB takes others)" if left else "")
        return _by_ranges(examined, group, said)
    return _by_graphs(examined) or _by_kernels(examined) or _none(examined)


# ---- by ranges


def _matching(examined: Examined, glob: str) -> list[int]:
    names = examined.trace.names
    present = integers(examined.attribution.push_pop["name"].unique())
    matching = [name for name in present if fnmatchcase(names[name], glob)]
    if not matching:
        raise CannotAnswer(
            f"{examined.trace.path}: no push/pop range matches --step {glob}",
            f"ranges in this report: {_shown(examined, present)}"
            if present
            else "the report has none; capture with --trace=cuda,nvtx",
        )
    return matching


def _repeated_ranges(examined: Examined) -> tuple[list[int], str, list[str]]:
    """Return the names of the most regular outermost repeated ranges, their pattern, and what else is as large."""
    spans = examined.attribution.projected_spans()
    if spans.height == 0:
        return [], "", []
    names = examined.trace.names
    distinct = integers(spans["name"].unique())
    group_of = {name: _pattern(names[name]) for name in distinct}
    groups = sorted(set(group_of.values()))
    codes = pl.DataFrame(
        {"name": distinct, "group": [groups.index(group_of[n]) for n in distinct]},
        schema={"name": ID, "group": pl.Int64},
    )
    nesting = examined.attribution.nesting
    depth = _depths(nesting)
    rows = (
        examined.attribution.push_pop.select("row")
        .with_row_index("range")
        .with_columns(depth.gather(pl.int_range(examined.attribution.push_pop.height, eager=True)).alias("depth"))
    )
    placed = (
        spans.join(codes, on="name")
        .join(rows, on="row")
        .group_by("process", "group", "row")
        .agg(
            pl.col("depth").first(),
            pl.col("operation_count").sum(),
            (pl.col("last_ns").max() - pl.col("first_ns").min()).alias("span_ns"),
        )
        .filter(pl.col("depth") == pl.col("depth").min().over("process", "group"))
    )
    spread = (pl.col("span_ns") - pl.col("span_ns").median()).abs().median() / pl.col("span_ns").median().clip(
        lower_bound=1
    )
    per_process = placed.group_by("process", "group").agg(
        pl.len().alias("instances"), pl.col("operation_count").sum(), pl.col("depth").first(), spread.alias("spread")
    )
    launching = per_process["process"].n_unique()
    candidates = (
        per_process.filter(pl.col("instances") >= FEWEST_STEPS)
        .group_by("group")
        .agg(
            pl.col("operation_count").sum(),
            pl.col("depth").min(),
            pl.col("spread").max(),
            pl.len().alias("processes"),
            pl.col("instances").max(),
        )
    )
    # A loop of one rank alone is not the loop of the job, unless no rank has another.
    everywhere = candidates.filter(pl.col("processes") == launching)
    candidates = everywhere if everywhere.height else candidates
    if candidates.height == 0:
        return [], "", []
    large = candidates.filter(pl.col("operation_count") >= SMALL_SHARE * pl.col("operation_count").max())
    outermost = large.filter(pl.col("depth") == pl.col("depth").min()).sort("spread", "group")
    chosen, *rest = integers(outermost["group"])
    return [name for name in distinct if group_of[name] == groups[chosen]], groups[chosen], [groups[g] for g in rest]


def _pattern(name: str) -> str:
    """Return a name with its numbers as ``#``: instances that differ in them alone are of one kind."""
    return re.sub(r"\d+", "#", name)


def _depths(nesting: Nesting) -> pl.Series:
    """Return the depth of each range; of one that has several nodes, the smallest."""
    nodes = nesting.nodes.filter(pl.col("depth") > 0)
    least = nodes.group_by("range").agg(pl.col("depth").min())
    count = nesting.nodes["range"].max()
    size = count + 1 if isinstance(count, int) else 0
    return pl.repeat(0, size, dtype=pl.Int64, eager=True).scatter(least["range"], least["depth"])


def _by_ranges(examined: Examined, names: Sequence[int], said: str) -> Stepping:
    push_pop = examined.attribution.push_pop
    is_step = push_pop["name"].is_in(list(names))
    of_node = outermost(examined.attribution.nesting, is_step)
    operations = examined.operations
    stacks = operations["stack"]
    if of_node.len():
        ranges = of_node.gather(stacks.clip(lower_bound=0)).set(stacks == NO_STACK, None)
    else:
        ranges = pl.repeat(None, stacks.len(), dtype=pl.UInt32, eager=True)
    used = ranges.drop_nulls().unique()
    chosen = (
        push_pop.select("process", "name", pl.col("start_ns").alias("at_ns"), "row")
        .with_row_index("range")[used]
        .sort("process", "at_ns", "row")
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("process").alias("index"))
    )
    if chosen.height == 0:
        raise CannotAnswer(f"{examined.trace.path}: nothing was launched inside {said}")
    number = chosen.select("range").with_row_index("step")
    of_operations = ranges.to_frame("range").join(number, on="range", how="left", maintain_order="left")["step"]
    return Stepping(chosen.select(list(_STEP_SCHEMA)).cast(_STEP_SCHEMA), of_operations, "ranges", said)  # pyright: ignore[reportArgumentType]


def outermost(nesting: Nesting, is_match: pl.Series) -> pl.Series:
    """Return, for each node of a nesting, the outermost matching range of its stack (null: none)."""
    nodes = nesting.nodes.with_row_index("node")
    own = nodes["range"].set(~is_match.gather(nodes["range"]), None)
    found = pl.repeat(None, nodes.height, dtype=pl.UInt32, eager=True)
    deepest = nodes["depth"].max()
    for depth in range(1, (deepest if isinstance(deepest, int) else 0) + 1):
        level = nodes.filter(pl.col("depth") == depth)
        above = found.gather(level["parent"].clip(lower_bound=0)).set(level["parent"] == NO_STACK, None)
        found = found.scatter(level["node"], above.fill_null(own.gather(level["node"])))
    return found


# ---- by graph launches


def _by_graphs(examined: Examined) -> Stepping | None:
    """Return one step for each repeating cycle of graph launches of a process, or None where none repeats."""
    operations = examined.operations
    replayed = operations.filter(pl.col("graph_node").is_not_null() & pl.col("launch_ns").is_not_null())
    launches = (
        replayed.group_by("process", "correlation")
        .agg(pl.col("launch_ns").min(), pl.col("graph_node").min().alias("graph"))
        .sort("process", "launch_ns", "correlation")
    )
    begins: list[pl.DataFrame] = []
    for (process,), mine in launches.partition_by("process", as_dict=True, maintain_order=True).items():
        firsts = cycles(integers(mine["graph"]))
        if len(firsts) < FEWEST_STEPS:
            return None
        begins.append(mine[firsts].select(pl.lit(process, ID).alias("process"), pl.col("launch_ns").alias("at_ns")))
    if not begins:
        return None
    said = (
        "cycles of graph launches, each from the launch of its first graph to that of the next cycle (no range repeats)"
    )
    return _between(examined, pl.concat(begins), "process", clock="launch_ns", basis="graph launches", said=said)


def cycles(tokens: Sequence[int]) -> list[int]:
    """Return where cycles begin in a sequence: a cycle ends before what it already holds.

    A cycle that begins with a whole other one that occurs as often is two.

    Examples
    --------
    >>> cycles([1, 2, 3, 1, 2, 3, 7, 8, 7, 8])
    [0, 3, 6, 8]
    """
    firsts: list[int] = []
    held: set[int] = set()
    for place, token in enumerate(tokens):
        if not firsts or token in held:
            firsts.append(place)
            held = set()
        held.add(token)
    whole = [tuple(tokens[a:b]) for a, b in pairwise([*firsts, len(tokens)])]
    often = Counter(whole)
    found: list[int] = []
    for first, cycle in zip(firsts, whole, strict=True):
        found.append(first)
        cut = next((n for n in range(1, len(cycle)) if often[cycle[:n]] >= often[cycle]), None)
        if cut is not None:
            found.append(first + cut)
    return found


# ---- by kernels


def _by_kernels(examined: Examined) -> Stepping | None:
    """Return one step for each repetition of the kernel sequence of a GPU, or None where nothing repeats."""
    kernels = examined.kernels.select("gpu", "process", "name", "start_ns", "end_ns").sort("gpu", "start_ns", "end_ns")
    begins: list[pl.DataFrame] = []
    for (gpu,), mine in kernels.partition_by("gpu", as_dict=True, maintain_order=True).items():
        marker = _marker(mine)
        if marker is None:
            return None
        at = mine.filter(pl.col("name") == marker).select(
            pl.lit(gpu, ID).alias("gpu"), "process", pl.col("start_ns").alias("at_ns")
        )
        begins.append(at)
    said = "repetitions of the kernel sequence, each from the kernel that comes once in it after the longest pause"
    return _between(examined, pl.concat(begins), "gpu", clock="start_ns", basis="kernels", said=said)


def _marker(kernels: pl.DataFrame) -> int | None:
    """Return the kernel name that marks the cycle of one GPU's kernels, in order of start.

    It comes once a cycle: at least `REGULAR_SHARE` of its spacings are equal, and they span that share of all kernels.
    Of those the rarest, and of equally rare ones the one after the longest pause.
    """
    spaced = kernels.with_columns(
        pl.int_range(pl.len()).alias("place"),
        (pl.col("start_ns") - pl.col("end_ns").cum_max().shift(1)).fill_null(0).alias("pause"),
    ).with_columns((pl.col("place") - pl.col("place").shift(1).over("name")).alias("spacing"))
    usual = pl.col("spacing").mode().min()
    seen = spaced.group_by("name").agg(
        pl.len().alias("count"),
        usual.alias("usual"),
        (pl.col("spacing") == usual).sum().alias("regular"),
        pl.col("pause").median(),
    )
    regular = seen.filter(
        (pl.col("count") > FEWEST_STEPS)
        & (pl.col("regular") >= REGULAR_SHARE * (pl.col("count") - 1))
        & (pl.col("usual") * pl.col("count") >= REGULAR_SHARE * kernels.height)
    )
    chosen = regular.sort("count", -pl.col("pause"), "name")
    return None if chosen.height == 0 else int(chosen["name"][0])


def _between(examined: Examined, begins: pl.DataFrame, lane: str, *, clock: str, basis: str, said: str) -> Stepping:
    """Return the steps that lie between instants of a lane (process or GPU), each reaching to the next."""
    steps = (
        begins.sort(lane, "at_ns")
        .with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over("process").alias("index"))
        .with_row_index("step")
    )
    changes = steps.select(pl.col(lane).alias("thread"), "at_ns", "step")
    operations = examined.operations
    asked = operations.select(pl.col(lane).alias("thread"), pl.col(clock).alias("at_ns"))
    of_operations = last_at(asked, changes)["step"]
    nothing = [pl.lit(None, ID).alias("name"), pl.lit(None, pl.UInt32).alias("range")]
    return Stepping(steps.with_columns(nothing).select(list(_STEP_SCHEMA)), of_operations.cast(pl.UInt32), basis, said)


def _none(examined: Examined) -> Stepping:
    said = "no steps found: no NVTX range, no cycle of graph launches and no sequence of kernels repeats"
    nothing = pl.repeat(None, examined.operations.height, dtype=pl.UInt32, eager=True)
    return Stepping(pl.DataFrame(schema=_STEP_SCHEMA), nothing, "none", said)


def _shown(examined: Examined, names: Sequence[int]) -> str:
    texts = sorted({re.sub(r"\s+", " ", examined.trace.names[n])[:60] for n in names})
    return ", ".join(texts[:_NAMES_SHOWN]) + (
        f" and {len(texts) - _NAMES_SHOWN} more" if len(texts) > _NAMES_SHOWN else ""
    )

"""Which ranges are open at an instant, outermost first, for every thread at once.

The ranges open on a thread form a *stack*, ordered by start, longer first, then row. Stacks are nodes of a
tree: a node is the innermost range instance, its parent the stack without it. Push/pop ranges of one domain
nest, so that a range has one node, its own; ranges of different domains may cross, and a range that survives
one below it gets a further node. Threads whose ranges nest (nearly all) are handled by vectorised scans, one a
level; the others, and absurdly deep ones, by a sweep in Python. Knows nothing of kernels.
"""

from dataclasses import dataclass

import polars as pl

NO_STACK = -1
"""The node of an instant at which no range is open."""

DEEPEST_SCAN = 64
"""Levels up to which scanning level by level is cheaper than sweeping events one by one."""


@dataclass(frozen=True)
class Nesting:
    """The stacks of open ranges over time.

    Attributes
    ----------
    nodes
        parent (Int64, `NO_STACK` at the outermost), range (UInt32, index into the ranges given), depth (from 1);
        a node is the index of its row, and a parent's depth is one less than its children's.
    segments
        thread, at_ns, node: from this instant on the stack of the thread is this node; ordered by both.
    """

    nodes: pl.DataFrame
    segments: pl.DataFrame

    def at(self, instants: pl.DataFrame) -> pl.Series:
        """Return the stack at each instant (``start ≤ t < end``).

        Parameters
        ----------
        instants
            ``thread`` (UInt32) and ``at_ns`` (Int64), in any order; nulls are nowhere.

        Returns
        -------
        pl.Series
            Int64, aligned with ``instants``: a node, or `NO_STACK`.
        """
        asked = instants.select("thread", "at_ns")
        if self.segments.height == 0 or asked.height == 0:
            return pl.repeat(NO_STACK, asked.height, dtype=pl.Int64, eager=True).alias("node")
        return last_at(asked, self.segments)["node"].fill_null(NO_STACK)

    def ancestors(self, node: int) -> list[int]:
        """Return the ranges of a stack, outermost first, as indices into the ranges given."""
        parents, members = self._lists
        found: list[int] = []
        while node != NO_STACK:
            found.append(members[node])
            node = parents[node]
        return found[::-1]

    @property
    def _lists(self) -> tuple[list[int], list[int]]:
        cached = self.__dict__.get("_cached_lists")
        if cached is None:
            cached = (self.nodes["parent"].to_list(), self.nodes["range"].to_list())
            object.__setattr__(self, "_cached_lists", cached)
        return cached


def last_at(instants: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """Return, for each instant, what the last change at or before it on its thread says.

    Parameters
    ----------
    instants
        ``thread`` and ``at_ns``, in any order; nulls find nothing.
    changes
        ``thread``, ``at_ns`` and what they say; of several at one instant the last one counts.

    Returns
    -------
    pl.DataFrame
        The other columns of ``changes``, aligned with ``instants``; null before the first change.
    """
    said = [c for c in changes.columns if c not in {"thread", "at_ns"}]
    ordered = changes.sort("at_ns", maintain_order=True)
    if not instants["at_ns"].null_count() and instants["at_ns"].is_sorted():
        return instants.join_asof(ordered, on="at_ns", by="thread", check_sortedness=False).select(said)
    numbered = instants.select("thread", "at_ns").with_row_index("position").drop_nulls()
    found = numbered.sort("at_ns").join_asof(ordered, on="at_ns", by="thread", check_sortedness=False)
    return pl.DataFrame(
        [
            pl.repeat(None, instants.height, dtype=found.schema[c], eager=True)
            .scatter(found["position"], found[c])
            .alias(c)
            for c in said
        ]
    )


def of_nodes(values: pl.Series, stacks: pl.Series) -> pl.Series:
    """Return the value of each stack, given one value a node; null where no range is open."""
    if values.len() == 0:
        return pl.repeat(None, stacks.len(), dtype=values.dtype, eager=True)
    return values.gather(stacks.clip(lower_bound=0)).set(stacks == NO_STACK, None)


def nest(ranges: pl.DataFrame) -> Nesting:
    """Return the stacks that ranges form over time.

    Parameters
    ----------
    ranges
        ``thread`` (UInt32), ``start_ns``, ``end_ns`` (Int64), ordered by row; ranges without an instant never open.

    Examples
    --------
    >>> schema = {"thread": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}
    >>> ranges = pl.DataFrame([(0, 0, 9), (0, 2, 5)], schema=schema, orient="row")
    >>> nest(ranges).segments.rows()
    [(0, 0, 0), (0, 2, 1), (0, 5, 0), (0, 9, -1)]
    """
    events = _events(ranges)
    deepest = events["level"].max()
    if not isinstance(deepest, int):
        nodes = pl.DataFrame(schema={"parent": pl.Int64, "range": pl.UInt32, "depth": pl.Int64})
        return Nesting(nodes, pl.DataFrame(schema={"thread": pl.UInt32, "at_ns": pl.Int64, "node": pl.Int64}))
    scanned, odd = _scan(events, min(deepest, DEEPEST_SCAN))
    opened = scanned.filter("opens").select(
        pl.col("range"), pl.col("outer").alias("parent"), pl.col("level").alias("depth")
    )
    # A range that is not scanned keeps the node of its own number, unused, so that node numbers are range numbers.
    nodes = (
        pl.select(pl.int_range(ranges.height, dtype=pl.UInt32).alias("range"))
        .join(opened, on="range", how="left", maintain_order="left")
        .select(pl.col("parent").fill_null(NO_STACK), "range", pl.col("depth").fill_null(0).cast(pl.Int64))
    )
    segments = scanned.select(
        "thread",
        "at_ns",
        pl.when("opens").then(pl.col("range").cast(pl.Int64)).otherwise("outer").alias("node"),
    )
    if odd.len():
        more_nodes, more_segments = _sweep(events.filter(pl.col("thread").is_in(odd)), nodes.height)
        nodes, segments = pl.concat([nodes, more_nodes]), pl.concat([segments, more_segments])
    last_of_instant = pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift(-1)) for c in ("thread", "at_ns"))
    kept = segments.filter(last_of_instant)
    return Nesting(nodes, kept.sort("thread", "at_ns") if odd.len() else kept)


def _events(ranges: pl.DataFrame) -> pl.DataFrame:
    """Return openings and closings per thread in time order: thread, at_ns, opens, range, level.

    At one instant ranges close before others open, inner before outer; longer ones open first, then by row.
    """
    real = (
        ranges.select("thread", "start_ns", "end_ns")
        .with_row_index("range")
        .filter(pl.col("end_ns") > pl.col("start_ns"))
    )
    number = pl.col("range").cast(pl.Int64)
    sides = [
        real.select(
            "thread",
            pl.col(at).alias("at_ns"),
            pl.lit(opens).alias("opens"),
            (-pl.col(other)).alias("first"),
            (number if opens else -number).alias("then"),
            "range",
        )
        for at, other, opens in (("start_ns", "end_ns", True), ("end_ns", "start_ns", False))
    ]
    depth = (pl.col("opens").cast(pl.Int64) * 2 - 1).cum_sum()
    return (
        pl.concat(sides)
        .sort("thread", "at_ns", "opens", "first", "then")
        .select(
            "thread",
            "at_ns",
            "opens",
            "range",
            pl.when("opens").then(depth).otherwise(depth + 1).alias("level"),
        )
    )


def _scan(events: pl.DataFrame, deepest: int) -> tuple[pl.DataFrame, pl.Series]:
    """Find what encloses each range, level by level; return events with ``outer``, and the threads this fails on."""
    level, opens, members = events["level"], events["opens"], events["range"].cast(pl.Int64)
    outer = pl.repeat(NO_STACK, events.height, dtype=pl.Int64, eager=True)
    fits = pl.repeat(value=False, n=events.height, eager=True)
    below = outer
    for depth in range(1, deepest + 1):
        here = level == depth
        newest = members.set(~(here & opens), None).forward_fill()
        outer = below.zip_with(here, outer)
        fits |= here & (newest == members).fill_null(value=False)
        below = newest
    odd = events["thread"].filter(~fits).unique()
    scanned = events.with_columns(outer.alias("outer"))
    return (scanned.filter(~pl.col("thread").is_in(odd)) if odd.len() else scanned), odd


def _sweep(events: pl.DataFrame, first_node: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Find the stacks of threads whose ranges cross, one event after the other."""
    nodes: dict[tuple[int, int], int] = {}
    depths: list[int] = []
    thread_now: int | None = None
    open_ranges: list[int] = []
    stack: list[int] = []
    after: list[int] = []
    for thread, _, opens, member, _ in events.iter_rows():
        if thread != thread_now:
            thread_now, open_ranges, stack = thread, [], []
        if opens:
            kept = len(open_ranges)
            open_ranges.append(member)
        else:
            kept = len(open_ranges) - 1 - open_ranges[::-1].index(member)
            del open_ranges[kept]
        del stack[kept:]
        for depth in range(kept, len(open_ranges)):
            key = (stack[-1] if stack else NO_STACK, open_ranges[depth])
            node = nodes.get(key)
            if node is None:
                node = nodes[key] = first_node + len(nodes)
                depths.append(depth + 1)
            stack.append(node)
        after.append(stack[-1] if stack else NO_STACK)
    keys = list(nodes)
    found = pl.DataFrame(
        {"parent": [p for p, _ in keys], "range": [r for _, r in keys], "depth": depths},
        schema={"parent": pl.Int64, "range": pl.UInt32, "depth": pl.Int64},
    )
    return found, events.select("thread", "at_ns").with_columns(pl.Series("node", after, dtype=pl.Int64))

"""In which ranges the nodes of CUDA graphs were captured.

A node can be cloned by every instantiation of its graph; the chain of originals leads to the moment of its capture,
and the ranges open then on the capturing thread are its capture path. Knows nothing of kernels.
"""

from functools import cached_property

import polars as pl

from k25trace.nesting import NO_STACK, Nesting, nest, of_nodes
from k25trace.packing import Packing
from k25trace.replays import capture_in_progress
from k25trace.trace import Trace
from k25trace.trace.interning import ID, Interner, integers

_LONGEST_CHAIN = 32
"""Generations of cloning that are followed from a graph node back to its original; a cycle ends here too."""


class Captures:
    """The capture paths of the graph nodes of one report.

    Parameters
    ----------
    trace
        The report.
    ranges
        The push/pop ranges that may be in a path, in row order.
    nesting
        Their stacks.
    """

    def __init__(self, trace: Trace, ranges: pl.DataFrame, nesting: Nesting) -> None:
        self._trace = trace
        self._ranges = ranges
        self._nesting = nesting
        self._paths: Interner[tuple[int, ...]] = Interner()
        self._shared: Interner[frozenset[int]] = Interner()
        self._shared.id(frozenset())

    @cached_property
    def nodes(self) -> pl.DataFrame:
        """process, node, captured (index into `paths`), late (its capture was not recorded)."""
        moments = capture_moments(self._trace.graph_nodes)
        began = capture_in_progress(self._trace, moments)
        stacks = self._nesting.at(moments)
        cases = pl.DataFrame([stacks.alias("stack"), began.alias("began")])
        distinct = cases.unique(maintain_order=True)
        starts = self._ranges["start_ns"]
        ids = [
            self._paths.id(tuple(r for r in self._nesting.ancestors(stack) if began_ns is None or starts[r] > began_ns))
            for stack, began_ns in distinct.iter_rows()
        ]
        distinct = distinct.with_columns(pl.Series("captured", ids, dtype=pl.Int32))
        captured = cases.join(distinct, on=["stack", "began"], how="left", nulls_equal=True, maintain_order="left")
        return moments.select("process", "node").with_columns(
            captured["captured"], self._is_late(moments).alias("late")
        )

    @property
    def paths(self) -> list[tuple[int, ...]]:
        """Distinct capture paths: range instances (indices into the ranges given) open when a node was captured."""
        _ = self.nodes
        return self._paths.values

    def of(self, operations: pl.DataFrame) -> pl.Series:
        """Return where the graph node of each operation was captured: index into `paths`, null for none."""
        nodes = operations.select("process", pl.col("graph_node").alias("node"))
        packing = Packing.of([nodes, self.nodes], nodes.columns)
        table = self.nodes.select(packing.pack(self.nodes).alias("key"), "captured")
        return packing.pack(nodes).to_frame("key").join(table, on="key", how="left", maintain_order="left")["captured"]

    def open_again(self, operations: pl.DataFrame) -> pl.Series:
        """Return, per operation, a code for the instances of capture paths that are open (still) at its launch.

        See `beyond`; operations that are no replay have any code.
        """
        in_captures = {r for members in self.paths for r in members}
        stacks = operations["stack"].filter(operations["graph_node"].is_not_null()).unique()
        stacks = stacks.filter(stacks != NO_STACK)
        codes = [
            self._shared.id(frozenset(in_captures.intersection(self._nesting.ancestors(stack))))
            for stack in stacks.to_list()
        ]
        of_stack = pl.repeat(0, self._nesting.nodes.height, dtype=ID, eager=True)
        of_stack = of_stack.scatter(stacks, pl.Series(codes, dtype=ID))
        return of_nodes(of_stack, operations["stack"]).fill_null(0)

    def beyond(self, shared: int, captured: int) -> list[tuple[int, int]]:
        """Return name and domain of the instances of a capture path that are not open at a launch already.

        Parameters
        ----------
        shared
            Code that `open_again` gave for the launch.
        captured
            Index into `paths`.
        """
        already = self._shared.values[shared]
        names, domains = self._keys
        return [(names[member], domains[member]) for member in self.paths[captured] if member not in already]

    @cached_property
    def _keys(self) -> tuple[list[int], list[int]]:
        """Name and domain of each range, as lists: cheaper to pick single ones from."""
        return integers(self._ranges["name"]), integers(self._ranges["domain"])

    def _is_late(self, moments: pl.DataFrame) -> pl.Series:
        """Return which captures were not recorded: at an unknown moment, or before the clock and every range began."""
        early = (moments["at_ns"] < 0).fill_null(value=True)
        if not early.any():
            return early
        ranges = self._trace.ranges.filter("push_pop").sort("row")  # of all domains: whoever owns, they were recorded
        return early & (nest(ranges).at(moments) == NO_STACK)


def capture_moments(graph_nodes: pl.DataFrame) -> pl.DataFrame:
    """Return the host moment at which each graph node was captured.

    A node can have several rows and is cloned by every instantiation; the chain of originals is followed to its
    end, whose first row is the moment.

    Parameters
    ----------
    graph_nodes
        `Trace.graph_nodes`.

    Returns
    -------
    pl.DataFrame
        process, node (key) · thread, at_ns: null where the original is not in the report.
    """
    keys = ["process", "node"]
    known = graph_nodes.drop_nulls(keys).sort("at_ns", nulls_last=True)
    nodes = known.group_by(keys, maintain_order=True).agg(
        pl.col("original").filter(pl.col("original") != pl.col("node")).drop_nulls().first(),
        pl.col("thread").first(),
        pl.col("at_ns").first(),
    )
    origin = nodes.select("process", pl.col("node").alias("origin"), pl.col("original").alias("next"))
    chain = nodes.select("process", "node", pl.coalesce("original", "node").alias("origin"))
    for _ in range(_LONGEST_CHAIN):
        step = chain.join(origin, on=["process", "origin"], how="left", maintain_order="left")["next"]
        if step.null_count() == step.len():
            break
        chain = chain.with_columns(pl.coalesce(step, pl.col("origin")).alias("origin"))
    else:
        # Chains this long, cycles among them, tell of no capture.
        step = chain.join(origin, on=["process", "origin"], how="left", maintain_order="left")["next"]
        chain = chain.with_columns(pl.when(step.is_null()).then("origin").alias("origin"))
    ends = nodes.select("process", pl.col("node").alias("origin"), "thread", "at_ns")
    return chain.join(ends, on=["process", "origin"], how="left", maintain_order="left").drop("origin")

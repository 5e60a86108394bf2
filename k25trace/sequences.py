"""Kernel sequences of graph replays: in the order of the graph's nodes, each distinct one once."""

from dataclasses import dataclass

import polars as pl

_REPLAY = ["process", "correlation"]


@dataclass(frozen=True)
class Sequences:
    """Distinct kernel sequences of replays.

    Attributes
    ----------
    sequences
        sequence (the row), process, correlation (of one replay that shows it), replay_count.
    members
        sequence, place (from 0), node, name: the kernels of each, in the order of the nodes.
    """

    sequences: pl.DataFrame
    members: pl.DataFrame


def sequences(kernels: pl.DataFrame) -> Sequences:
    """Return the distinct sequences of the replays of a process: the same nodes and the same names.

    Parameters
    ----------
    kernels
        process, correlation, graph_node, name, of replayed kernels.
    """
    placed = kernels.select(*_REPLAY, pl.col("graph_node").alias("node"), "name", "start_ns").sort(
        *_REPLAY, "node", "start_ns"
    )
    placed = placed.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).over(_REPLAY).alias("place"))
    signs = placed.group_by(_REPLAY).agg(
        # Wraps around: what counts is that equal sequences have equal sums.
        pl.struct("place", "node", "name").hash(seed=0).sum().alias("sign"),
        pl.len().alias("length"),
    )
    found = (
        signs.sort("process", "correlation")
        .group_by("process", "sign", "length", maintain_order=True)
        .agg(pl.col("correlation").first(), pl.len().cast(pl.Int64).alias("replay_count"))
        .with_row_index("sequence")
    )
    shown = found.select("sequence", *_REPLAY, "replay_count")
    members = placed.join(shown.select("sequence", *_REPLAY), on=_REPLAY).sort("sequence", "place")
    return Sequences(shown, members.select("sequence", "place", "node", "name"))

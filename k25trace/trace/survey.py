"""Who ran kernels where, and which graph launches left any: what one pass over the operations tells."""

from collections.abc import Iterable
from dataclasses import dataclass

import polars as pl

from k25trace.ordering import Order
from k25trace.trace.interning import ID

_SLOT = ("process", "device")
LAUNCH = ("process", "correlation", "device")
"""What tells one launch on one device from all others."""

KERNEL_SCHEMA = pl.Schema(
    {
        "process": ID,
        "device": pl.Int64,
        "start_ns": pl.Int64,
        "end_ns": pl.Int64,
        "stream": pl.Int32,
        "correlation": pl.Int64,
        "name": ID,
        "graph_node": pl.Int64,
    }
)
"""The columns of kernels before their GPUs are known."""


@dataclass(frozen=True)
class Survey:
    """What one pass over the kernels tells.

    Attributes
    ----------
    slots
        process, device, kernel_count, first_ns, last_ns.
    replays
        The same of each graph launch: process, correlation, device, kernel_count, first_ns, last_ns.
    order
        In what order the kernels come.
    """

    slots: pl.DataFrame
    replays: pl.DataFrame
    order: Order


def survey(chunks: Iterable[pl.DataFrame], graph_calls: pl.DataFrame) -> Survey:
    """Look at kernels that come in chunks, keeping none; ``graph_calls`` are the launches of graphs."""
    empty = KERNEL_SCHEMA.to_frame()
    slots, replays, order = [_spans(empty, _SLOT)], [launches_found(empty, graph_calls)], Order()
    for chunk in chunks:
        slots.append(_spans(chunk, _SLOT))
        replays.append(launches_found(chunk, graph_calls))
        order.see(chunk)
    return Survey(together(slots, _SLOT), together(replays, LAUNCH), order)


def launches_found(operations: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Return the operations of these calls, summed up by `LAUNCH`: kernel_count, first_ns, last_ns."""
    return _spans(operations.join(calls, on=["process", "correlation"], how="semi"), LAUNCH)


def together(parts: list[pl.DataFrame], by: tuple[str, ...]) -> pl.DataFrame:
    """Return the sums of several parts as one, ordered by their keys."""
    total = [pl.col("kernel_count").sum(), pl.col("first_ns").min(), pl.col("last_ns").max()]
    return pl.concat(parts).group_by(by).agg(total).sort(by)


def _spans(operations: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    return operations.group_by(by).agg(
        pl.len().cast(pl.Int64).alias("kernel_count"),
        pl.col("start_ns").min().alias("first_ns"),
        pl.col("end_ns").max().alias("last_ns"),
    )

"""Which kernels of different ranks are one collective.

A rank is a process on a GPU. The n-th kernel of a family in a step on one rank and the n-th on another are one
collective, if every rank has as many of them; otherwise nothing is said of that family in that step.
"""

from dataclasses import dataclass
from itertools import combinations

import polars as pl

from k25trace.percentiles import nearest_rank

RANK = ["gpu", "process"]
SITE = ["step", "family"]
COLLECTIVE = ["step", "family", "group", "ordinal"]

WAITING_FAMILIES = ("allreduce", "allgather", "reduce_scatter")
"""Parts of the names of families whose kernels end together on all ranks, because each needs data of all others."""

TOGETHER_NS = 10_000
"""Ranks whose kernels end closer than this, in the median, are in one communicator, ..."""

TOGETHER_SHARE = 0.5
"""... and so are ranks whose kernels end closer than this share of their median duration."""


@dataclass(frozen=True)
class Pairing:
    """The collectives that pair up.

    Attributes
    ----------
    kernels
        The kernels given, those that pair up, with ordinal Int64 (from 0, in the step and family, by start) and group
        Int64 (of ranks that communicate with each other, by their first rank). Equal `COLLECTIVE` columns are one
        collective.
    unmatched
        step, family, reason, kernel_count: what does not pair up.
    """

    kernels: pl.DataFrame
    unmatched: pl.DataFrame


def waits_for_all(family: pl.Expr) -> pl.Expr:
    """Return whether kernels of a family need data of every rank before they can end."""
    return family.str.contains("|".join(WAITING_FAMILIES))


def numbered(kernels: pl.DataFrame) -> pl.DataFrame:
    """Add ``ordinal``: place of a kernel among those of its rank, step and family, by start."""
    place = pl.int_range(pl.len(), dtype=pl.Int64).over([*RANK, *SITE])
    return kernels.sort("start_ns", "end_ns", *RANK).with_columns(place.alias("ordinal"))


def pair(kernels: pl.DataFrame, kinds: pl.DataFrame) -> Pairing:
    """Pair the kernels of ranks.

    Parameters
    ----------
    kernels
        gpu, process, step (null: outside every step), family, start_ns, end_ns, and whatever else; one clock.
    kinds
        gpu, process, step, kind: what names say of each rank's steps; ranks must not contradict each other.
    """
    ordered = numbered(kernels).pipe(_grouped)
    every = ordered.select("family", "group", *RANK).unique()
    counts = ordered.group_by("family", "group", "step", *RANK).agg(pl.len().alias("count"))
    sites = counts.select("family", "group", "step").unique()
    # A rank that takes part in the family elsewhere and has no kernel of it in this step counts as 0.
    expected = sites.join(every, on=["family", "group"]).join(
        counts, on=["family", "group", "step", *RANK], how="left", nulls_equal=True
    )
    told = kinds.group_by("step").agg(pl.col("kind").n_unique().alias("kinds"))
    judged = (
        expected.with_columns(pl.col("count").fill_null(0))
        .group_by("family", "group", "step")
        .agg(
            pl.len().alias("ranks"),
            pl.col("count").n_unique().alias("different"),
            pl.col("count").min().alias("fewest"),
            pl.col("count").max().alias("most"),
            pl.col("count").sum().cast(pl.Int64).alias("kernel_count"),
        )
        .join(told, on="step", how="left", nulls_equal=True)
    )
    reason = (
        pl.when(pl.col("ranks") < 2)
        .then(pl.lit("on one rank only"))
        .when(pl.col("different") > 1)
        .then(pl.format("ranks have {} to {} of them", "fewest", "most"))
        .when((pl.col("kinds") > 1).fill_null(value=False))
        .then(pl.lit("ranks call the step by different kinds"))
    )
    judged = judged.with_columns(reason.alias("reason"))
    bad = judged.filter(pl.col("reason").is_not_null())
    kept = ordered.join(bad, on=["family", "group", "step"], how="anti", nulls_equal=True)
    return Pairing(
        kept,
        bad.select("step", "family", "reason", "kernel_count").sort("step", "family", "kernel_count", nulls_last=True),
    )


def _grouped(kernels: pl.DataFrame) -> pl.DataFrame:
    """Add ``group``: ranks whose kernels of a family end together, numbered by their first.

    Only families that wait for all, and only if no rank is left alone: what does not end together at all is no sign of
    a communicator of its own, but of a bad pairing, and shows as such.
    """
    ranks = kernels.select(RANK).unique().sort(RANK).with_row_index("rank").cast({"rank": pl.Int64})
    coded = kernels.join(ranks, on=RANK, how="left", maintain_order="left", nulls_equal=True)
    waiting = coded.filter(waits_for_all(pl.col("family")))
    groups: list[tuple[str, int, int]] = []
    for (family,), mine in waiting.partition_by("family", as_dict=True, maintain_order=True).items():
        groups += [(str(family), rank, group) for rank, group in _communicators(mine).items()]
    table = pl.DataFrame(groups, schema={"family": pl.String, "rank": pl.Int64, "group": pl.Int64}, orient="row")
    found = coded.join(table, on=["family", "rank"], how="left", maintain_order="left")
    return found.with_columns(pl.col("group").fill_null(0)).drop("rank")


def _communicators(kernels: pl.DataFrame) -> dict[int, int]:
    """Return rank → first rank of its group, for the kernels of one family."""
    ranks = sorted(kernels["rank"].unique().to_list())
    if len(ranks) <= 2:
        return dict.fromkeys(ranks, 0)
    ends = {
        rank: part.select("step", "ordinal", "end_ns", (pl.col("end_ns") - pl.col("start_ns")).alias("ns"))
        for (rank,), part in kernels.partition_by("rank", as_dict=True).items()
    }
    usual = int(
        kernels.select((pl.col("end_ns") - pl.col("start_ns")).alias("ns")).select(nearest_rank("ns", 50)).item()
    )
    near = max(TOGETHER_NS, round(TOGETHER_SHARE * usual))
    first = {rank: rank for rank in ranks}
    for a, b in combinations(ranks, 2):
        both = ends[a].join(ends[b], on=["step", "ordinal"], suffix="_b", nulls_equal=True)
        apart = (
            both.select((pl.col("end_ns") - pl.col("end_ns_b")).abs().alias("apart"))
            .select(nearest_rank("apart", 50))
            .item()
        )
        if apart is not None and apart <= near and first[a] != first[b]:
            lower, upper = sorted((first[a], first[b]))
            first = {rank: lower if group == upper else group for rank, group in first.items()}
    sizes = [list(first.values()).count(group) for group in set(first.values())]
    return first if min(sizes) > 1 else dict.fromkeys(ranks, 0)

"""Wait and transfer of every rank in a collective, who was late and why, and the verdicts.

Arrival is the start of a rank's kernel. What it ran before the last arrival is *wait*, the rest *transfer*: of whole
kernels, never of clipped ones.
"""

import re
from collections.abc import Sequence

import polars as pl

from k25trace.clocks import Clock
from k25trace.examined import COMMUNICATION, KERNEL, NO_KERNEL, Examined
from k25trace.intervals import covered, union
from k25trace.pairing import COLLECTIVE, RANK, waits_for_all
from k25trace.percentiles import nearest_rank
from k25trace.results import ALL_GPUS, gpu_order
from k25trace.taxonomy import ALL_CATEGORIES

SKEW_DOMINATED, TRANSFER_DOMINATED, MIXED, INCONCLUSIVE = (
    "skew-dominated",
    "transfer-dominated",
    "mixed",
    "inconclusive",
)

MOSTLY_WAIT, HARDLY_WAIT = 0.6, 0.4
"""Shares of the ranks' kernel time that is wait: from the first on skew dominates, up to the second the transfer."""

LAUNCH, GPU = "launch", "gpu"
"""Why a rank was late: its kernel was launched after another rank began to wait; or it was launched in time."""

_BUS_FACTORS = ((re.compile("allreduce"), 2), (re.compile("allgather|reduce_scatter"), 1))
"""busbw is algbw times so many (n - 1) / n, as nccl-tests define it."""

_BYTES = re.compile(r"(?<![A-Za-z0-9])(?:n?bytes|size)=(\d{1,18})(?:\s*(Ki?B|Mi?B|Gi?B|B))?(?![A-Za-z0-9])")
_LARGEST_BYTES = 1 << 60
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def split(examined: Sequence[Examined], kernels: pl.DataFrame, clocks: list[Clock]) -> pl.DataFrame:
    """Add last_ns, wait_ns, transfer_ns, ended_early, is_last and compute_ns."""
    last = pl.col("start_ns").max().over(COLLECTIVE)
    start, end = pl.col("start_ns"), pl.col("end_ns")
    split = kernels.with_columns(last.alias("last_ns"), start.min().over(COLLECTIVE).alias("first_ns")).with_columns(
        (pl.min_horizontal(end, pl.col("last_ns")) - start).clip(lower_bound=0).alias("wait_ns"),
        (end < pl.col("last_ns")).alias("ended_early"),
        (start == pl.col("last_ns")).alias("is_last"),
    )
    split = split.with_columns((end - start - pl.col("wait_ns")).alias("transfer_ns"))
    # Since the communication before it in the step, or since the step began.
    ordered = split.sort(*RANK, "start_ns", "end_ns", "family", "ordinal")
    before = pl.col("end_ns").cum_max().shift(1).over([*RANK, "step"])
    since = pl.coalesce(before, "step_start_ns")
    asked = ordered.select(*RANK, pl.min_horizontal(since, start).alias("start_ns"), pl.col("start_ns").alias("end_ns"))
    computing = pl.concat([_computing(each, clocks) for each in examined])
    compute = covered(asked.with_columns(pl.col("start_ns").fill_null(pl.col("end_ns"))), computing, ["gpu"])
    return ordered.with_columns(pl.when(asked["start_ns"].is_not_null()).then(compute).alias("compute_ns"))


def _computing(examined: Examined, clocks: list[Clock]) -> pl.DataFrame:
    """Return when kernels that are no communication run on each GPU, in the common clock."""
    shift = next(clock.shift_ns for clock in clocks if clock.report == examined.trace.report)
    kernels = examined.kernels.filter(~pl.col("category").is_in(COMMUNICATION))
    return examined.named(union(kernels, ["gpu"])).with_columns(pl.col("start_ns", "end_ns") + shift)


def timestamp_error(ranks: pl.DataFrame) -> int | None:
    """Return the median spread of the ends of collectives that must end together; None: there is none."""
    ends = (
        ranks.filter(waits_for_all(pl.col("family")))
        .group_by(COLLECTIVE)
        .agg((pl.col("end_ns").max() - pl.col("end_ns").min()).alias("spread"))
    )
    return None if ends.height == 0 else int(ends.select(nearest_rank("spread", 50)).item())


def by_collective(
    examined: Sequence[Examined], ranks: pl.DataFrame, error: int | None, clocks: list[Clock]
) -> pl.DataFrame:
    """Return one row a collective (see `k25trace.collectives.Collectives`)."""
    by_rank = ranks.sort(RANK)
    found = by_rank.group_by(COLLECTIVE).agg(
        pl.col("site").first().alias("path"),
        pl.col("category").first(),
        pl.len().cast(pl.Int64).alias("rank_count"),
        pl.col("first_ns").first(),
        pl.col("last_ns").first(),
        (pl.col("end_ns").max() - pl.col("end_ns").min()).alias("end_spread_ns"),
        (pl.col("compute_ns").max() - pl.col("compute_ns").min()).alias("compute_spread_ns"),
        pl.col("wait_ns").sum(),
        pl.col("transfer_ns").sum(),
        pl.col("transfer_ns").min().alias("shortest_ns"),
        pl.col("ended_early").sum().cast(pl.Int64).alias("ended_early_count"),
        *(pl.col(c).filter("is_last").first().alias(f"late_{c}") for c in (*RANK, "launch_ns")),
        pl.col("launch_ns").filter(~pl.col("is_last")).max().alias("others_launch_ns"),
    )
    found = found.with_columns((pl.col("last_ns") - pl.col("first_ns")).alias("skew_ns")).with_columns(
        pl.when(pl.col("skew_ns") > 0).then(pl.col(c)).alias(c) for c in ("late_gpu", "late_process", "late_launch_ns")
    )
    duration = pl.col("wait_ns") + pl.col("transfer_ns")
    found = found.with_columns(
        pl.when(duration > 0).then(pl.col("wait_ns") / duration).otherwise(0.0).alias("wait_share"),
        pl.when(pl.col("late_launch_ns") > pl.col("first_ns"))
        .then(pl.lit(LAUNCH))
        .when(pl.col("late_launch_ns").is_not_null())
        .then(pl.lit(GPU))
        .alias("late_cause"),
        (pl.col("late_launch_ns") - pl.col("others_launch_ns")).alias("launch_skew_ns"),
    )
    blurred = pl.lit(value=False) if error is None else error * pl.col("rank_count") > duration / 2
    found = found.with_columns(
        pl.when(pl.col("ended_early_count") > 0)
        .then(None)
        .when(blurred)
        .then(pl.lit(INCONCLUSIVE))
        .otherwise(_verdict(pl.col("wait_share")))
        .alias("verdict")
    )
    found = pl.concat([_ran_meanwhile(each, found, clocks) for each in examined]) if found.height else found
    return _with_bandwidth(found).select(
        *COLLECTIVE, "path", "category", "rank_count", "first_ns", "last_ns", "skew_ns", "late_gpu", "late_process",
        "late_cause", "late_ran", "launch_skew_ns", "end_spread_ns", "compute_spread_ns", "wait_ns", "transfer_ns",
        "wait_share", "ended_early_count", "verdict", "size_bytes", "algbw_bytes_per_s", "busbw_bytes_per_s",
    ).sort("step", "first_ns", "family", "group", "ordinal", nulls_last=True)  # fmt: skip


def _verdict(wait_share: pl.Expr) -> pl.Expr:
    return (
        pl.when(wait_share >= MOSTLY_WAIT)
        .then(pl.lit(SKEW_DOMINATED))
        .when(wait_share <= HARDLY_WAIT)
        .then(pl.lit(TRANSFER_DOMINATED))
        .otherwise(pl.lit(MIXED))
    )


def _ran_meanwhile(examined: Examined, found: pl.DataFrame, clocks: list[Clock]) -> pl.DataFrame:
    """Add ``late_ran`` to the collectives whose late rank is of this report: what ran there at the first arrival.

    Of several operations the one that started last; where that has ended and another has not, the one that ends last.
    """
    keys = [gpu.key for gpu in examined.trace.gpus]
    shift = next(clock.shift_ns for clock in clocks if clock.report == examined.trace.report)
    # Those without a late rank go with the first report.
    mine = pl.col("late_gpu").is_in(keys) | (
        pl.col("late_gpu").is_null() & pl.lit(examined.trace.report == clocks[0].report)
    )
    asked = found.filter(mine.fill_null(value=False)).with_row_index("place")
    operations = examined.named(examined.operations.select("gpu", "start_ns", "end_ns", "what", "category")).sort(
        "start_ns", "end_ns", "what", "category"
    )
    categories = pl.Series(ALL_CATEGORIES)
    running = operations.select(
        "gpu",
        (pl.col("start_ns") + shift).alias("at"),
        (pl.col("end_ns") + shift).alias("until"),
        pl.when(pl.col("what") == KERNEL)
        .then(categories.gather(operations["category"]))
        .otherwise(pl.col("what").replace_strict(NO_KERNEL, default=None, return_dtype=pl.String))
        .alias("ran"),
    )
    longest = pl.col("until") == pl.col("until").cum_max().over("gpu")
    running = running.with_columns(
        pl.when(longest).then(pl.col(c)).forward_fill().over("gpu").alias(f"{c}_longest") for c in ("until", "ran")
    )
    instants = (
        asked.select("place", pl.col("late_gpu").alias("gpu"), pl.col("first_ns").alias("at"))
        .drop_nulls("gpu")
        .sort("at")
    )
    at = instants.join_asof(running, on="at", by="gpu", check_sortedness=False)
    ran = at.select(
        "place",
        pl.when(pl.col("until") > pl.col("at"))
        .then("ran")
        .when(pl.col("until_longest") > pl.col("at"))
        .then("ran_longest")
        .otherwise(pl.lit("idle"))
        .alias("late_ran"),
    )
    return asked.join(ran, on="place", how="left", maintain_order="left").drop("place")


def _with_bandwidth(found: pl.DataFrame) -> pl.DataFrame:
    """Add size_bytes, algbw and busbw, where a range's name says the size (``bytes=...``)."""
    sizes = {tuple(path): _size(path) for path in found["path"].unique().to_list() if path is not None}
    size = pl.Series("size_bytes", [sizes.get(tuple(path or ())) for path in found["path"].to_list()], dtype=pl.Int64)
    factor = pl.Series(
        "factor", [_bus_factor(f, n) for f, n in found.select("family", "rank_count").iter_rows()], dtype=pl.Float64
    )
    seconds = pl.when(pl.col("shortest_ns") > 0).then(pl.col("shortest_ns") / 1e9)
    sized = found.hstack([size, factor]).with_columns((pl.col("size_bytes") / seconds).alias("algbw_bytes_per_s"))
    return sized.with_columns((pl.col("algbw_bytes_per_s") * pl.col("factor")).alias("busbw_bytes_per_s"))


def _size(path: Sequence[str]) -> int | None:
    found = [m for name in path for m in _BYTES.findall(name)]
    size = int(found[-1][0]) * _UNITS[found[-1][1] or "B"] if found else None
    return None if size is None or size > _LARGEST_BYTES else size


def _bus_factor(family: str, ranks: int) -> float | None:
    """Return busbw ÷ algbw; None for families that nccl-tests define otherwise."""
    return next((times * (ranks - 1) / ranks for pattern, times in _BUS_FACTORS if pattern.search(family)), None)


# ---- over collectives


def by_rank(ranks: pl.DataFrame, collectives: pl.DataFrame) -> pl.DataFrame:
    """Return wait, transfer and lateness of each rank by site (see `k25trace.collectives.Collectives`)."""
    paths = collectives.select(*COLLECTIVE, "path", "late_cause")
    late_launch = pl.col("is_last") & (pl.col("late_cause") == LAUNCH)
    found = (
        ranks.join(paths, on=COLLECTIVE, nulls_equal=True)
        .group_by(*RANK, "path", "family")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            pl.col("wait_ns", "transfer_ns").sum(),
            nearest_rank("wait_ns", 50).alias("p50_wait_ns"),
            nearest_rank("transfer_ns", 50).alias("p50_transfer_ns"),
            pl.col("is_last").sum().cast(pl.Int64).alias("late_count"),
            late_launch.sum().cast(pl.Int64).alias("launch_late_count"),
        )
    )
    return found.sort(gpu_order(), "process", "family", pl.col("path").list.join("\x1f"))


def by_site(ranks: pl.DataFrame, collectives: pl.DataFrame, error: int | None) -> pl.DataFrame:
    """Return skew, wait share and verdict by site, by family and over all."""
    judged = ranks.join(collectives.select(*COLLECTIVE, "path", "ended_early_count"), on=COLLECTIVE, nulls_equal=True)
    by_rank = [judged, judged.with_columns(pl.lit(None, judged.schema["path"]).alias("path"))]
    by_rank.append(by_rank[1].with_columns(pl.lit(ALL_GPUS).alias("family")))
    by_one = [collectives, collectives.with_columns(pl.lit(None, collectives.schema["path"]).alias("path"))]
    by_one.append(by_one[1].with_columns(pl.lit(ALL_GPUS).alias("family")))
    key = ["level", "path", "family"]
    rows = pl.concat(
        [
            frame.select(
                pl.lit(i).alias("level"),
                "path",
                "family",
                "wait_ns",
                "transfer_ns",
                "ended_early_count",
                (pl.col("end_ns") - pl.col("start_ns")).alias("ns"),
            )
            for i, frame in enumerate(by_rank)
        ]
    )
    ones = pl.concat(
        [
            frame.select(pl.lit(i).alias("level"), "path", "family", "skew_ns", "compute_spread_ns")
            for i, frame in enumerate(by_one)
        ]
    )
    whole = pl.col("ended_early_count") == 0
    times = rows.group_by(key).agg(
        pl.col("wait_ns", "transfer_ns").sum(),
        nearest_rank("transfer_ns", 50).alias("p50_transfer_ns"),
        pl.col("wait_ns").filter(whole).sum().alias("judged_wait"),
        pl.col("ns").filter(whole).sum().alias("judged_ns"),
        whole.sum().alias("judged"),
    )
    skews = ones.group_by(key).agg(
        pl.len().cast(pl.Int64).alias("count"),
        nearest_rank("skew_ns", 50).alias("p50_skew_ns"),
        nearest_rank("skew_ns", 95).alias("p95_skew_ns"),
        pl.col("skew_ns").max().alias("max_skew_ns"),
        nearest_rank("compute_spread_ns", 50).alias("p50_compute_spread_ns"),
    )
    duration = pl.col("judged_ns")
    share = pl.when(duration > 0).then(pl.col("judged_wait") / duration).otherwise(0.0)
    blurred = pl.lit(value=False) if error is None else error * pl.col("judged") > duration / 2
    verdict = pl.when((pl.col("judged") == 0) | blurred).then(pl.lit(INCONCLUSIVE)).otherwise(_verdict(share))
    found = skews.join(times, on=key, nulls_equal=True).with_columns(
        share.alias("wait_share"), verdict.alias("verdict")
    )
    order = ["level", "wait_ns", "family", pl.col("path").list.join("\x1f")]
    return found.sort(order, descending=[True, True, False, False]).select(
        "path", "family", "count", "p50_skew_ns", "p95_skew_ns", "max_skew_ns", "p50_compute_spread_ns", "wait_ns",
        "transfer_ns", "wait_share", "p50_transfer_ns", "verdict",
    )  # fmt: skip


def lateness(collectives: pl.DataFrame) -> pl.DataFrame:
    """Return when each rank was late, why, and what it ran meanwhile."""
    late = collectives.filter(pl.col("late_gpu").is_not_null())
    found = late.group_by(
        pl.col("late_gpu").alias("gpu"),
        pl.col("late_process").alias("process"),
        "family",
        pl.col("late_cause").alias("cause"),
        pl.col("late_ran").alias("ran"),
    ).agg(pl.len().cast(pl.Int64).alias("late_count"), pl.col("skew_ns").sum())
    return found.sort("skew_ns", gpu_order(), "process", "family", "cause", "ran", descending=[True, *[False] * 5])


def gpus(ranks: pl.DataFrame, throttled: dict[str, list[str]]) -> pl.DataFrame:
    """Return each rank with the median offset of its ends, and why its clocks were held down."""
    waiting = ranks.filter(waits_for_all(pl.col("family")))
    offset = (pl.col("end_ns") - pl.col("end_ns").min().over(COLLECTIVE)).alias("offset")
    offsets = waiting.with_columns(offset).group_by(RANK).agg(nearest_rank("offset", 50).alias("end_offset_ns"))
    counts = ranks.group_by(RANK).agg(pl.len().cast(pl.Int64).alias("count"))
    found = counts.join(offsets, on=RANK, how="left", nulls_equal=True).sort(gpu_order(), "process")
    throttle = pl.Series("throttle", [throttled.get(gpu) for gpu in found["gpu"].to_list()], dtype=pl.List(pl.String))
    return found.hstack([throttle])

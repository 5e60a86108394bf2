"""What the figures of an analysis say, in sentences: each names its figures, and none says more than they do."""

from collections.abc import Iterator

import polars as pl

from k25trace.accounting import IDLE, MEMCPY, MEMSET, OPAQUE, OUTSIDE
from k25trace.results import ALL_GPUS, Analysis
from k25trace.taxonomy import UNCLASSIFIED
from k25trace.units import format_ns, format_share

WORTH_SAYING = 0.02
"""Parts of the window, or of kernel time, that are smaller are not spoken of."""

UNEVEN = 2.0
"""How many times the communication of one GPU is that of another where one of them seems to wait."""

_MOST_ROWS = 3


def verdict(analysis: Analysis) -> list[str]:
    """Return what the figures say, the most important first.

    Nothing here is a critical path: that a row takes time does not mean that the step would be shorter without it.
    """
    return [*_worth(analysis), *_where(analysis), *_idle(analysis), *_communication(analysis), *_waiting(analysis)]


def _worth(analysis: Analysis) -> Iterator[str]:
    if any(w.level == "error" for w in analysis.warnings):
        yield "The capture is not whole: all figures are of what is left of it. See the warnings."
    unclassified = analysis.categories.filter((pl.col("category") == UNCLASSIFIED) & (pl.col("gpu") == ALL_GPUS))
    share = float(unclassified["kernel_share"].sum())
    if share >= WORTH_SAYING:
        yield f"No rule matches kernels that take {format_share(share)} of the kernel time."


def _where(analysis: Analysis) -> Iterator[str]:
    total = int(analysis.gpus["window_ns"].sum())
    rest = (IDLE, OPAQUE, OUTSIDE, MEMCPY, MEMSET)
    rows = wall_rows(analysis).filter(~pl.col("row").is_in(rest)).head(_MOST_ROWS)
    shares = [(row, ns / total) for row, ns in rows.select("row", "wall_ns").iter_rows() if total]
    named = [f"{row} {format_share(share)}" for row, share in shares if share >= WORTH_SAYING]
    if named:
        yield f"Of the window, most goes to {_joined(named)}."
    opaque = int(wall_rows(analysis).filter(pl.col("row") == OPAQUE)["wall_ns"].sum())
    if total and opaque / total >= WORTH_SAYING:
        yield f"CUDA graphs whose kernels were not recorded may run in {format_share(opaque / total)} of the window."


def _idle(analysis: Analysis) -> Iterator[str]:
    shares = [(gpu, idle / window) for gpu, idle, window in _of_gpus(analysis, "idle_ns", "window_ns") if window]
    if not shares:
        return
    (least_gpu, least), (most_gpu, most) = min(shares, key=lambda s: s[1]), max(shares, key=lambda s: s[1])
    if most < WORTH_SAYING:
        yield f"The GPUs are hardly ever idle: at most {format_share(most)} of the window (GPU {most_gpu})."
    elif len(shares) == 1:
        yield f"GPU {most_gpu} is idle in {format_share(most)} of the window: no kernel and no copy runs."
    else:
        yield (
            f"GPUs are idle in {format_share(least)} (GPU {least_gpu}) to {format_share(most)} (GPU {most_gpu}) of the"
            " window: no kernel and no copy runs."
        )


def _communication(analysis: Analysis) -> Iterator[str]:
    gpus = analysis.gpus
    whole, exposed = int(gpus["communication_ns"].sum()), int(gpus["exposed_communication_ns"].sum())
    if not whole:
        return
    bound = " at most" if gpus["exposed_is_upper_bound"].any() else ""
    yield (
        f"Communication runs for {format_ns(whole)} over all GPUs, and{bound} {format_share(exposed / whole)} of that"
        f" ({format_ns(exposed)}) is exposed: no other kernel runs then."
    )


def _waiting(analysis: Analysis) -> Iterator[str]:
    """Say which GPU communicates much longer than another: kernels of collectives run while they wait."""
    times = [(gpu, ns, window) for gpu, ns, window in _of_gpus(analysis, "communication_ns", "window_ns") if window]
    if len(times) < 2:
        return
    (quick, least, _), (slow, most, window) = min(times, key=lambda t: t[1]), max(times, key=lambda t: t[1])
    if most >= UNEVEN * least and (most - least) / window >= WORTH_SAYING:
        yield (
            f"GPU {slow} spends {format_ns(most)} in communication and GPU {quick} {format_ns(least)}. The kernel of a"
            f" collective runs while it waits, so GPU {slow} most likely waits for GPU {quick}."
        )


def wall_rows(analysis: Analysis) -> pl.DataFrame:
    """Return the wall partition over all GPUs, the longest row first: row, wall_ns."""
    summed = analysis.wall.group_by("row", maintain_order=True).agg(pl.col("wall_ns").sum())
    return summed.sort("wall_ns", descending=True, maintain_order=True)


def _of_gpus(analysis: Analysis, *columns: str) -> list[tuple[str, int, int]]:
    return [(str(gpu), int(a), int(b)) for gpu, a, b in analysis.gpus.select("gpu", *columns).iter_rows()]


def _joined(texts: list[str]) -> str:
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)

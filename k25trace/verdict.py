"""What the figures of an analysis say, in sentences: each names its figures, and none says more than they do."""

from collections.abc import Iterator

import polars as pl

from k25trace.accounting import IDLE, MEMCPY, MEMSET, OPAQUE, OUTSIDE
from k25trace.collectives import Collectives
from k25trace.pairing import COLLECTIVE
from k25trace.results import ALL_GPUS, Analysis, gpu_order
from k25trace.taxonomy import UNCLASSIFIED
from k25trace.units import counted, format_count, format_ns, format_share
from k25trace.waiting import INCONCLUSIVE

WORTH_SAYING = 0.02
"""Parts of the window, or of kernel time, that are smaller are not spoken of."""

UNEVEN = 2.0
"""How many times the communication of one GPU is that of another where one of them seems to wait."""

_MOST_ROWS = 3
_NO_CATEGORY = frozenset({IDLE, OPAQUE, OUTSIDE, MEMCPY, MEMSET})


def verdict(analysis: Analysis, collectives: Collectives | None = None) -> list[str]:
    """Return what the figures say, the most important first.

    Nothing here is a critical path: that a row takes time does not mean that the step would be shorter without it.

    Parameters
    ----------
    collectives
        How long each GPU waits, and for which; None, or inconclusive: guessed from the communication of each GPU.
    """
    waits = None if collectives is None else _waits(analysis, collectives)
    found = [*_worth(analysis), *_where(analysis), *_idle(analysis), *_communication(analysis)]
    return found + (list(_waiting(analysis)) if waits is None else waits)


def _worth(analysis: Analysis) -> Iterator[str]:
    if any(w.level == "error" for w in analysis.warnings):
        yield "The capture is not whole: all figures are of what is left of it. See the warnings."
    unclassified = analysis.categories.filter((pl.col("category") == UNCLASSIFIED) & (pl.col("gpu") == ALL_GPUS))
    share = float(unclassified["kernel_share"].sum())
    if share >= WORTH_SAYING:
        yield f"No rule matches kernels that take {format_share(share)} of the kernel time."


def _where(analysis: Analysis) -> Iterator[str]:
    total = int(analysis.gpus["window_ns"].sum())
    # Down to the third category: what is larger than that is said before it, idle time above all.
    shares = [(str(row), ns / total) for row, ns in wall_rows(analysis).iter_rows() if total]
    worth = [(row, share) for row, share in shares if share >= WORTH_SAYING]
    places = [place for place, (row, _) in enumerate(worth) if row not in _NO_CATEGORY][:_MOST_ROWS]
    named = [f"{row} {format_share(share)}" for row, share in worth[: places[-1] + 1 if places else 0]]
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
    low, high = format_share(least), format_share(most)
    alike = low == high
    who, verb = (_all_of([gpu for gpu, _ in shares]), "is" if len(shares) == 1 else "are")
    if most == 0:
        yield f"{who} {verb} never idle."
    elif most < WORTH_SAYING:
        rarely = high if alike else f"at most {high}"
        yield f"{who} {verb} hardly ever idle: {rarely} of the window{'' if alike else f' (GPU {most_gpu})'}."
    elif alike:
        yield f"{who} {verb} idle in {high} of the window: no kernel and no copy runs."
    else:
        yield (
            f"GPUs are idle in {low} (GPU {least_gpu}) to {high} (GPU {most_gpu}) of the window: no kernel and no copy"
            " runs."
        )


def _all_of(gpus: list[str]) -> str:
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    return "Both GPUs" if len(gpus) == 2 else f"All {format_count(len(gpus))} GPUs"


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


def _waits(analysis: Analysis, collectives: Collectives) -> list[str] | None:
    """Say who waits in collectives, how long, and for whom; None: the timestamps are too coarse to tell."""
    over_all = collectives.sites.filter((pl.col("family") == ALL_GPUS) & pl.col("path").is_null())
    if over_all.height == 0 or over_all["verdict"][0] == INCONCLUSIVE:
        return None
    late = collectives.collectives.select(*COLLECTIVE, "late_gpu")
    waits = (
        collectives.ranks.join(late, on=COLLECTIVE, nulls_equal=True)
        .group_by("gpu", "late_gpu")
        .agg(pl.col("wait_ns").sum())
        .sort("wait_ns", gpu_order(), "late_gpu", descending=[True, False, False])
    )
    windows = dict(analysis.gpus.select("gpu", "window_ns").iter_rows())
    by_gpu = waits.group_by("gpu", maintain_order=True).agg(
        pl.col("wait_ns").sum().alias("all_ns"), pl.col("late_gpu", "wait_ns").first()
    )
    said: list[str] = []
    named_ns = 0
    for gpu, every, late_gpu, most in by_gpu.sort("all_ns", descending=True, maintain_order=True).iter_rows():
        if len(said) < _MOST_ROWS and every and every >= WORTH_SAYING * windows[gpu]:
            part = "" if most == every else f", {format_ns(most)} of it"
            said.append(f"GPU {gpu} waits {format_ns(every)}{part} for GPU {late_gpu}")
            named_ns += every
    if not said:
        return []
    wait, transfer = int(collectives.ranks["wait_ns"].sum()), int(collectives.ranks["transfer_ns"].sum())
    others = by_gpu.filter(pl.col("all_ns") > 0).height - len(said)
    if others:  # so that the parts add up to the whole
        them = "the other GPU waits" if others == 1 else f"{format_count(others)} other GPUs wait"
        said.append(f"{them} {format_ns(wait - named_ns)}")
    left_out = int(collectives.unmatched["kernel_count"].sum())
    told = (
        f"Kernels of collectives wait in {format_ns(wait)} of the {format_ns(wait + transfer)} that they take:"
        f" {'; '.join(said)}."
    )
    if left_out:
        told += f" Left out for want of a match across GPUs: {counted(left_out, 'communication kernel')}."
    return [told]


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

"""Clocks of several reports brought together: by when sessions started, refined by collectives."""

from dataclasses import dataclass

import polars as pl

from k25trace.percentiles import nearest_rank

LARGEST_RESIDUAL_NS = 50_000
"""Clocks whose collectives still end this far apart, in the median, are not aligned."""

_KEY = ["step", "family", "ordinal"]


@dataclass(frozen=True)
class Clock:
    """What is added to the instants of one report to have them in the clock of the first.

    Attributes
    ----------
    shift_ns
        The correction.
    session_shift_ns
        The same from the starts of the sessions alone; None: a report does not say when it started.
    residual_ns
        Median distance, after the correction, between ends of one collective in the two reports; None: there is none.
    collectives
        How many collectives it rests on.
    """

    report: int
    shift_ns: int
    session_shift_ns: int | None
    residual_ns: int | None
    collectives: int

    @property
    def aligned(self) -> bool:
        """Whether instants of the report can be compared with those of the first."""
        return self.residual_ns is not None and self.residual_ns <= LARGEST_RESIDUAL_NS


def session_shift(first_start_ns: int | None, start_ns: int | None) -> int | None:
    """Return the shift that the starts of two sessions (UTC) tell; None where one is unknown."""
    return None if first_start_ns is None or start_ns is None else start_ns - first_start_ns


def align(kernels: pl.DataFrame, session_shifts: dict[int, int | None]) -> list[Clock]:
    """Return the clock of each report, the first one's being that of all.

    Parameters
    ----------
    kernels
        Communication kernels that wait for all ranks: report, step, family, ordinal, end_ns. Kernels of one step,
        family and ordinal are one collective.
    session_shifts
        Report → shift from the starts of the sessions; the first key is the report whose clock is kept.

    Notes
    -----
    The shift is the median, over the collectives that two reports share, of the difference between the means of
    their ranks' ends; a collective that waits for all ends at once everywhere.
    """
    first, *others = session_shifts
    ends = kernels.group_by("report", *_KEY).agg((pl.col("end_ns").sum() // pl.len().cast(pl.Int64)).alias("end_ns"))
    reference = ends.filter(pl.col("report") == first).drop("report")
    clocks = [Clock(first, 0, 0, 0, reference.height)]
    for report in others:
        mine = ends.filter(pl.col("report") == report).drop("report")
        apart = reference.join(mine, on=_KEY, suffix="_mine", nulls_equal=True).select(
            (pl.col("end_ns") - pl.col("end_ns_mine")).alias("apart")
        )
        if apart.height == 0:
            clocks.append(Clock(report, session_shifts[report] or 0, session_shifts[report], None, 0))
            continue
        shift = int(apart.select(nearest_rank("apart", 50)).item())
        residual = int(
            apart.select((pl.col("apart") - shift).abs().alias("apart")).select(nearest_rank("apart", 50)).item()
        )
        clocks.append(Clock(report, shift, session_shifts[report], residual, apart.height))
    return clocks

"""What steps, collectives and gaps add to a timeline: intervals with a text and a note (`scene.MARK_SCHEMA`)."""

from collections.abc import Iterator
from typing import cast

import polars as pl

from k25trace.accounting import IDLE
from k25trace.collectives import Collectives
from k25trace.errors import CannotAnswer
from k25trace.gaps import SHORT, Gaps
from k25trace.pages.why import Why
from k25trace.palette import PARTS, STEP, WAIT
from k25trace.report.text import printable
from k25trace.scene import GAPS, MARK_SCHEMA, STEPS, WAITS
from k25trace.selection import Bounds
from k25trace.steps import Steps
from k25trace.units import format_ns

_NOTE_CHARACTERS = 90


def marks(answers: Why) -> tuple[pl.DataFrame, list[str]]:
    """Return what to draw of the answers, and for those that are missing, why."""
    found = [pl.DataFrame(schema=MARK_SCHEMA)]
    missing: list[str] = []
    if isinstance(answers.steps, str):
        missing.append(f"steps: {answers.steps}")
    else:
        found.append(_steps(answers.steps))
    if isinstance(answers.collectives, str):
        missing.append(f"waits in collectives: {answers.collectives}")
    else:
        found.append(_waits(answers.collectives))
    if isinstance(answers.gaps, str):
        missing.append(f"causes of gaps: {answers.gaps}")
    else:
        found.append(_gaps(answers.gaps))
    return pl.concat(found), missing


def step_bounds(steps: Steps, number: int) -> Bounds:
    """Return from the first start to the last end, over GPUs, of the steps with a number.

    Raises
    ------
    CannotAnswer
        There is none.
    """
    mine = steps.steps.filter(pl.col("index") == number)
    if mine.height == 0:
        last = steps.steps["index"].max()
        raise CannotAnswer(f"no step {number}", f"steps are numbered from 0 to {last}" if steps.steps.height else None)
    start, end = mine["start_ns"].to_list(), mine["end_ns"].to_list()
    return Bounds(min(start), max(end))


def _steps(found: Steps) -> pl.DataFrame:
    rows = found.steps.select("gpu", "start_ns", "end_ns", "index", "name", "kind", "is_outlier").iter_rows()
    told = (
        (gpu, start, end, f"step {index}", f"{name or ''} {kind or ''}".strip() + (", an outlier" if outlier else ""))
        for gpu, start, end, index, name, kind, outlier in rows
    )
    return _made(STEPS, STEP, told)


def _waits(found: Collectives) -> pl.DataFrame:
    # Collectives of several reports are in one clock, which is not that of each.
    shifts = {str(report): int(shift) for report, shift in found.reports.select("report", "shift_ns").iter_rows()}
    late = found.collectives.select("step", "family", "group", "ordinal", "late_gpu", "late_cause")
    keys = ["step", "family", "group", "ordinal"]
    ranks = found.ranks.filter(pl.col("wait_ns") > 0)
    rows = ranks.join(late, on=keys, how="left", nulls_equal=True, maintain_order="left").select(
        "gpu", "start_ns", "wait_ns", "transfer_ns", "family", "late_gpu", "late_cause"
    )
    told = (
        (gpu, start - shift, start - shift + wait, f"wait in {family}", _waited(late_gpu, cause, transfer))
        for gpu, start, wait, transfer, family, late_gpu, cause in rows.iter_rows()
        for shift in (shifts[gpu.partition(":")[0]],)
    )
    return _made(WAITS, WAIT, told)


def _waited(late_gpu: str | None, cause: str | None, transfer_ns: int) -> str:
    last = f"last to come: GPU {late_gpu}" + (f" ({cause})" if cause else "") if late_gpu else "nobody came last"
    return f"{last}; then transfers for {format_ns(transfer_ns)}"


def _gaps(found: Gaps) -> pl.DataFrame:
    rows = found.gaps.filter(pl.col("cause") != SHORT).select("gpu", "start_ns", "end_ns", "cause", "before", "after")
    neighbours = cast("list[str | None]", pl.concat([rows["before"], rows["after"]]).unique().to_list())
    brief = {name: "nothing" if name is None else printable(name, _NOTE_CHARACTERS) for name in neighbours}
    told = (
        (gpu, start, end, f"gap: {cause}", f"after {brief[before]}, before {brief[after]}")
        for gpu, start, end, cause, before, after in rows.iter_rows()
    )
    return _made(GAPS, IDLE, told)


def _made(kind: int, part: str, told: Iterator[tuple[str, int, int, str, str]]) -> pl.DataFrame:
    number = PARTS.index(part)
    rows = [(gpu, kind, start, end, number, text, note) for gpu, start, end, text, note in told]
    return pl.DataFrame(rows, schema=MARK_SCHEMA, orient="row")

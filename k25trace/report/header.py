"""What every output says first: reports, window, GPUs, denominator, warnings."""

from collections.abc import Sequence

import polars as pl

from k25trace.report.choices import By, Request
from k25trace.report.text import printable
from k25trace.results import Analysis
from k25trace.templates import LEAST_SCORE
from k25trace.units import counted, format_ns, format_share

_SELECTORS = {"kernels": "first kernel to last", "window": "--window"}


def facts(analysis: Analysis, request: Request) -> list[tuple[str, str]]:
    """Return the header as (what, text) pairs."""
    gpus = analysis.gpus
    names = sorted({name for name in gpus["name"].to_list() if name})
    several = analysis.reports.height > 1
    found = [(_numbered("report", row, several), _report(row)) for row in analysis.reports.iter_rows(named=True)]
    found += [
        (_numbered("window", row, several), _window(row, gpus, request.step))
        for row in analysis.windows.iter_rows(named=True)
    ]
    found.append(("GPUs", ", ".join(gpus["gpu"]) + (f" ({printable(', '.join(names), 80)})" if names else "")))
    found += _chosen(request)
    found += of_templates(analysis.templates)
    found += _denominators(gpus, per_gpu=request.per_gpu, wall=request.by is By.category)
    if gpus["exposed_is_upper_bound"].any():
        found.append(("exposed", "an upper bound: kernels inside opaque graph replays may hide communication"))
    return found


def of_templates(rows: pl.DataFrame | None) -> list[tuple[str, str]]:
    """Return how graphs go with a template, from the frame that every result with one has."""
    if rows is None:
        return []
    applied, alone = rows.filter("applied"), rows.filter(~pl.col("applied"))
    if rows.height == 0:
        return [("template", "nothing to apply it to: no graph was captured before the recording began")]
    found: list[str] = []
    if applied.height:
        least = format_share(float(applied["score"].to_frame().min().item()))
        found.append(f"{counted(applied.height, 'graph')} named, alike to at least {least}")
    if alone.height:
        found.append(
            f"{counted(alone.height, 'graph')} left without names, alike to less than {format_share(LEAST_SCORE)}"
        )
    return [("template", "; ".join(found))]


def _chosen(request: Request) -> list[tuple[str, str]]:
    """Return what the user's options say of the rows."""
    found: list[tuple[str, str]] = []
    if request.rules:
        found.append(("rules", f"{_listed(request.rules)} first"))
    if request.domains:
        found.append(("domains", f"only ranges of {_listed(request.domains)} own kernels"))
    if request.by in {By.range, By.path}:
        how = (
            "inclusive: time inside a range at any depth, a kernel once for each name"
            if request.inclusive
            else "exclusive: a kernel's time belongs to the innermost range that it was launched in"
        )
        depth = f"; of a path, the outermost {request.depth} are kept" if request.depth is not None else ""
        found.append(("ranges", how + depth))
    return found


def _denominators(gpus: pl.DataFrame, *, per_gpu: bool, wall: bool) -> list[tuple[str, str]]:
    """Return of what shares are shares; ``wall``: whether there are any of the wall time."""
    kernels, kernel_ns, window_ns = (int(gpus[c].sum()) for c in ("kernel_count", "kernel_ns", "window_ns"))
    over = f"over {gpus.height} GPUs" if gpus.height > 1 else "on 1 GPU"
    totals = f"{format_ns(kernel_ns)}, {counted(kernels, 'kernel')} {over}"
    if per_gpu and gpus.height > 1:
        share = f"of the kernel time of the row's GPU; all together {totals}"
        wall_share = (
            f"of the window of the row's GPU; all together {format_ns(window_ns)};"
            " the wall rows of a GPU add up to its window exactly"
        )
    else:
        share = f"of the kernel time: {totals}"
        wall_share = f"of the window: {format_ns(window_ns)} {over}; the wall rows add up to it exactly"
    return [("share", share), *([("wall share", wall_share)] if wall else [])]


def warnings(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the warnings as (level and code, message), worst first."""
    return [(f"{w.level}: {w.code}", printable(w.message)) for w in analysis.warnings]


def _numbered(what: str, row: dict[str, object], several: bool) -> str:
    return f"{what} {row['report']}" if several else what


def _report(row: dict[str, object]) -> str:
    version = f"nsys {row['nsys_version']}" if row["nsys_version"] else "nsys version unknown"
    return f"{printable(str(row['file']))} ({printable(version, 60)})"


def _window(row: dict[str, object], gpus: pl.DataFrame, step: int | None) -> str:
    start, end, pieces = row["start_ns"], row["end_ns"], row["piece_count"]
    if not isinstance(start, int) or not isinstance(end, int) or not isinstance(pieces, int):
        raise TypeError(f"no window: {row}")
    mine = gpus.filter(pl.col("report") == row["report"])
    selector = _SELECTORS.get(str(row["selector"]), "while operations of the selected ranges run")
    if step is not None:
        selector = f"--step {step}"
    if row.get("pattern"):
        selector = f"--range {printable(str(row['pattern']), 60)}: {selector}"
    whole, together = end - start, int(mine["window_ns"].sum())
    if pieces == mine.height and together == whole * mine.height:
        return f"{format_ns(start)} to {format_ns(end)}, {format_ns(whole)} ({selector})"
    over = f"over {mine.height} GPUs" if mine.height > 1 else "on 1 GPU"
    between = f"between {format_ns(start)} and {format_ns(end)}"
    return f"{counted(pieces, 'piece')} {over} {between}, together {format_ns(together)} ({selector})"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(printable, names))

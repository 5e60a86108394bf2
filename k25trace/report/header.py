"""What every output says first: reports, window, GPUs, denominator, warnings."""

from k25trace.report.text import printable
from k25trace.results import Analysis
from k25trace.units import format_count, format_ns

_SELECTORS = {
    "kernels": "first kernel to last",
    "window": "as given",
    "range": "while operations of the selected ranges run",
}


def facts(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the header as (what, text) pairs."""
    gpus = analysis.gpus
    names = sorted({name for name in gpus["name"].to_list() if name})
    kernels, kernel_ns, window_ns = (int(gpus[c].sum()) for c in ("kernel_count", "kernel_ns", "window_ns"))
    several = analysis.reports.height > 1
    found = [(_numbered("report", row, several), _report(row)) for row in analysis.reports.iter_rows(named=True)]
    found += [(_numbered("window", row, several), _window(row)) for row in analysis.windows.iter_rows(named=True)]
    found.append(("GPUs", ", ".join(gpus["gpu"]) + (f" ({printable(', '.join(names), 80)})" if names else "")))
    over = f"over {gpus.height} GPUs" if gpus.height > 1 else "on 1 GPU"
    found.append(("share", f"of the kernel time: {format_ns(kernel_ns)}, {format_count(kernels)} kernels {over}"))
    found.append(("wall share", f"of the window: {format_ns(window_ns)} {over}; the wall rows add up to it exactly"))
    if gpus["exposed_is_upper_bound"].any():
        found.append(("exposed", "an upper bound: kernels inside opaque graph replays may hide communication"))
    return found


def warnings(analysis: Analysis) -> list[tuple[str, str]]:
    """Return the warnings as (level and code, message), worst first."""
    return [(f"{w.level}: {w.code}", printable(w.message)) for w in analysis.warnings]


def _numbered(what: str, row: dict[str, object], several: bool) -> str:
    return f"{what} {row['report']}" if several else what


def _report(row: dict[str, object]) -> str:
    version = f"nsys {row['nsys_version']}" if row["nsys_version"] else "nsys version unknown"
    return f"{printable(str(row['file']))} ({printable(version, 60)})"


def _window(row: dict[str, object]) -> str:
    start, end = row["start_ns"], row["end_ns"]
    if not isinstance(start, int) or not isinstance(end, int):
        raise TypeError(f"no window: {row}")
    selector = _SELECTORS.get(str(row["selector"]), str(row["selector"]))
    pattern = f" {printable(str(row['pattern']), 60)}" if row.get("pattern") else ""
    return f"{format_ns(start)} to {format_ns(end)}, {format_ns(end - start)} ({selector}{pattern})"

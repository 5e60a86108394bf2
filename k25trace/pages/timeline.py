"""The page of ``k25trace timeline``: the bars of a scene at every level of detail that it has room for."""

from collections.abc import Sequence

import polars as pl

from k25trace.accounting import IDLE
from k25trace.figures.timeline import BAR_HALF, lane_labels, overview, places, timeline
from k25trace.levels import NO_ITEM, levels, within
from k25trace.names import kernel_name
from k25trace.pages import parts
from k25trace.pages.legend import LEGEND_LABEL, Entry, chart_label, legend, short_label
from k25trace.pages.shell import as_json, packed, page, text
from k25trace.palette import COLOURS, PARTS, RANGE, STEP, WAIT, ink, part_name
from k25trace.report.choices import Request
from k25trace.report.json_ import build
from k25trace.report.text import UNNAMED, printable
from k25trace.results import ALL_GPUS, Analysis
from k25trace.scene import HOST, KIND_NAMES, START_END, STREAM, Scene
from k25trace.taxonomy import ALL_CATEGORIES
from k25trace.trace.interning import integers
from k25trace.units import SCALES, counted

MOST_BARS = 260_000
"""Bars in a page, over all levels: what makes a page of about 10 MB, half of which is Plotly."""

MOST_MARKS = 4_000
"""Bars drawn at once: more than a screen shows apart, and what a browser draws in a fraction of a second."""

_COARSEST = 1_500
_MOST_FUNCTION = 200
"""Characters of a name that stand in a bar, at most."""


def render(scene: Scene, analysis: Analysis, request: Request, missing: Sequence[str] = ()) -> str:
    """Return the page of a scene.

    Parameters
    ----------
    analysis
        Of the same reports and window; its figures stand in the legend and the tables.
    request
        What was asked for, as the page repeats it.
    missing
        What is not drawn, and why.
    """
    scene = scene.from_zero()
    every = levels(scene.bars, _COARSEST)
    kept = within(every, MOST_BARS)
    items, kept = _used_items(scene, kept)
    left_out = len(every) - len(levels_in(every, kept))
    columns = {
        "item.start": items["start_ns"],
        "item.end": items["end_ns"],
        "item.text": items["text"],
        "item.path": items["path"],
        "item.shape": items["shape"],
        "item.part": items["part"],
        "item.latency": items["latency_ns"],
        "item.bytes": items["bytes"],
        "item.kernels": items["kernel_count"],
        "item.kernel_ns": items["kernel_ns"],
    }
    for number, level in enumerate(kept):
        lanes = pl.Series(range(scene.lanes.height + 1), dtype=pl.UInt32)
        columns |= {
            f"level{number}.first": level["lane"].search_sorted(lanes, side="left").cast(pl.UInt32),
            f"level{number}.start": level["start_ns"],
            f"level{number}.end": level["end_ns"],
            f"level{number}.ns": level["ns"],
            f"level{number}.count": level["count"],
            f"level{number}.part": level["part"],
            f"level{number}.item": level["item"],
        }
    index, blob = packed(columns)
    empty = as_json(timeline(scene, scene.bars.clear(), hover=False, slider=False))
    data: dict[str, object] = {
        "columns": index,
        "units": SCALES,
        "figure": {**empty, "config": _CONFIG},
        "overview": as_json(overview(scene)),
        "parts": [part_name(part) for part in PARTS],
        "inks": [ink(COLOURS[name]) for name in PARTS],
        "host_part": PARTS.index(RANGE),
        "marks": [PARTS.index(name) for name in (STEP, WAIT, IDLE)],
        "bar_half": BAR_HALF,
        "lanes": [
            {"gpu": gpu, "what": label, "y": y, "stream": kind == KIND_NAMES[STREAM]}
            for y, (gpu, kind, label) in zip(
                places(scene.lanes), scene.lanes.select("gpu", "kind", "label").iter_rows(), strict=True
            )
        ],
        "labels": [{"long": label, "short": short_label(label)} for label in lane_labels(scene.lanes) if label],
        "level_count": len(kept),
        "items_left_out": left_out,
        "most_marks": MOST_MARKS,
        "texts": [printable(name) if name.strip() else UNNAMED for name in scene.texts],
        "functions": _functions(scene),
        "kernel_parts": len(ALL_CATEGORIES),
        "totals": _totals(scene),
        "paths": [printable(path) for path in scene.paths],
        "shapes": scene.shapes,
        "ranks": scene.ranks,
        "origin": str(next(iter(scene.shifts.values())) if len(scene.shifts) == 1 else 0),
        "clock": _clock(scene, analysis),
        "end": max(1, scene.end_ns),  # a view has a width
        "attribution": build(analysis, without=("ranges", "inclusive", "kernels")),
    }
    return page(
        "Timeline",
        _body(scene, analysis, request, missing, bottoms_out=left_out > 0),
        data=data,
        blob=blob,
        scripts=("bars.js", "told.js", "slider.js", "search.js", "timeline.js"),
    )


_CONFIG = {
    "displayModeBar": False,
    "responsive": False,
    "doubleClick": False,  # Plotly takes two clicks far apart for one
    "scrollZoom": False,
    "typesetMath": False,
}


def levels_in(every: list[pl.DataFrame], kept: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Return those of all levels that were kept."""
    return every[len(every) - len(kept) :]


def _used_items(scene: Scene, kept: list[pl.DataFrame]) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
    """Return the items that bars of the kept levels are, and the levels with their new numbers."""
    used = kept[0]["item"].unique().sort()
    used = used.filter(used != NO_ITEM).cast(pl.UInt32)
    numbers = pl.DataFrame(
        {
            "item": pl.concat([pl.Series([NO_ITEM], dtype=pl.Int32), used.cast(pl.Int32)]),
            "number": pl.Series(range(-1, used.len()), dtype=pl.Int32),
        }
    )
    renumbered = [
        level.with_columns(
            level.select("item").join(numbers, on="item", how="left", maintain_order="left")["number"].alias("item")
        )
        for level in kept
    ]
    return scene.items[used], renumbered


def _totals(scene: Scene) -> list[list[int] | None]:
    """Return, by text: how often it occurs, how long together, and where first (start, end).

    On the GPUs; on the host where that is the only place.
    """
    on_host = pl.col("kind").is_in([HOST, START_END])
    summed = (
        scene.items.filter(~on_host | on_host.all().over("text"))
        .sort("start_ns", "end_ns")
        .group_by("text")
        .agg(
            pl.len().cast(pl.Int64).alias("count"),
            (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns"),
            pl.col("start_ns", "end_ns").first(),
        )
    )
    found: list[list[int] | None] = [None] * len(scene.texts)
    for number, *figures in summed.iter_rows():
        found[number] = figures
    return found


def _clock(scene: Scene, analysis: Analysis) -> str | None:
    """Return from where the instants of several reports count; None: one report, whose clock they are in."""
    if len(scene.shifts) == 1:
        return None
    whole = set(analysis.windows["selector"]) == {"kernels"}
    return f"counted from each report's {'first kernel' if whole else 'start of the window'}"


def _functions(scene: Scene) -> list[str | None]:
    """Return, by text that names a kernel, the function: what one would call it, without namespaces and arguments."""
    found: list[str | None] = [None] * len(scene.texts)
    for number in integers(scene.items.filter(pl.col("kind") == STREAM)["text"].unique()):
        found[number] = printable(kernel_name(scene.texts[number]).function, _MOST_FUNCTION) or None
    return found


def _body(scene: Scene, analysis: Analysis, request: Request, missing: Sequence[str], *, bottoms_out: bool) -> str:
    reports = ", ".join(file.rsplit("/", 1)[-1] for file in analysis.reports["file"])
    kernels, gpus = counted(int(analysis.gpus["kernel_count"].sum()), "kernel"), counted(analysis.gpus.height, "GPU")
    lead = f"{kernels} on {gpus}. Time runs to the right; each row is a stream, or the ranges around its work."
    if bottoms_out:
        lead += (
            " Too many for one page: where you zoom in furthest, bars still hold several kernels, and --window makes"
            f" a page{' of one report' if len(scene.shifts) > 1 else ''} that has them one by one."
        )
    if len(scene.shifts) > 1:
        lead += " Clocks of different reports differ: each report's window begins at 0."
    notes = [*dict.fromkeys(scene.notes), *missing]
    # Of several reports one expects waits, and sees none where their clocks cannot be compared.
    opened = " open" if len(scene.shifts) > 1 and missing else ""
    label = text(f"{chart_label(analysis)} All figures are in the tables below.")
    chart = (
        f'<div id=plot><div id=chart tabindex=0 role=application aria-label="{label}" aria-describedby=view></div>'
        "<div id=lanes aria-hidden=true></div><svg id=names aria-hidden=true></svg><div id=mark hidden></div></div>"
    )
    return "".join(
        (
            parts.top(f"Timeline of {reports}", lead),
            parts.warnings(analysis),
            _CONTROLS,
            _legend(scene, analysis),
            _SLIDER,
            chart,
            _BELOW,
            "<h2>The figures, in words and tables</h2>",
            parts.about(analysis, request),
            parts.table(analysis.categories.filter(pl.col("gpu") == ALL_GPUS), ("gpu",)),
            "<details><summary>By GPU</summary>",
            parts.table(analysis.gpus),
            parts.table(analysis.categories.filter(pl.col("gpu") != ALL_GPUS)),
            parts.table(analysis.wall),
            "</details>",
            f"<details{opened}><summary>What is not drawn</summary>{parts.listed(notes)}</details>" if notes else "",
        )
    )


_SLIDER = (
    "<div id=slider><div id=overview aria-hidden=true></div><div id=brush hidden>"
    "<span class=shade id=before></span><span class=shade id=after></span>"
    '<button id=from type=button role=slider aria-label="Start of the view"></button><span id=middle></span>'
    '<button id=until type=button role=slider aria-label="End of the view"></button></div></div>'
)

_BELOW = (
    "<div id=tip role=tooltip hidden></div><p id=view role=status></p><p id=detail class=muted></p>"
    '<div id=pin role=region aria-label="Pinned bar" aria-live=polite hidden><div id=pinned tabindex=0></div>'
    "<button id=unpin type=button aria-label=Unpin>&times;</button></div>"
)

_CONTROLS = (
    '<div class=bar role=toolbar aria-label="View"><button id=whole type=button>Whole window</button>'
    '<button id=zoom-in type=button aria-label="Zoom in">+</button>'
    '<button id=zoom-out type=button aria-label="Zoom out">&minus;</button>'
    '<button id=left type=button aria-label="Earlier">&larr;</button>'
    '<button id=right type=button aria-label="Later">&rarr;</button>'
    '<input id=search type=search placeholder="Search kernels and ranges" aria-label="Search kernels and ranges">'
    "<span id=hits role=status class=muted></span></div><ul id=found></ul>"
    "<details><summary class=muted>Keys and mouse</summary><p class=muted>Drag to zoom, double click for the whole"
    " window, click a bar to pin it. <kbd>&larr;</kbd> <kbd>&rarr;</kbd> <kbd>&uarr;</kbd> <kbd>&darr;</kbd> (on the"
    " chart) or <kbd>a</kbd> <kbd>d</kbd> <kbd>w</kbd> <kbd>s</kbd>: earlier, later, in, out. <kbd>0</kbd>: whole"
    " window. <kbd>n</kbd> <kbd>p</kbd>: next and previous bar of the row. <kbd>/</kbd>: search, <kbd>Enter</kbd>:"
    " next hit, with <kbd>Shift</kbd> the one before. <kbd>Ctrl</kbd> and wheel: zoom. The height of the overview is"
    " the part of the time in which kernels run, of several GPUs the mean; kernels that run at once share it."
    "</p></details>"
)


def _legend(scene: Scene, analysis: Analysis) -> str:
    buttons = "".join(map(_legend_button, legend(scene, analysis)))
    return (
        f'<ul id=legend class=legend aria-label="{LEGEND_LABEL}">'
        f"{buttons}<li><button id=all type=button>All or none</button></li></ul>"
    )


def _legend_button(entry: Entry) -> str:
    said = f" <span class=muted>{entry.share}</span>" if entry.share else ""
    spot = f'<span class=swatch style="background:{entry.colour}"></span>'
    label = f"{spot}{text(entry.name)}{said}"
    return f"<li><button type=button data-part={entry.part} aria-pressed=true>{label}</button></li>"

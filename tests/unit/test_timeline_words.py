"""A timeline calls a thing the same in its legend and where a bar says what it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import polars as pl

from k25trace.figures.timeline import timeline_spec
from k25trace.levels import NO_ITEM
from k25trace.pages.legend import legend
from k25trace.pages.make import asked, shown
from k25trace.pages.timeline import render
from k25trace.palette import PARTS, part_name

REPORT = Path(__file__).resolve().parents[1] / "golden" / "h200x2_decode_graph.sqlite"


def test_legend_figure_and_page_have_one_name_for_each_part():
    found = shown([REPORT])
    named = {entry.part: entry.name for entry in legend(found.scene, found.analysis)}
    assert {"gap", "wait in a collective", "host range"} <= set(named.values())
    assert {part: part_name(PARTS[part]) for part in named} == named
    # Alone, and merged with another: the first bar of each part.
    bars = found.scene.bars.unique("part", keep="first", maintain_order=True)
    several = {"item": NO_ITEM, "count": 2}
    merged = bars.with_columns(pl.lit(value, bars.schema[column]).alias(column) for column, value in several.items())
    for each in (bars, merged):
        figure: Any = timeline_spec(found.scene, each, slider=False)
        assert {trace["name"] for trace in figure["data"]} == set(named.values())
        for trace in figure["data"]:
            (said,) = {text for text in trace["text"] if text}
            lines = said.split("<br>")
            assert trace["name"] == (lines[1] if each is bars else re.sub(r"^2 . ", "", lines[0]))
    page = render(found.scene, found.analysis, asked(), found.missing)
    listed = re.search(r'"parts": ?(\[[^\]]*\])', page)
    assert listed is not None
    assert [*map(part_name, PARTS)] == re.findall(r'"([^"]*)"', listed[1])

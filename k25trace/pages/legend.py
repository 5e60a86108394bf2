"""What the colours of a timeline are, and the chart in a sentence: the same words on the page and in the viewer."""

from dataclasses import dataclass

import polars as pl

from k25trace.palette import COLOURS, PARTS, part_name
from k25trace.results import ALL_GPUS, Analysis
from k25trace.scene import Scene
from k25trace.units import format_share

LEGEND_LABEL = "Categories: press to show or hide"


@dataclass(frozen=True)
class Entry:
    """One colour: its index in `k25trace.palette.PARTS`, its name, and its share of the kernel time, if it has one."""

    part: int
    name: str
    colour: str
    share: str


def legend(scene: Scene, analysis: Analysis) -> list[Entry]:
    """Return the parts that occur in a scene, those with the most kernel time first."""
    overall = analysis.categories.filter(pl.col("gpu") == ALL_GPUS)
    shares: dict[str, float] = dict(overall.select("category", "kernel_share").iter_rows())
    order = {category: n for n, category in enumerate(shares)}
    ranked = sorted(scene.parts, key=lambda part: (order.get(PARTS[part], len(order)), part))
    return [
        Entry(part, part_name(name), COLOURS[name], format_share(shares[name]) if name in shares else "")
        for part, name in ((part, PARTS[part]) for part in ranked)
    ]


def chart_label(analysis: Analysis) -> str:
    """Return the chart in a sentence, for those who do not see it."""
    overall = analysis.categories.filter(pl.col("gpu") == ALL_GPUS).head(3)
    most = ", ".join(f"{c} {format_share(s)}" for c, s in overall.select("category", "kernel_share").iter_rows())
    return f"Timeline of GPU work, by stream. Most kernel time: {most}."


def short_label(label: str) -> str:
    """Return the label of a lane for a narrow screen, of which the labels would take most."""
    return label.replace("communication", "comm.").replace("ranges on GPU", "GPU ranges")

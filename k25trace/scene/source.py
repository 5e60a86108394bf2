"""One report as the makers of lanes see it: its window, its kernels and their paths, and the texts of all reports."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from k25trace.attribution import Attribution
from k25trace.replays import Replays
from k25trace.selection import Window
from k25trace.tally import Classes
from k25trace.trace import Trace
from k25trace.trace.interning import ID, Interner


class Words:
    """The texts of a scene, each once."""

    def __init__(self) -> None:
        self.texts, self.paths, self.shapes = Interner[str](), Interner[str](), Interner[str]()
        self.paths.id("")
        self.shapes.id("")


@dataclass(frozen=True)
class Source:
    """One report's share of a scene; ``notes`` grows by what is not drawn."""

    attribution: Attribution
    found: Replays
    window: Window
    classes: Classes
    words: Words
    notes: list[str] = field(default_factory=list[str])

    @property
    def trace(self) -> Trace:
        """The report."""
        return self.attribution.trace

    def ranks(self) -> dict[str, list[int]]:
        """Ranks of the processes that used each GPU."""
        processes = self.trace.processes
        found: dict[str, list[int]] = {}
        for process, _, gpu in self.trace.slots.iter_rows():
            rank = None if process is None else processes[int(process)].rank
            if rank is not None:
                found.setdefault(self.trace.gpus[int(gpu)].key, []).append(rank)
        return found

    def text_of(self, names: pl.Series) -> pl.Series:
        """Return the numbers of the texts of some names."""
        return mapped(names, lambda name: self.words.texts.id(self.trace.names[int(name)]))

    def inside(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return what of an interval frame is in the window, cut at its edges."""
        first, last = self.window.start_ns, self.window.end_ns
        touching = (pl.col("start_ns") < last) & (pl.col("end_ns") > first)
        return frame.filter(touching).with_columns(pl.col("start_ns", "end_ns").clip(first, last))


def mapped(values: pl.Series, number: Callable[[Any], int]) -> pl.Series:
    """Return a number for each value; each distinct value is asked for once, in the order in which they come."""
    distinct = values.unique(maintain_order=True)
    table = pl.DataFrame({"key": distinct, "id": pl.Series([number(v) for v in distinct.to_list()], dtype=ID)})
    return values.to_frame("key").join(table, on="key", how="left", maintain_order="left")["id"]

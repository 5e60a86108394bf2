"""Rows in the order of time, whatever order a file has them in, without holding them all.

Exports are written in time order by some nsys versions, process by process or in no order by others. Rows that
come nearly in order are passed on; others go through temporary files, one for each slab of time.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

SLAB_ROWS = 1 << 16
"""Rows of one slab: what is held at a time is a few of them."""

_SAMPLED = 64


@dataclass
class Order:
    """In what order the chunks of a table come: what a first pass finds out for a second one.

    Attributes
    ----------
    spans
        First and last ``start_ns`` of each chunk that has rows.
    sample
        Every 64th ``start_ns``.
    rows
        Rows of all chunks.
    """

    spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    sample: list[pl.Series] = field(default_factory=list[pl.Series])
    rows: int = 0

    def see(self, chunk: pl.DataFrame) -> None:
        """Take note of the next chunk."""
        if chunk.height:
            starts = chunk["start_ns"]
            first, last = starts.min(), starts.max()
            if isinstance(first, int) and isinstance(last, int):
                self.spans.append((first, last))
            self.sample.append(starts.gather_every(_SAMPLED))
            self.rows += chunk.height

    @property
    def nearly_sorted(self) -> bool:
        """Whether every chunk begins after all but its neighbour before it has ended."""
        firsts = [first for first, _ in self.spans]
        later = zip(self.spans, firsts[2:], strict=False)
        return firsts == sorted(firsts) and all(last <= first for (_, last), first in later)

    @property
    def borders(self) -> pl.Series:
        """Instants that cut the rows into slabs of about `SLAB_ROWS`."""
        starts = pl.concat([pl.Series([], dtype=pl.Int64), *self.sample]).sort()
        count = self.rows // SLAB_ROWS
        return starts.gather([starts.len() * i // (count + 1) for i in range(1, count + 1)]).unique().sort()


def in_time_order(
    chunks: Callable[[], Iterable[pl.DataFrame]], order: Order
) -> Iterator[tuple[pl.DataFrame, int | None]]:
    """Yield all rows in slabs, each with the instant before which no row follows (None: it is the last).

    Parameters
    ----------
    chunks
        Gives the chunks, once; frames with ``start_ns``.
    order
        What a pass over the same chunks found.
    """
    if order.nearly_sorted:
        yield from _passed_on(chunks())
        return
    with tempfile.TemporaryDirectory(prefix="k25trace-") as folder:
        yield from _sorted_out(chunks(), order.borders, Path(folder))


def _passed_on(chunks: Iterable[pl.DataFrame]) -> Iterator[tuple[pl.DataFrame, int | None]]:
    """Yield each chunk when the one after it is known: rows may be out of order by one chunk."""
    held: pl.DataFrame | None = None
    for chunk in chunks:
        first = chunk["start_ns"].min()
        if isinstance(first, int):
            if held is not None:
                yield held, first
            held = chunk
    if held is not None:
        yield held, None


def _sorted_out(
    chunks: Iterable[pl.DataFrame], borders: pl.Series, folder: Path
) -> Iterator[tuple[pl.DataFrame, int | None]]:
    """Write each slab's rows to files of its own, then read slab after slab."""
    files: dict[int, list[Path]] = {}
    for number, chunk in enumerate(chunks):
        slab = borders.search_sorted(chunk["start_ns"], side="right")
        for (place,), rows in chunk.with_columns(slab.alias("slab")).partition_by("slab", as_dict=True).items():
            file = folder / f"{place}-{number}.arrow"
            rows.drop("slab").write_ipc(file)
            files.setdefault(place, []).append(file)
    for place in sorted(files):
        rows = pl.concat([pl.read_ipc(file) for file in files[place]])
        for file in files[place]:
            file.unlink()
        yield rows, borders[place] if place < borders.len() else None

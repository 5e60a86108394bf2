"""Where the time of a GPU goes: sums, unions and the wall partition, in one pass over intervals.

Every interval on a GPU belongs to a *part*: a category's kernels (NCCL's own apart), kernels outside the
selection, opaque replays, copies, the window. A sweep finds which parts run at each instant; busy,
communication and exposed time, and the rows of the wall partition, are all read off that one result. The sweep
takes its intervals in slabs of time, so that its memory does not grow with the report.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import polars as pl

from k25trace.intervals import occupancy, runs
from k25trace.ordering import SLAB_ROWS
from k25trace.taxonomy import ALL_CATEGORIES, is_communication

OUTSIDE, OPAQUE, MEMCPY, MEMSET, IDLE = "outside selection", "opaque graph", "memcpy", "memset", "idle"

WALL_ROWS: tuple[str, ...] = (
    *(f"exposed {c}" if is_communication(c) else c for c in ALL_CATEGORIES),
    *(OUTSIDE, OPAQUE, MEMCPY, MEMSET, IDLE),
)
"""The rows of the wall partition, in the order in which indivisible nanoseconds are handed out."""


@dataclass(frozen=True)
class Part:
    """What an interval on a GPU can belong to: the wall row it may own, and what it counts as."""

    row: str | None
    category: str | None = None
    is_kernel: bool = False
    is_communication: bool = False
    is_nccl: bool = False


def _parts() -> list[Part]:
    parts = [
        Part(row, c, is_kernel=True, is_communication=is_communication(c))
        for row, c in zip(WALL_ROWS, ALL_CATEGORIES, strict=False)
    ]
    parts += [
        Part(p.row, p.category, is_kernel=True, is_communication=True, is_nccl=True)
        for p in parts
        if p.is_communication
    ]
    parts += [
        Part(OUTSIDE, is_kernel=True, is_communication=comm, is_nccl=nccl)
        for comm, nccl in ((False, False), (True, False), (True, True))
    ]
    return [*parts, *(Part(row) for row in (OPAQUE, MEMCPY, MEMSET)), Part(None)]


PARTS: tuple[Part, ...] = tuple(_parts())
"""The parts; an interval's ``part`` is an index into them. The last is the window."""

_WINDOW = len(PARTS) - 1
_NUMBER = {(p.row, p.category, p.is_communication, p.is_nccl): i for i, p in enumerate(PARTS)}


def _mask(chosen: Iterable[int]) -> int:
    return sum(1 << i for i in chosen)


_KERNEL = _mask(i for i, p in enumerate(PARTS) if p.is_kernel)
_COMMUNICATION = _mask(i for i, p in enumerate(PARTS) if p.is_communication)
_COMPUTE = _KERNEL & ~_COMMUNICATION
_SELECTED_COMMUNICATION = _mask(i for i, p in enumerate(PARTS) if p.is_communication and p.category)
_NCCL = _mask(i for i, p in enumerate(PARTS) if p.is_nccl and p.category)


def kernel_part(category: str, *, nccl: bool) -> int:
    """Return the part of a selected kernel of this category."""
    comm = is_communication(category)
    return _NUMBER[WALL_ROWS[ALL_CATEGORIES.index(category)], category, comm, nccl and comm]


def outside_part(category: str, *, nccl: bool) -> int:
    """Return the part of a kernel outside the selection."""
    comm = is_communication(category)
    return _NUMBER[OUTSIDE, None, comm, nccl and comm]


def row_part(row: str) -> int:
    """Return the part of what is no kernel: an opaque replay, a copy or a set."""
    return _NUMBER[row, None, False, False]


def owners(mask: int) -> tuple[str, ...]:
    """Return the wall rows that own an instant at which the parts of ``mask`` run.

    Kernels that are no communication, else opaque replays, else communication, else copies, else idle.
    """
    for level in (
        _COMPUTE,
        1 << row_part(OPAQUE),
        _COMMUNICATION,
        1 << row_part(MEMCPY) | 1 << row_part(MEMSET),
    ):
        if mask & level:
            rows = {part.row for i, part in enumerate(PARTS) if mask & level & 1 << i}
            return tuple(row for row in WALL_ROWS if row in rows)
    return (IDLE,)


@dataclass
class Account:
    """What a sweep found on one GPU: time by set of running parts, and the wall partition.

    Attributes
    ----------
    by_mask
        Set of running parts (bit i: `PARTS` i) → ns of the window in which exactly they ran.
    wall
        Wall row → ns; sums to the window.
    """

    by_mask: Counter[int] = field(default_factory=Counter[int])
    wall: Counter[str] = field(default_factory=Counter[str])

    @property
    def window_ns(self) -> int:
        """Length of the window on this GPU."""
        return self.by_mask.total()

    @property
    def busy_ns(self) -> int:
        """Length of the union of kernel intervals, selected or not."""
        return self._while(_KERNEL)

    @property
    def communication_ns(self) -> int:
        """Length of the union of the selected communication kernels."""
        return self._while(_SELECTED_COMMUNICATION)

    @property
    def exposed_communication_ns(self) -> int:
        """Communication time during which no other kernel runs."""
        return self._while(_SELECTED_COMMUNICATION, without=_COMPUTE)

    @property
    def nccl_ns(self) -> int:
        """Length of the union of NCCL's own kernels."""
        return self._while(_NCCL)

    @property
    def exposed_nccl_ns(self) -> int:
        """NCCL time during which no other kernel runs, custom collectives being others."""
        return self._while(_NCCL, without=_KERNEL & ~_NCCL)

    def category_ns(self, category: str) -> int:
        """Length of the union of a category's selected kernels."""
        return self._while(_mask(i for i, part in enumerate(PARTS) if part.category == category))

    def _while(self, parts: int, without: int = 0) -> int:
        return sum(ns for mask, ns in self.by_mask.items() if mask & parts and not mask & without)


class Sweep:
    """The wall partition of many GPUs at once, fed in slabs of time.

    Parameters
    ----------
    windows
        gpu, start_ns, end_ns: the pieces of the window on each GPU.
    """

    def __init__(self, windows: pl.DataFrame) -> None:
        self._accounts: dict[int, Account] = {gpu: Account() for gpu in windows["gpu"].unique().sort().to_list()}
        self._waiting = windows.select("gpu", "start_ns", "end_ns", pl.lit(_WINDOW, pl.UInt8).alias("part"))
        self._since: int | None = None
        # Maximal intervals with several owners that reach the edge of what was swept: they may go on after it.
        self._open = pl.DataFrame(
            schema={"gpu": windows.schema["gpu"], "start_ns": pl.Int64, "end_ns": pl.Int64, "owners": pl.Int64}
        )
        self._owners: dict[int, int] = {}

    def add(self, intervals: pl.DataFrame) -> None:
        """Add intervals (gpu, start_ns, end_ns, part) that start at or after everything swept so far."""
        self._waiting = pl.concat([self._waiting, intervals.select("gpu", "start_ns", "end_ns", "part")])

    def advance(self, until_ns: int | None) -> None:
        """Sweep all instants before ``until_ns`` (None: all): no interval added later may start before it."""
        waiting = self._waiting
        if until_ns is None:
            now, self._waiting = waiting, waiting.clear()
        else:
            now = waiting.filter(pl.col("start_ns") < until_ns).with_columns(
                pl.col("end_ns").clip(upper_bound=until_ns)
            )
            self._waiting = waiting.filter(pl.col("end_ns") > until_ns).with_columns(
                pl.col("start_ns").clip(lower_bound=until_ns)
            )
        window = 1 << _WINDOW
        segments = (
            occupancy(now, ["gpu"], "part").filter(pl.col("mask") & window != 0).with_columns(pl.col("mask") ^ window)
        )
        shared = self._count_masks(segments)
        # What one row owns alone is known from the masks; where several do, the length of each maximal interval counts.
        several = segments.filter(pl.col("mask").is_in(shared)) if shared else segments.clear()
        codes = several["mask"].replace_strict(self._owners, return_dtype=pl.Int64).alias("owners")
        whole = runs(several.select("gpu", "start_ns", "end_ns", codes), by=["gpu"], of="owners")
        goes_on = pl.col("start_ns") == self._since if self._since is not None else pl.lit(value=False)
        joined = pl.concat([self._open, whole.filter(goes_on)]).sort("gpu", "start_ns")
        whole = pl.concat([runs(joined, by=["gpu"], of="owners"), whole.filter(~goes_on)])
        self._since = until_ns
        self._open = whole.filter(pl.col("end_ns") == until_ns) if until_ns is not None else whole.clear()
        self._hand_out(whole.filter(pl.col("end_ns") != until_ns) if until_ns is not None else whole)

    def finish(self) -> dict[int, Account]:
        """Sweep the rest and return the account of each GPU."""
        self.advance(None)
        for account in self._accounts.values():
            for mask, ns in account.by_mask.items():
                rows = owners(mask)
                if len(rows) == 1:
                    account.wall[rows[0]] += ns
        return self._accounts

    def _count_masks(self, segments: pl.DataFrame) -> list[int]:
        """Add up the time of each mask, and return those masks that several rows own."""
        spans = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("ns")
        for gpu, mask, ns in segments.group_by("gpu", "mask").agg(spans).iter_rows():
            self._accounts[gpu].by_mask[mask] += ns
            if mask not in self._owners:
                self._owners[mask] = _mask(WALL_ROWS.index(row) for row in owners(mask))
        return [mask for mask, code in self._owners.items() if code.bit_count() > 1]

    def _hand_out(self, whole: pl.DataFrame) -> None:
        """Give each maximal interval to its owners: d // k to each of k, and one more to the first d % k."""
        share = pl.col("owners").bitwise_count_ones().cast(pl.Int64)
        span = pl.col("end_ns") - pl.col("start_ns")
        shares = whole.group_by("gpu", "owners", (span % share).alias("rest")).agg(
            (span // share).sum().alias("each"), pl.len().alias("intervals")
        )
        for gpu, code, rest, each, intervals in shares.iter_rows():
            rows = [row for i, row in enumerate(WALL_ROWS) if code >> i & 1]
            for place, row in enumerate(rows):
                self._accounts[gpu].wall[row] += each + (intervals if place < rest else 0)


def slabs(intervals: pl.DataFrame, rows: int = 4 * SLAB_ROWS) -> Iterator[tuple[pl.DataFrame, int | None]]:
    """Cut intervals, in any order, into slabs of time: each with the instant before which it is complete."""
    # Slabs are picked by an order, not cut from a sorted copy: at ten million kernels that copy is a quarter gigabyte.
    starts = intervals["start_ns"]
    order = None if starts.is_sorted() else starts.arg_sort()
    for at in range(0, intervals.height, rows):
        slab = intervals.slice(at, rows) if order is None else intervals[order.slice(at, rows)]
        following = at + rows
        until = None if following >= intervals.height else starts[following if order is None else order[following]]
        yield slab, until

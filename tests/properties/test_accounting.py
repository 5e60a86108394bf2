"""The sweep against a literal walk over instants; who owns an instant; what slabs cannot change."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from k25trace.accounting import IDLE, MEMCPY, MEMSET, OPAQUE, PARTS, WALL_ROWS, Account, Sweep, owners, slabs
from k25trace.taxonomy import ALL_CATEGORIES, is_communication

SPAN = {"gpu": pl.UInt32, "start_ns": pl.Int64, "end_ns": pl.Int64}
WINDOW = len(PARTS) - 1
SLABS = st.sampled_from([1, 2, 3, 100])

Interval = tuple[int, int, int, int]
Piece = tuple[int, int, int]

gpus = st.integers(0, 1)
intervals = st.lists(
    st.tuples(gpus, st.integers(0, 40), st.integers(0, 12), st.integers(0, WINDOW - 1)).map(
        lambda x: (x[0], x[1], x[1] + x[2], x[3])
    ),
    max_size=14,
)
one_piece = st.tuples(st.integers(0, 20), st.integers(1, 25)).map(lambda x: (x[0], x[0] + x[1]))


@st.composite
def windows(draw: st.DrawFn) -> list[Piece]:
    """Draw one or two pieces of the window on each GPU; they may overlap or touch."""
    return [(gpu, *piece) for gpu in (0, 1) for piece in draw(st.lists(one_piece, min_size=1, max_size=2))]


def swept(given_: list[Interval], pieces: list[Piece], rows: int, shuffle: int | None = None) -> dict[int, Account]:
    """Return the accounts; ``shuffle`` is the seed of another order of the rows of each slab."""
    sweep = Sweep(pl.DataFrame(pieces, schema=SPAN, orient="row"))
    for slab, until in slabs(pl.DataFrame(given_, schema={**SPAN, "part": pl.UInt8}, orient="row"), rows):
        order = list(range(slab.height))
        if shuffle is not None:
            random.Random(shuffle).shuffle(order)
        sweep.add(slab[order])
        if until is not None:
            sweep.advance(until)
    return sweep.finish()


class Walk(NamedTuple):
    """What each instant of the window says: which parts run, and who owns it."""

    masks: dict[int, int]
    wall: Counter[str]


def walked(given_: list[Interval], pieces: list[Piece], gpu: int) -> Walk:
    """Go through every nanosecond of a GPU's window."""
    masks = {t: 0 for on, start, end in pieces if on == gpu for t in range(start, end)}
    for on, start, end, part in given_:
        for t in range(start, end):
            if on == gpu and t in masks:
                masks[t] |= 1 << part
    wall: Counter[str] = Counter()
    run: list[int] = []
    for t in [*sorted(masks), None]:
        if run and (t is None or t != run[-1] + 1 or owners(masks[t]) != owners(masks[run[-1]])):
            among = owners(masks[run[0]])
            for i in range(len(run)):  # d // k each, and one more for the first d % k: dealt out in turn
                wall[among[i % len(among)]] += 1
            run = []
        if t is not None:
            run.append(t)
    return Walk(masks, wall)


@given(given_=intervals, pieces=windows(), rows=SLABS)
def test_the_sweep_finds_what_a_walk_over_instants_finds(
    given_: list[Interval], pieces: list[Piece], rows: int
) -> None:
    for gpu, account in swept(given_, pieces, rows).items():
        walk = walked(given_, pieces, gpu)
        assert +account.by_mask == Counter(walk.masks.values())
        assert +account.wall == walk.wall


@given(given_=intervals, pieces=windows(), rows=SLABS)
def test_wall_rows_sum_to_the_window(given_: list[Interval], pieces: list[Piece], rows: int) -> None:
    for gpu, account in swept(given_, pieces, rows).items():
        instants = {t for on, start, end in pieces if on == gpu for t in range(start, end)}
        assert account.wall.total() == account.window_ns == len(instants)


@given(given_=intervals, pieces=windows(), seed=st.integers(0, 99))
def test_neither_slabs_nor_the_order_of_rows_matter(given_: list[Interval], pieces: list[Piece], seed: int) -> None:
    whole = swept(given_, pieces, 100)
    for rows in (1, 3, 100):
        for shuffle in (None, seed) if rows > 1 else (None,):
            for gpu, account in swept(given_, pieces, rows, shuffle).items():
                assert +account.by_mask == +whole[gpu].by_mask
                assert +account.wall == +whole[gpu].wall


@given(given_=intervals, pieces=windows())
def test_unions_count_the_instants_at_which_anything_of_theirs_runs(
    given_: list[Interval], pieces: list[Piece]
) -> None:
    for gpu, account in swept(given_, pieces, 3).items():
        masks = walked(given_, pieces, gpu).masks.values()
        running = [[part for i, part in enumerate(PARTS) if mask >> i & 1] for mask in masks]
        selected = [[p for p in at if p.category] for at in running]
        comm = [any(p.is_communication for p in at) for at in selected]
        nccl = [any(p.is_nccl for p in at) for at in selected]
        compute = [any(p.is_kernel and not p.is_communication for p in at) for at in running]
        not_nccl = [any(p.is_kernel and not (p.is_nccl and p.category) for p in at) for at in running]
        assert account.busy_ns == sum(any(p.is_kernel for p in at) for at in running)
        assert account.communication_ns == sum(comm)
        assert account.nccl_ns == sum(nccl)
        assert account.exposed_communication_ns == sum(c and not k for c, k in zip(comm, compute, strict=True))
        assert account.exposed_nccl_ns == sum(n and not k for n, k in zip(nccl, not_nccl, strict=True))
        for category in ALL_CATEGORIES:
            assert account.category_ns(category) == sum(any(p.category == category for p in at) for at in running)


@given(st.sets(st.integers(0, WINDOW - 1), max_size=5), st.booleans())
def test_compute_then_replays_then_communication_then_copies_own_an_instant(running: set[int], in_window: bool) -> None:
    parts = [PARTS[i] for i in running]
    levels = [
        {p.row for p in parts if p.is_kernel and not p.is_communication},
        {p.row for p in parts if p.row == OPAQUE},
        {p.row for p in parts if p.is_communication},
        {p.row for p in parts if p.row in (MEMCPY, MEMSET)},
        {IDLE},
    ]
    mask = sum(1 << i for i in running) | in_window << WINDOW
    assert owners(mask) == tuple(sorted(next(filter(None, levels)), key=WALL_ROWS.index))


def test_communication_owns_its_exposed_row_and_others_their_category() -> None:
    for part in PARTS:
        if part.category:
            assert part.is_communication == is_communication(part.category)
            assert part.row == ("exposed " if part.is_communication else "") + part.category


@given(given_=intervals, rows=SLABS)
def test_slabs_hold_every_row_once_and_are_complete_before_their_instant(given_: list[Interval], rows: int) -> None:
    frame = pl.DataFrame(given_, schema={**SPAN, "part": pl.UInt8}, orient="row")
    cut = list(slabs(frame, rows))
    assert sorted(row for slab, _ in cut for row in slab.rows()) == sorted(given_)
    for i, (slab, until) in enumerate(cut):
        later = [row[1] for rest, _ in cut[i + 1 :] for row in rest.rows()]
        assert slab.height <= rows
        assert (until is None) == (not later)
        assert until is None or min(later) >= until

"""Unions and the wall partition of half-open intervals, in numpy."""

from __future__ import annotations

import numpy as np

from synthetic.kernels import ROWS, TAXONOMY


def merge(s, e):
    """Sorted, disjoint, not touching intervals that cover the same as [s, e)."""
    if len(s) == 0:
        return s, e
    o = np.argsort(s, kind="stable")
    s, reach = s[o], np.maximum.accumulate(e[o])
    first = np.flatnonzero(np.concatenate([[True], s[1:] > reach[:-1]]))
    return s[first], reach[np.append(first[1:], len(s)) - 1]


def union_ns(s, e):
    a, b = merge(s, e)
    return int((b - a).sum())


def partition(parts, lo, hi):
    """Wall partition of [lo, hi) -> ({row: ns}, start and end of its idle pieces).

    parts: {row index: (s, e) merged}.
    """
    bits = {r: 1 << r for r in range(len(ROWS))}
    idle, opaque = bits[ROWS.index("idle")], bits[ROWS.index("opaque graph")]
    comm = sum(bits[i] for i, c in enumerate(TAXONOMY) if c.startswith("comm."))
    other = sum(bits[i] for i, c in enumerate(TAXONOMY)) - comm
    mem = bits[ROWS.index("memcpy")] | bits[ROWS.index("memset")]
    t = np.concatenate([x for s, e in parts.values() for x in (s, e)] or [np.zeros(0, np.int64)])
    d = np.concatenate(
        [x for r, (s, e) in parts.items() for x in (np.full(len(s), bits[r]), np.full(len(e), -bits[r]))]
        or [np.zeros(0, np.int64)]
    )
    o = np.argsort(t, kind="stable")
    t, m = t[o], np.cumsum(d[o])
    keep = np.append(t[1:] != t[:-1], True) if len(t) else np.zeros(0, bool)
    t, m = np.clip(t[keep], lo, hi), m[keep]
    edge = np.concatenate([[lo], t, [hi]])
    m = np.concatenate([[0], m])
    own = np.where(
        m & other,
        m & other,
        np.where(m & opaque, opaque, np.where(m & comm, m & comm, np.where(m & mem, m & mem, idle))),
    )
    real = edge[1:] > edge[:-1]
    start, own = edge[:-1][real], own[real]
    first = np.flatnonzero(np.concatenate([[True], own[1:] != own[:-1]])) if len(own) else np.zeros(0, int)
    start, own = start[first], own[first]
    end = np.append(start[1:], hi) if len(start) else start
    length = end - start
    wall = {}
    for mask in np.unique(own):
        rows = [r for r in range(len(ROWS)) if mask >> r & 1]
        x, k = length[own == mask], len(rows)
        for i, r in enumerate(rows):
            wall[ROWS[r]] = wall.get(ROWS[r], 0) + int((x // k).sum() + (x % k > i).sum())
    return {r: wall[r] for r in ROWS if r in wall}, start[own == idle], end[own == idle]

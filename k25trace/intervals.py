"""Half-open integer-nanosecond intervals on frames: union, length, intersection, difference, clipping, occupancy.

An interval frame has ``start_ns`` and ``end_ns`` (Int64, ``[start_ns, end_ns)``) and any number of key columns;
every function works within each combination of the keys given as ``by``. Empty intervals cover nothing.
Knows nothing of kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from k25trace.packing import Packing

BITS = 63
"""How many different parts `occupancy` can tell apart: the bits of a non-negative Int64."""


def union(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the disjoint, maximal intervals that cover the same instants.

    Parameters
    ----------
    intervals
        Interval frame in any order; intervals may overlap, touch or be empty.
    by
        Key columns; nothing is merged across keys.

    Returns
    -------
    pl.DataFrame
        ``by``, ``start_ns``, ``end_ns``, ordered by ``by`` and ``start_ns``. Touching intervals are one.

    Examples
    --------
    >>> a = pl.DataFrame({"start_ns": [0, 4, 9], "end_ns": [5, 7, 9]})
    >>> union(a).rows()
    [(0, 7)]
    """
    line, axis = _on_one_line(intervals, by)
    return axis.restore(_merge(line))


def length(intervals: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the length of the union of intervals, ``|A|``.

    Returns
    -------
    pl.DataFrame
        ``by`` and ``length_ns`` (Int64), one row a key that has intervals; without ``by`` always one row.
    """
    spans = (pl.col("end_ns") - pl.col("start_ns")).sum().alias("length_ns")
    merged = union(intervals, by)
    return merged.group_by(*by, maintain_order=True).agg(spans) if by else merged.select(spans)


def clip(intervals: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame:
    """Return the parts of intervals inside ``[start_ns, end_ns)``; all columns are kept, empty parts are not."""
    return intervals.with_columns(
        pl.col("start_ns").clip(lower_bound=start_ns), pl.col("end_ns").clip(upper_bound=end_ns)
    ).filter(pl.col("end_ns") > pl.col("start_ns"))


def occupancy(intervals: pl.DataFrame, by: Sequence[str] = (), bit: str = "bit") -> pl.DataFrame:
    """Return which parts are covered when: the maximal intervals over which the set of covered parts is unchanged.

    Parameters
    ----------
    intervals
        Interval frame with the integer column ``bit`` (0 to 62): the part an interval belongs to. Intervals
        of one part may overlap.
    by
        Key columns.
    bit
        Name of the column with the part.

    Returns
    -------
    pl.DataFrame
        ``by``, ``start_ns``, ``end_ns``, ``mask`` (Int64, bit i set where part i is covered), ordered by
        ``by`` and ``start_ns``; instants that nothing covers have no row.

    Examples
    --------
    >>> a = pl.DataFrame({"start_ns": [0, 5], "end_ns": [10, 7], "bit": [0, 1]})
    >>> occupancy(a).rows()
    [(0, 5, 1), (5, 7, 3), (7, 10, 1)]
    """
    line, axis = _on_one_line(intervals, [*by, bit])
    merged = _merge(line)
    per_key = axis.without(bit)
    code = axis.code_of(merged["start_ns"])
    part = axis.keys[bit].cast(pl.Int64).gather(code)
    weight = pl.Series([1 << i for i in range(BITS)], dtype=pl.Int64).gather(part)
    start, end = (per_key.move(axis, merged[c], code) for c in ("start_ns", "end_ns"))
    edges = pl.DataFrame({"at": pl.concat([start, end]), "change": pl.concat([weight, -weight])}).sort("at")
    # Every key's changes add up to zero, so one running sum over all of them starts at zero for each.
    stepped = edges.select("at", pl.col("change").cum_sum().alias("mask")).filter(
        pl.col("at").ne_missing(pl.col("at").shift(-1))
    )
    changed = stepped.filter(pl.col("mask").ne_missing(pl.col("mask").shift(1)))
    segments = changed.select(pl.col("at").alias("start_ns"), pl.col("at").shift(-1).alias("end_ns"), "mask").filter(
        pl.col("mask") != 0
    )
    return per_key.restore(segments)


@dataclass(frozen=True)
class _Axis:
    """Keys and instants as one Int64 axis, so that one sort and one scan serve all keys at once.

    The position of instant t of the key with number c is ``c << shift | (t - origin)``; where that does not fit
    63 bits, instants are replaced by their rank among all instants (`ranks`) first.
    """

    keys: pl.DataFrame
    shift: int
    origin: int
    ranks: pl.Series | None

    def code_of(self, position: pl.Series) -> pl.Series:
        return position // (1 << self.shift)

    def instant_of(self, position: pl.Series) -> pl.Series:
        instant = position % (1 << self.shift)
        return self.ranks.gather(instant) if self.ranks is not None else instant + self.origin

    def without(self, column: str) -> "_Axis":
        """Return the axis of the other keys."""
        rest = self.keys.drop(column)
        keys = rest.unique(maintain_order=True) if rest.width else pl.DataFrame({"": [0]})
        return _Axis(keys, self.shift, self.origin, self.ranks)

    def move(self, other: "_Axis", position: pl.Series, code: pl.Series) -> pl.Series:
        """Return positions of ``other``, which has a key column more, as positions of this axis."""
        columns = [c for c in self.keys.columns if c]
        if columns:
            numbered = self.keys.with_row_index("code")
            codes = other.keys.join(numbered, on=columns, how="left", maintain_order="left", nulls_equal=True)["code"]
        else:
            codes = pl.repeat(0, other.keys.height, eager=True)
        return codes.cast(pl.Int64).gather(code) * (1 << self.shift) + position % (1 << self.shift)

    def restore(self, line: pl.DataFrame) -> pl.DataFrame:
        """Return a frame of positions as one of keys and instants."""
        code = self.code_of(line["start_ns"])
        keys = [self.keys[c].gather(code) for c in self.keys.columns if c]
        rest = [line[c] for c in line.columns if c not in {"start_ns", "end_ns"}]
        times = [self.instant_of(line[c]).alias(c) for c in ("start_ns", "end_ns")]
        return pl.DataFrame([*keys, *times, *rest])


def _on_one_line(intervals: pl.DataFrame, by: Sequence[str]) -> tuple[pl.DataFrame, _Axis]:
    """Return the non-empty intervals as positions on one axis (``start_ns``, ``end_ns``), and that axis."""
    frame = intervals.select(*by, "start_ns", "end_ns").filter(pl.col("end_ns") > pl.col("start_ns"))
    if by:
        code, keys = Packing.of([frame], by).numbered(frame)
    else:
        code, keys = pl.repeat(0, frame.height, dtype=pl.Int64, eager=True), pl.DataFrame({"": [0]})
    start, end = frame["start_ns"], frame["end_ns"]
    origin = _as_int(start.min())
    shift = (_as_int(end.max()) - origin).bit_length()
    ranks = None
    if shift + keys.height.bit_length() > BITS:
        ranks = pl.concat([start, end]).unique().sort()
        start, end = (ranks.search_sorted(times).cast(pl.Int64) for times in (start, end))
        origin, shift = 0, ranks.len().bit_length()
    base = code * (1 << shift) - origin
    return pl.DataFrame({"start_ns": base + start, "end_ns": base + end}), _Axis(keys, shift, origin, ranks)


def _merge(line: pl.DataFrame) -> pl.DataFrame:
    """Return the union of intervals on one axis: a key's last position is below the next key's first."""
    ordered = line.sort("start_ns")
    reach = ordered["end_ns"].cum_max()
    begins = (ordered["start_ns"] > reach.shift(1)).fill_null(value=True)
    ends = begins.shift(-1, fill_value=True)
    return pl.DataFrame({"start_ns": ordered["start_ns"].filter(begins), "end_ns": reach.filter(ends)})


def _as_int(value: object) -> int:
    return value if isinstance(value, int) else 0


def runs(segments: pl.DataFrame, by: Sequence[str], of: str) -> pl.DataFrame:
    """Merge touching neighbours with the same key and the same value of ``of``.

    Parameters
    ----------
    segments
        Disjoint interval frame, ordered by ``by`` and ``start_ns``; its other columns are dropped.

    Returns
    -------
    pl.DataFrame
        ``by``, ``start_ns``, ``end_ns``, ``of``, in the same order.
    """
    differs = [pl.col(c).ne_missing(pl.col(c).shift(1)) for c in [*by, of]]
    begins = segments.select(
        pl.any_horizontal(*differs, pl.col("start_ns").ne_missing(pl.col("end_ns").shift(1))).alias("begins")
    )["begins"]
    ends = begins.shift(-1, fill_value=True)
    first = segments.filter(begins)
    return first.select(*by, "start_ns", segments["end_ns"].filter(ends), of)


def intersect(left: pl.DataFrame, right: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the instants that both cover, as disjoint maximal intervals (the columns of `union`)."""
    return _where(left, right, by, both=True)


def subtract(left: pl.DataFrame, right: pl.DataFrame, by: Sequence[str] = ()) -> pl.DataFrame:
    """Return the instants that only ``left`` covers, as disjoint maximal intervals (the columns of `union`)."""
    return _where(left, right, by, both=False)


def covered(asked: pl.DataFrame, cover: pl.DataFrame, by: Sequence[str] = ()) -> pl.Series:
    """Return how much of each interval a cover covers.

    Parameters
    ----------
    asked
        Interval frame in any order; its intervals may overlap each other.
    cover
        Disjoint intervals: what `union` returns for the same ``by``.

    Returns
    -------
    pl.Series
        Int64 nanoseconds, aligned with ``asked``.

    Examples
    --------
    >>> cover = pl.DataFrame({"start_ns": [0, 10], "end_ns": [5, 20]})
    >>> covered(pl.DataFrame({"start_ns": [2, 4], "end_ns": [12, 4]}), cover).to_list()
    [5, 0]
    """
    span = pl.col("end_ns") - pl.col("start_ns")
    steps = cover.sort("start_ns").with_columns((span.cum_sum().over(by) if by else span.cum_sum()).alias("until"))
    steps = steps.select(*by, pl.col("start_ns").alias("at"), pl.col("end_ns").alias("edge"), "until")

    def before(instant: str) -> pl.Series:
        """Return how much is covered before an instant of each interval."""
        places = asked.select(*by, pl.col(instant).alias("at")).with_row_index("place").sort("at")
        found = places.join_asof(steps, on="at", by=list(by) or None, check_sortedness=False).sort("place")
        # Of the last interval that began, what lies after the instant is not covered yet.
        rest = (pl.col("edge") - pl.col("at")).clip(lower_bound=0)
        return found.select((pl.col("until") - rest).fill_null(0))["until"]

    return (before("end_ns") - before("start_ns")).alias("covered_ns")


def _where(left: pl.DataFrame, right: pl.DataFrame, by: Sequence[str], *, both: bool) -> pl.DataFrame:
    columns = [*by, "start_ns", "end_ns"]
    parts = [frame.select(*columns, pl.lit(i).alias("bit")) for i, frame in enumerate((left, right))]
    mask = 0b11 if both else 0b01
    return occupancy(pl.concat(parts), by).filter(pl.col("mask") == mask).drop("mask")

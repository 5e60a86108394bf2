"""Exact medians of many values in a few groups, without holding the values.

Values are counted in coarse buckets as they come, and kept in temporary files once they are many. The buckets
tell in which one each median lies; a second pass looks at the values of those alone.
"""

import tempfile
from pathlib import Path

import polars as pl

_HELD_ROWS = 1 << 19
_BUCKETS_PER_OCTAVE = 64
_BUCKETS = 64 * _BUCKETS_PER_OCTAVE


class Medians:
    """Medians of integer values by group, rounded down to an integer where the count is even.

    Values come as frames with ``group`` and ``value`` (both Int64, neither negative, groups below 2^51).
    """

    def __init__(self) -> None:
        self._held: list[pl.DataFrame] = []
        self._held_rows = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: list[Path] = []
        self._counts = pl.DataFrame(schema={"cell": pl.Int64, "count": pl.Int64})

    def add(self, values: pl.DataFrame) -> None:
        """Add values."""
        # Group and bucket in one number, the cell: counted, kept and looked up by it.
        cells = values.select((pl.col("group") * _BUCKETS + _bucket()).alias("cell"), "value")
        counts = cells.group_by("cell").agg(pl.len().cast(pl.Int64).alias("count"))
        self._counts = pl.concat([self._counts, counts]).group_by("cell").agg(pl.col("count").sum())
        self._held.append(cells)
        self._held_rows += cells.height
        if self._held_rows > _HELD_ROWS:
            self._put_aside()

    @classmethod
    def merged(cls, several: "list[Medians]") -> "Medians":
        """Return the values of several together; they stay theirs, so that closing them closes this one."""
        together = cls()
        together._held = [frame for each in several for frame in each._held]
        together._files = [file for each in several for file in each._files]
        together._counts = pl.concat([each._counts for each in several])
        return together

    def of(self, wanted: pl.Expr) -> "Medians":
        """Return the values of the groups that an expression on ``group`` names; closing this closes theirs."""
        chosen = Medians()
        chosen._held, chosen._files, chosen._folder = self._held, self._files, self._folder
        group = (pl.col("cell") // _BUCKETS).alias("group")
        chosen._counts = self._counts.filter(self._counts.select(group).select(wanted.alias("wanted"))["wanted"])
        return chosen

    def by(self, merged: pl.Expr) -> pl.DataFrame:
        """Return the medians of merged groups.

        Parameters
        ----------
        merged
            Expression on ``group`` that says which groups go together.

        Returns
        -------
        pl.DataFrame
            group (as merged), median (Int64).
        """
        group, bucket = pl.col("cell") // _BUCKETS, pl.col("cell") % _BUCKETS
        cells = self._counts.select("cell", group.alias("group"), bucket.alias("bucket"), "count")
        cells = cells.with_columns(merged.alias("group"))
        ordered = (
            cells.group_by("group", "bucket")
            .agg(pl.col("count").sum())
            .sort("group", "bucket")
            .with_columns(
                (pl.col("count").cum_sum().over("group") - pl.col("count")).alias("before"),
                pl.col("count").sum().over("group").alias("whole"),
            )
        )
        picked: list[pl.DataFrame] = []
        for rank in ((pl.col("whole") + 1) // 2, pl.col("whole") // 2 + 1):
            holds = ordered.filter((rank > pl.col("before")) & (rank <= pl.col("before") + pl.col("count")))
            picked.append(holds.select("group", "bucket", (rank - pl.col("before") - 1).alias("place")))
        looked_at = pl.concat(picked).select("group", "bucket").unique()
        wanted = cells.select("cell", "group", "bucket").unique().join(looked_at, on=["group", "bucket"], how="semi")
        values = pl.concat([self._within(frame, wanted) for frame in self._frames()])
        sorted_values = values.group_by("group", "bucket").agg(pl.col("value").sort())
        found = [
            places.join(sorted_values, on=["group", "bucket"], how="left").select(
                "group", pl.col("value").list.get(pl.col("place"))
            )
            for places in picked
        ]
        both = found[0].join(found[1], on="group", suffix="_upper")
        return both.select("group", (pl.col("value") + (pl.col("value_upper") - pl.col("value")) // 2).alias("median"))

    def close(self) -> None:
        """Delete the temporary files."""
        if self._folder is not None:
            self._folder.cleanup()

    def _frames(self) -> list[pl.DataFrame | Path]:
        return [*self._files, *self._held, pl.DataFrame(schema={"cell": pl.Int64, "value": pl.Int64})]

    def _within(self, frame: pl.DataFrame | Path, wanted: pl.DataFrame) -> pl.DataFrame:
        """Return the values in cells that are wanted: group, bucket, value."""
        values = frame if isinstance(frame, pl.DataFrame) else pl.read_ipc(frame)
        return values.join(wanted, on="cell").select("group", "bucket", "value")

    def _put_aside(self) -> None:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="k25trace-")
        for frame in self._held:
            file = Path(self._folder.name) / f"{len(self._files)}.arrow"
            frame.write_ipc(file)
            self._files.append(file)
        self._held, self._held_rows = [], 0


def _bucket() -> pl.Expr:
    """Return the bucket of a value: never smaller for a larger one, and at most 1/64 of an octave wide above 64."""
    return ((pl.col("value").cast(pl.Float64) + 1).log(2) * _BUCKETS_PER_OCTAVE).floor().cast(pl.Int64).alias("bucket")

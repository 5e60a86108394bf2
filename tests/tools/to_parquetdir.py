"""Write an nsys SQLite export in the layout of `nsys export --type parquetdir`.

    python tests/tools/to_parquetdir.py IN.sqlite OUT_FOLDER

A GPU trace that is at hand as SQLite alone can so be read both ways. The layout is that of 2023.4.4, seen
in a real pair of exports (tests/golden/test_parquetdir.py compares with it table by table): one file
TABLE.parquet a table, rows and columns in the order of the SQLite; ids unsigned, so that a negative GlobalId
comes out above 2**63; NULL is null and text is text. The data types of `parquetdir_dtypes.json` were read
from a real export of all tables (`--lazy=false`); `ENUM_*` stands for each of them.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path

import polars as pl

DTYPES: dict[str, dict[str, str]] = json.loads(Path(__file__).with_name("parquetdir_dtypes.json").read_text())
# 2023.4.4 leaves these out of a parquetdir, rows or not.
NOT_EXPORTED = {"META_DATA_CAPTURE", "CUPTI_ACTIVITY_KIND_CUDA_EVENT"}
# For a column that 2023.4.4 does not have: what it gives to others of that kind.
BY_AFFINITY = {"INTEGER": pl.Int64, "TEXT": pl.String, "REAL": pl.Float64}
UNSIGNED = {"globalTid", "globalPid", "globalVid", "endGlobalTid", "graphNodeId", "originalGraphNodeId"}
WRAP = 1 << 64


def dtype(table: str, column: str, affinity: str) -> pl.DataType:
    known = DTYPES.get("ENUM_*" if table.startswith("ENUM_") else table, {}).get(column)
    if known:
        return getattr(pl, known)()
    return pl.UInt64() if column in UNSIGNED else BY_AFFINITY[affinity]()


def convert(source: Path, folder: Path) -> list[str]:
    """Write `folder`, which must not exist, and return the names of its tables."""
    folder.mkdir(parents=True)
    db = sqlite3.connect(f"file:{source.as_posix()}?mode=ro", uri=True)
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    written = [t for t in tables if t not in NOT_EXPORTED]
    for table in written:
        info = db.execute(f'PRAGMA table_info("{table}")').fetchall()
        types = {name: dtype(table, name, affinity) for _, name, affinity, *_ in info}
        rows = db.execute(f'SELECT * FROM "{table}"').fetchall()
        columns = []
        for position, (name, kind) in enumerate(types.items()):
            values = [row[position] for row in rows]
            if kind == pl.UInt64():
                values = [None if v is None else v % WRAP for v in values]
            elif kind == pl.Boolean():
                values = [None if v is None else v != 0 for v in values]
            columns.append(pl.Series(name, values, dtype=kind, strict=True))
        pl.DataFrame(columns).write_parquet(folder / f"{table}.parquet", compression="uncompressed")
    db.close()
    return written


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: to_parquetdir.py IN.sqlite OUT_FOLDER")
    convert(Path(sys.argv[1]), Path(sys.argv[2]))

# ruff: noqa: S608 - the names in statements are those of the file's own tables, quoted
"""A copy of an export that is safe to share: who, where and secrets are gone, events are untouched.

What is kept is listed here, and everything else of those tables goes: a newer nsys that writes more of a
machine into its report does not get it through. The copy is read afterwards, cell by cell and byte by byte,
for every value that was removed; one that is found there anywhere is an error, and no copy is left.
"""

import re
import shlex
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from k25trace.errors import CannotAnswer, UnreadableReport, UnsafeCopy, UsageError
from k25trace.export import flaw_of, staging
from k25trace.manifest import is_secret_name
from k25trace.nsystables import (
    CAPTURE_TABLE,
    EXPORT_TABLE,
    NVTX_TABLE,
    PROCESS_TABLE,
    START_TABLE,
    STREAM_TABLE,
    STRING_TABLE,
    SYSTEM_TABLE,
    THREAD_TABLE,
)
from k25trace.paths import file_uri, read_only_uri
from k25trace.report.files import check_free, replacing

SHORTEST, SHORTEST_NAME = 6, 3
"""Values, and names of people and machines, with fewer characters are removed but not searched for."""

REMOVED = "removed"
_CHUNK = 1 << 22
_RANK = re.compile(r"(?<![\w.-])rank=\d{1,6}(?!\w)")
_REPLACED_NAME = re.compile(r"(name \d+ ?)?(rank=\d{1,6})?|nccl.*|NCCL.*", re.IGNORECASE | re.DOTALL)
_PUSH_POP, _START_END, _MARK = 59, 60, 34

_KEPT_SYSTEM = re.compile(
    r"Cpu(Cores|SpeedMhz|Architecture|Description)|Supported\w*ABIs|CNTFRQMHz|NvDriverVersion|CudaVersion|Has\w+|Is\w+|Supports\w+"
    r"|HardwarePlatform|SoftwarePlatform|OsDescription|SoftwareReleaseVersion|\w*Version"
)
_KEPT_CAPTURE = re.compile(
    r"CAPTURE_EVENT_TYPE|RATE_HZ|START_TRIGGER|STOP_TRIGGER|\w+_SCAN_FREQ|DEVICE_TYPE|INCLUDE_CHILDREN"
    r"|PROCESS_\d+:(HOW_TO_ATTACH|LAUNCH_AS_ROOT|COLLECT_\w+|CUDA_\w+(:\w+)*|NVTX_\w+)"
)
_KEPT_EXPORT = re.compile(
    r"EXPORT_(PRODUCT_\w+|SCHEMA_\w+|PLATFORM|ARCH|PARAM_(LAZY|APPEND|TIME_\w+)|CONFIG_\w+)|SYNTHETIC_\w+"
)
_NUMBERED = frozenset({"SoftwareReleaseVersion"})
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_PLAIN = re.compile(r"[\w .,:+()/-]{0,80}", re.ASCII)
_PATH = re.compile(r"(?:/[\w.+@~-]+){2,}/?")
_LISTS = (PROCESS_TABLE, THREAD_TABLE, STREAM_TABLE)
_DROPPED_TABLES = re.compile(r"TARGET_INFO_(NIC|NETWORK|DISPLAY|STORAGE|IB|USER|PERF_METRIC_FILE)\w*|ANALYSIS_FILE")
_IDENTIFIERS = {
    "uuid": "00000000-0000-0000-0000-{:012d}",
    "busLocation": "0000:{:02x}:00.0",
    "pciBusId": "0000:{:02x}:00.0",
}
_EMPTIED = ("ctxswDevPath", "ctrlDevPath", "luid", "serial", "serialNumber", "guid")
_IDENTITY = re.compile(r"host|user|logname|display_name|^serial$", re.IGNORECASE)
_EVERYBODY = {
    "root",
    "user",
    "users",
    "ubuntu",
    "debian",
    "admin",
    "localhost",
    "host",
    "vm",
    "node",
    "gpu",
    "local",
}
_SYSTEM_PATHS = {
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin/sh",
    "/bin/bash",
    "/dev/null",
    "/usr/lib",
}
_WORDS = re.compile(r"[A-Za-z_ -]+")
_BETWEEN_VARIABLES = re.compile(r"[\n\0]|;(?=[A-Za-z_]\w*=)")
_LINES_OF_TEXT = 20
_COMMON = re.compile(
    r"[\d.,:;+-]*|true|false|none|null|yes|no|on|off|auto|default|utf-?8|cuda|python3?|linux|warning",
    re.IGNORECASE,
)


@dataclass
class Scrubbed:
    """What was removed.

    Attributes
    ----------
    removed
        What → how many values of it.
    searched
        How many distinct values the copy was searched for, and not found.
    short
        How many were too short or too common to be searched for.
    """

    removed: dict[str, int] = field(default_factory=dict[str, int])
    searched: int = 0
    short: int = 0

    def count(self, what: str, number: int) -> None:
        """Add to what was removed."""
        if number:
            self.removed[what] = self.removed.get(what, 0) + number


def scrub(source: Path, output: Path, *, names: bool, force: bool) -> Scrubbed:
    """Write a copy of a SQLite export without what identifies people and machines.

    Parameters
    ----------
    source
        The export; it is only read.
    output
        The copy; there whole and searched, or not at all.
    names
        Also replace the texts of NVTX ranges and marks, each text by the same word everywhere. NCCL's own,
        ``rank=N`` and the names of domains that begin with NCCL stay: attribution rests on them.
    force
        Replace a file that is there.

    Returns
    -------
    Scrubbed
        What was removed.

    Raises
    ------
    UnsafeCopy
        A removed value is still in the copy, such as a path inside an NVTX text; no copy is left.
    UnreadableReport
        The source cannot be read.
    CannotAnswer
        It is a database that nsys did not export.
    """
    _refuse(source)
    check_free(output, force=force, never=[source])
    with staging(output) as folder:
        work, final = folder / "work.sqlite", folder / "final.sqlite"
        _copy(source, work)
        with closing(_connect(work)) as db:
            result, values = _Scrubber(db).run(names=names)
            db.commit()
        _copy(work, final)
        result.searched = _prove(final, values, names=names)
        with replacing(output, force=force) as temporary:
            final.replace(temporary)
    return result


def _refuse(source: Path) -> None:
    if source.is_dir():
        raise UsageError(f"{source}: a folder", "scrub the .sqlite export of the same report")
    if not source.exists():
        raise UnreadableReport(f"{source}: no such file")
    if source.suffix == ".nsys-rep":
        raise UsageError(
            f"{source}: a report can only be scrubbed as a database",
            f"k25trace export {shlex.quote(str(source))}, then scrub that",
        )
    wrong = flaw_of(source)
    if wrong:
        raise UnreadableReport(f"{source}: cannot be read: {wrong}")


def _copy(source: Path, target: Path) -> None:
    """Copy what the tables hold, and nothing of what was deleted from them."""
    with source.open("rb") as file:
        write_ahead = 2 in file.read(20)[18:20]  # a log would be created beside it
    uri = read_only_uri(source, immutable=write_ahead)
    try:
        with closing(sqlite3.connect(uri, uri=True)) as db:
            db.execute("VACUUM INTO ?", (file_uri(target),))
    except sqlite3.Error as error:
        raise UnreadableReport(f"{source}: cannot be copied: {error}") from None


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path)
    db.text_factory = bytes  # text can hold bytes that are not UTF-8
    db.execute("PRAGMA journal_mode = OFF")
    return db


def _is_text(column: str) -> str:
    return f"""typeof("{column}") IN ('text', 'blob')"""


def _text(value: object) -> str:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else "" if value is None else str(value)


class _Scrubber:
    """Removes from one copy, and remembers every value that it removed."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._result = Scrubbed()
        self._values: set[str] = set()
        self._tables = {
            _text(name): [_text(row[1]) for row in db.execute(f'PRAGMA table_info("{_text(name)}")')]
            for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        }
        if not {STRING_TABLE, EXPORT_TABLE} & set(self._tables):
            raise CannotAnswer("not an nsys export, it has none of its tables")

    def run(self, *, names: bool) -> tuple[Scrubbed, set[str]]:
        """Remove everything; return what it was."""
        self._named_values(SYSTEM_TABLE, _KEPT_SYSTEM, "system information")
        self._named_values(CAPTURE_TABLE, _KEPT_CAPTURE, "capture settings")
        self._named_values(EXPORT_TABLE, _KEPT_EXPORT, "export settings")
        self._strings()
        self._processes()
        for table in [t for t in self._tables if _DROPPED_TABLES.fullmatch(t)]:
            self._forget_rows(table, "rows about the machine")
        self._identifiers()
        self._start_time()
        if names:
            self._nvtx_names()
        self._everywhere()
        return self._result, self._values

    # ---- tables of names and values

    def _named_values(self, table: str, kept: re.Pattern[str], what: str) -> None:
        if not {"name", "value"} <= set(self._tables.get(table, ())):
            return
        before = ""
        for row, name_, value in self._db.execute(
            f'SELECT rowid, name, value FROM "{table}" ORDER BY rowid'
        ).fetchall():
            name, text = _text(name_), _text(value)
            if kept.fullmatch(name) and _PLAIN.fullmatch(text) and not _PATH.search(text):
                if name in _NUMBERED and (number := _NUMBER.match(text)) and number[0] != text:
                    # Kernels that somebody built for themselves have a name behind the number.
                    self._result.count(what, 1)
                    self._remember_value(name, text)
                    self._db.execute(f'UPDATE "{table}" SET value = ? WHERE rowid = ?', (number[0], row))
                continue
            if "ENVIRON" in name.upper():
                self._result.count("environment variables", self._remember_environment(text))
            else:
                self._result.count(what, 1)
                self._remember_value(name, text, secret=is_secret_name(before))
            before = text
            self._db.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (row,))
        if "devStateName" in self._tables[table]:
            self._db.execute(f'UPDATE "{table}" SET "devStateName" = ?', (REMOVED,))

    def _remember_environment(self, text: str) -> int:
        """Remember the values of assignments, whatever separates them; return how many there are."""
        assignments = [line for line in _BETWEEN_VARIABLES.split(text) if line.strip()]
        for assignment in assignments:
            name, _, value = assignment.strip().partition("=")
            self._remember_value(name, value.strip().strip('"'), secret=is_secret_name(name))
        return len(assignments)

    def _remember_value(self, name: str, value: str, *, secret: bool = False) -> None:
        """Remember what the copy must not hold; of plain words, those that are secret or name someone."""
        if _IDENTITY.search(name) and len(value) >= SHORTEST_NAME and value.lower() not in _EVERYBODY:
            self._values.add(value)
        elif len(value) >= SHORTEST and (secret or not _WORDS.fullmatch(value)) and not _COMMON.fullmatch(value):
            if value.count("\n") < _LINES_OF_TEXT:
                self._values.add(value)
        else:
            self._result.short += 1
        self._values.update(
            path for path in _PATH.findall(value) if len(path) >= SHORTEST and path not in _SYSTEM_PATHS
        )

    # ---- strings

    def _strings(self) -> None:
        """Empty every text that no event uses.

        Among them are, beside thread names and what the program wrote, the environments of other processes
        of the machine: nsys 2023.4 leaves those in ``StringIds`` where nothing refers to them.
        """
        if STRING_TABLE not in self._tables:
            return
        used = self._used_by_events()
        for id_, value in self._db.execute("SELECT id, value FROM StringIds").fetchall():
            text = _text(value)
            if id_ in used:
                continue
            if "\0" in text or re.match(r"[A-Za-z_]\w*=", text):
                self._result.count("environment variables", self._remember_environment(text))
            else:
                self._result.count("texts that no event uses", 1)
                if "/" in text or "=" in text:
                    self._remember_value("", text)
            self._db.execute("UPDATE StringIds SET value = ? WHERE id = ?", (REMOVED, id_))

    def _used_by_events(self) -> set[int]:
        used: set[int] = set()
        for table, columns in self._tables.items():
            if table in _LISTS or not {"start", "symbol", "timestamp"} & set(columns):
                continue
            for column in columns:
                if column in {"nameId", "textId", "jsonTextId"} or column.endswith("Name"):
                    rows = self._db.execute(f'SELECT DISTINCT "{column}" FROM "{table}"')
                    used |= {i for (i,) in rows if isinstance(i, int)}
        return used

    def _processes(self) -> None:
        for (name,) in (
            self._db.execute("SELECT name FROM PROCESSES").fetchall() if self._has(PROCESS_TABLE, "name") else []
        ):
            # "kthreadd" may be anywhere; a path is not.
            if "/" in _text(name):
                self._remember_value("", _text(name))
        for table in _LISTS:
            if table in self._tables:
                self._forget_rows(table, "rows of lists of processes and threads")

    def _has(self, table: str, column: str) -> bool:
        return column in self._tables.get(table, ())

    def _forget_rows(self, table: str, what: str) -> None:
        self._result.count(what, self._db.execute(f'DELETE FROM "{table}"').rowcount)

    # ---- the machine

    def _identifiers(self) -> None:
        for column, pattern in _IDENTIFIERS.items():
            numbers: dict[str, str] = {}
            for table in self._with(column):
                for (value,) in self._db.execute(f'SELECT DISTINCT "{column}" FROM "{table}" ORDER BY 1').fetchall():
                    text = _text(value)
                    if text:
                        new = numbers.setdefault(text, pattern.format(len(numbers)))
                        change = f'UPDATE "{table}" SET "{column}" = ?'
                        same = f'CAST("{column}" AS TEXT) = CAST(? AS TEXT)'
                        self._db.execute(f"{change} WHERE {same}", (new, value))
            self._values.update(set(numbers) - set(numbers.values()))
            self._result.count(f"GPU identifiers ({column})", len(numbers))
        for column in _EMPTIED:
            for table in self._with(column):
                for (value,) in self._db.execute(f'SELECT DISTINCT "{column}" FROM "{table}"').fetchall():
                    self._remember_value("serial", _text(value))
                empty = f"""CASE typeof("{column}") WHEN 'text' THEN '' ELSE 0 END"""
                change = f'UPDATE "{table}" SET "{column}" = {empty}'
                self._db.execute(f'{change} WHERE "{column}" IS NOT NULL')

    def _with(self, column: str) -> list[str]:
        return [
            table for table, columns in self._tables.items() if column in columns and table.startswith("TARGET_INFO")
        ]

    def _start_time(self) -> None:
        table = START_TABLE
        for column in self._tables.get(table, ()):
            for (value,) in self._db.execute(f'SELECT "{column}" FROM "{table}"').fetchall():
                self._remember_value("", _text(value))
                self._result.count("dates", 1)
            new = 0 if column == "utcEpochNs" else "1970-01-01T00:00:00"
            self._db.execute(f'UPDATE "{table}" SET "{column}" = ?', (new,))

    # ---- names

    def _nvtx_names(self) -> None:
        columns = self._tables.get(NVTX_TABLE, ())
        words: dict[str, str] = {}

        def word(text: str) -> str:
            if text.startswith("nccl") or text.upper().startswith("NCCL") or not text:
                return text
            rank = _RANK.search(text)
            if rank and rank[0] == text:
                return text
            return words.setdefault(text, f"name {len(words) + 1}{' ' + rank[0] if rank else ''}")

        if "text" in columns:
            for (value,) in self._db.execute("SELECT DISTINCT text FROM NVTX_EVENTS WHERE text IS NOT NULL").fetchall():
                new = word(_text(value))
                if new != _text(value):
                    self._db.execute("UPDATE NVTX_EVENTS SET text = ? WHERE CAST(text AS BLOB) = ?", (new, value))
        if "textId" in columns:
            self._registered_names(word)
        for column in {"jsonText", "jsonTextId", "binaryData"} & set(columns):
            self._db.execute(f'UPDATE NVTX_EVENTS SET "{column}" = NULL')
        self._result.count("NVTX texts", len(words))

    def _registered_names(self, word: Callable[[str], str]) -> None:
        others = self._used_by_others()
        ids = [i for (i,) in self._db.execute("SELECT DISTINCT textId FROM NVTX_EVENTS WHERE textId IS NOT NULL")]
        for id_ in ids:
            found = self._db.execute("SELECT value FROM StringIds WHERE id = ?", (id_,)).fetchone()
            if found is None or word(_text(found[0])) == _text(found[0]):
                continue
            new = word(_text(found[0]))
            if id_ in others:
                (free,) = self._db.execute("SELECT max(id) + 1 FROM StringIds").fetchone()
                self._db.execute("INSERT INTO StringIds (id, value) VALUES (?, ?)", (free, new))
                self._db.execute("UPDATE NVTX_EVENTS SET textId = ? WHERE textId = ?", (free, id_))
            else:
                self._db.execute("UPDATE StringIds SET value = ? WHERE id = ?", (new, id_))

    def _used_by_others(self) -> set[int]:
        nvtx = self._tables.pop(NVTX_TABLE)
        try:
            return self._used_by_events()
        finally:
            self._tables[NVTX_TABLE] = nvtx

    # ---- what is left

    def _everywhere(self) -> None:
        """Replace removed values inside other texts, such as diagnostic messages; events stay."""
        searched = _searchable(self._values)
        if not searched:
            return
        pattern = _any_of(value.encode("utf-8", "surrogateescape") for value in searched)
        for table, columns in self._tables.items():
            if table in {NVTX_TABLE, STRING_TABLE} or table.startswith("ENUM_"):
                continue
            for column in columns:
                rows = self._db.execute(f'SELECT rowid, "{column}" FROM "{table}" WHERE {_is_text(column)}')
                for row, value in rows.fetchall():
                    new = pattern.sub(REMOVED.encode(), value)
                    if new != value:
                        update = f'UPDATE "{table}" SET "{column}" = CAST(? AS TEXT) WHERE rowid = ?'
                        self._db.execute(update, (new, row))
                        self._result.count("values inside other texts", 1)
        used = self._used_by_events()
        for id_, value in self._db.execute("SELECT id, value FROM StringIds").fetchall():
            if id_ not in used and (new := pattern.sub(REMOVED.encode(), value)) != value:
                self._db.execute("UPDATE StringIds SET value = CAST(? AS TEXT) WHERE id = ?", (new, id_))
                self._result.count("values inside other texts", 1)


# ---- proof


def _searchable(values: Iterable[str]) -> list[str]:
    return sorted(set(values) - {REMOVED}, key=lambda value: (-len(value), value))


def _any_of(values: Iterable[bytes]) -> re.Pattern[bytes]:
    """Return a pattern for any of some values, as whole words where they are words themselves."""
    return re.compile(
        b"|".join(
            (rb"(?<![A-Za-z0-9_])" if v[:1].isalnum() else b"")
            + re.escape(v)
            + (rb"(?![A-Za-z0-9_])" if v[-1:].isalnum() else b"")
            for v in values
        )
    )


def _prove(path: Path, values: set[str], *, names: bool) -> int:
    """Search the copy for every removed value; return how many there are."""
    searched = _searchable(values)
    encoded = [value.encode("utf-8", "surrogateescape") for value in searched]
    vocabulary = _vocabulary(path)
    encoded = [value for value in encoded if value not in vocabulary]
    found: set[bytes] = set()
    if encoded:
        pattern = _any_of(encoded)
        found |= {match[0] for text in _cells(path) if (match := pattern.search(text))}
        found |= _in_bytes(path, pattern, max(map(len, encoded)))
    if names:
        found |= {
            text.encode("utf-8", "surrogateescape") for text in _nvtx_texts(path) if not _REPLACED_NAME.fullmatch(text)
        }
    if found:
        shown = ", ".join(sorted(repr(value.decode("utf-8", "replace"))[:60] for value in found)[:3])
        raise UnsafeCopy(
            f"{len(found)} removed values are still in the names of events, such as {shown}; no copy is written",
            "names of kernels and calls cannot be replaced" if names else "replace the NVTX texts too, with --names",
        )
    return len(encoded)


def _vocabulary(path: Path) -> bytes:
    """Return the words of nsys itself, that no program put there: definitions of tables, and enumerations."""
    with closing(_connect(path)) as db:
        parts: list[bytes] = [sql for (sql,) in db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE name GLOB 'ENUM_*'").fetchall():
            for row in db.execute(f'SELECT * FROM "{_text(name)}"'):
                parts += [cell for cell in row if isinstance(cell, bytes)]
        if _has(db, EXPORT_TABLE):
            own = "SELECT value FROM META_DATA_EXPORT WHERE name GLOB 'EXPORT_PRODUCT*'"
            parts += [value for (value,) in db.execute(own)]
    return b"\0".join(parts)


def _has(db: sqlite3.Connection, table: str) -> bool:
    return db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone() is not None


def _cells(path: Path) -> Iterator[bytes]:
    """Yield every text of the copy: one that is longer than a page is in pieces in the file."""
    with closing(_connect(path)) as db:
        tables = [_text(name) for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            columns = [_text(row[1]) for row in db.execute(f'PRAGMA table_info("{table}")')]
            for column in columns:
                rows = db.execute(f'SELECT DISTINCT "{column}" FROM "{table}" WHERE {_is_text(column)}')
                yield from (value for (value,) in rows)


def _nvtx_texts(path: Path) -> Iterator[str]:
    """Yield the distinct texts of NVTX events, registered or not."""
    with closing(_connect(path)) as db:
        columns = {_text(row[1]) for row in db.execute("PRAGMA table_info(NVTX_EVENTS)")}
        if "text" in columns:
            yield from (_text(t) for (t,) in db.execute("SELECT DISTINCT text FROM NVTX_EVENTS WHERE text IS NOT NULL"))
        if "textId" in columns:
            used = "SELECT value FROM StringIds WHERE id IN (SELECT textId FROM NVTX_EVENTS)"
            yield from (_text(t) for (t,) in db.execute(used))


def _in_bytes(path: Path, pattern: re.Pattern[bytes], longest: int) -> set[bytes]:
    found: set[bytes] = set()
    with path.open("rb") as file:
        tail = b""
        while chunk := file.read(_CHUNK):
            window = tail + chunk
            found |= set(pattern.findall(window))
            tail = window[-longest - 1 :]
    return found


def as_lines(result: Scrubbed, output: Path) -> Sequence[str]:
    """Return what was removed, as lines for people."""
    rows = [f"{count:>8,}  {what}" for what, count in sorted(result.removed.items())]
    return [
        f"removed or replaced, in {output}:",
        *rows,
        f"searched the copy for {result.searched:,} removed values, every cell and every byte: none is in it"
        f" ({result.short:,} more are too short or too common to search for)",
    ]

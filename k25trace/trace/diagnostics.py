"""What nsys itself said of a capture, quoted as warnings."""

import re

from k25trace.nsystables import DIAGNOSTICS_TABLE, SEVERITY_TABLE
from k25trace.quoting import plain_words, shortened
from k25trace.trace.source import Col, Source, decode, read
from k25trace.warnings import ReportWarning, warn

_LOST = re.compile(
    r"\bdropp?ed\b|\blost\b|\bmissing\b|\bdiscarded\b|\boverflow|\bnot all\b|\bincomplete\b", re.IGNORECASE
)
_QUOTED_CHARACTERS = 300


def diagnostics(source: Source) -> list[ReportWarning]:
    """Return warnings that quote what is more than information: apart what tells of lost events."""
    labels = read(source, SEVERITY_TABLE, [Col("id"), Col("name", "text")])
    severity = {1: "info", 2: "warning", 3: "error"} | {i: decode(n).lower() for i, n in labels.drop_nulls().rows()}
    events = read(source, DIAGNOSTICS_TABLE, [Col("severity"), Col("text", "text")])
    texts = [(severity.get(level, "warning"), decode(text or b"")) for level, text in events.iter_rows()]
    serious = [text for level, text in texts if "info" not in level]
    lost = [text for text in serious if _LOST.search(text)]
    other = [text for text in serious if not _LOST.search(text)]
    return [
        warn(code, len(found), f"nsys says: {_quoted(found)}")
        for code, found in (("dropped-events", lost), ("diagnostics", other))
        if found
    ]


def _quoted(texts: list[str]) -> str:
    distinct = dict.fromkeys(plain_words(text, _QUOTED_CHARACTERS) for text in texts)
    return shortened(" | ".join(distinct), _QUOTED_CHARACTERS)

"""Lines of a check list: what was looked at, what was seen, what would mend it. Standard library only."""

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

Status = Literal["ok", "missing", "cannot say"]
_WIDTH = 110
_COLUMN = 30


@dataclass(frozen=True)
class Check:
    """One line of a check list.

    Attributes
    ----------
    name
        What was looked at; the same name in every list.
    status
        ``ok``; ``missing``: something that should be there is not; ``cannot say``: nothing tells.
    seen
        The facts.
    fix
        Cause and remedy of what is not ``ok``, with the command to run; may be empty.
    """

    name: str
    status: Status
    seen: str
    fix: str = ""

    def row(self) -> dict[str, str]:
        """Return the line as a JSON object."""
        return asdict(self)


def passed(name: str, seen: str) -> Check:
    """Return a line that is fine."""
    return Check(name, "ok", seen)


def missing(name: str, seen: str, fix: str) -> Check:
    """Return a line about something that should be there and is not."""
    return Check(name, "missing", seen, fix)


def unknown(name: str, seen: str, fix: str = "") -> Check:
    """Return a line about something that nothing tells."""
    return Check(name, "cannot say", seen, fix)


def judged(name: str, *, good: bool, seen: str, fix: str) -> Check:
    """Return a line that is ``ok`` or ``missing``; only the latter keeps its fix."""
    return passed(name, seen) if good else missing(name, seen, fix)


def any_missing(checks: Iterable[Check]) -> bool:
    """Whether a line is ``missing``."""
    return any(check.status == "missing" for check in checks)


def as_lines(checks: Iterable[Check]) -> Iterator[str]:
    """Yield the list as text: a line a check, its fix below it, wrapped."""
    for check in checks:
        head = f"{check.status:<11}{check.name:<{_COLUMN - 12}} "
        yield from _wrapped(head, check.seen)
        if check.fix:
            yield from _wrapped(" " * _COLUMN + "-> ", check.fix)


def _wrapped(head: str, text: str) -> list[str]:
    indent = " " * len(head)
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return textwrap.wrap(
        flat, _WIDTH, initial_indent=head, subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    ) or [head.rstrip()]  # fmt: skip

"""A sign of life on a terminal while something takes long; nothing anywhere else."""

import sys
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from k25trace.report.text import printable


@contextmanager
def working(on: str) -> Generator[None, None, None]:
    """Show what is worked on, on standard error and only if that is a terminal, until the block ends."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console(stderr=True).status(Text(on)):
        yield


def reading(reports: Sequence[Path], doing: str = "reading") -> AbstractContextManager[None]:
    """Show which reports are being worked on, as `working` does."""
    return working(f"{doing} " + ", ".join(printable(str(report), 60) for report in reports))

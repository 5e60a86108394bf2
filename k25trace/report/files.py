"""Output files: never over an existing one without leave, never half-written."""

import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from k25trace.errors import K25TraceError, OutputExists, UsageError


def check_free(path: Path, *, force: bool, never: Sequence[Path] = ()) -> None:
    """Raise if a file could not be written there: worth asking before the work whose result it is to hold.

    Parameters
    ----------
    force
        Whether a file that is there may be replaced.
    never
        Files that may not be, whatever ``force`` says: what is read, and what else is written.

    Raises
    ------
    UsageError
        It is one of ``never``.
    OutputExists
        The target is there and ``force`` is not given.
    K25TraceError
        It is a folder, or its own folder is not there.
    """
    if any(path.resolve() == other.resolve() for other in never):
        raise UsageError(f"{path}: is read or written by this command already", "name another file for the output")
    if path.is_dir():
        raise K25TraceError(f"{path}: a folder")
    if path.exists() and not force:
        raise OutputExists(f"{path}: exists already", "name another file, or replace it with --force")
    if not path.parent.is_dir():
        raise K25TraceError(f"{path}: cannot be written: there is no folder {path.parent}")


@contextmanager
def replacing(path: Path, *, force: bool, never: Sequence[Path] = ()) -> Generator[Path, None, None]:
    """Give a temporary path beside the target, and rename it to the target when the block ends well.

    Raises
    ------
    UsageError
        The target is one of ``never`` (see `check_free`).
    OutputExists
        The target is there and ``force`` is not given.
    K25TraceError
        Its folder is not there or cannot be written.
    """
    check_free(path, force=force, never=never)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise K25TraceError(f"{path}: cannot be written: {error.strerror}") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files private; a report has the permissions that the user's umask gives any other file.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        raise K25TraceError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def text_output(path: Path | None, *, force: bool, never: Sequence[Path] = ()) -> Generator[TextIO, None, None]:
    """Give standard output, or a file that appears under its name when it is complete."""
    if path is None:
        yield sys.stdout
        return
    with (
        replacing(path, force=force, never=never) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as out,
    ):
        yield out

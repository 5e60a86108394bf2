"""Output files: never over an existing one without leave, never half-written."""

import os
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from k25trace.errors import K25TraceError, OutputExists, UsageError
from k25trace.paths import behind_links, descriptor_of, is_stream


def check_free(
    path: Path, *, force: bool, never: Sequence[Path] = (), streams: bool = False, folders: bool = False
) -> None:
    """Raise if an output could not be written there: worth asking before the work whose result it is to hold.

    Parameters
    ----------
    path
        The target; what a symbolic link leads to is meant, never the link.
    force
        Whether a file that is there may be replaced.
    never
        Files that may not be, whatever ``force`` says: what is read, and what else is written.
    streams
        Whether pipes, terminals and devices are written to; they are not replaced, so ``force`` is not asked for.
    folders
        Whether the output is a folder, or may be one.

    Raises
    ------
    UsageError
        It is one of ``never``.
    OutputExists
        The target is there and ``force`` is not given.
    K25TraceError
        It is of a kind that the output cannot be, or its own folder is not there.
    """
    if path == Path("-"):
        raise UsageError("-: this output has to be a file, not standard output", "name one")
    if any(os.path.realpath(path) == os.path.realpath(other) for other in never):
        raise UsageError(f"{path}: is read or written by this command already", "name another file for the output")
    if is_stream(path):
        if not streams:
            raise K25TraceError(f"{path}: a pipe or a device, and this output has to be a file")
        return
    try:
        target = behind_links(path)
        there = target.exists()
    except OSError as error:
        raise _unwritable(path, error) from None
    if target.is_dir() and not folders:
        raise K25TraceError(f"{path}: a folder")
    if target.is_symlink() or (there and not (target.is_file() or target.is_dir())):
        raise K25TraceError(f"{path}: neither a file nor a place for one")
    if there and not force:
        raise OutputExists(f"{path}: exists already", "name another file, or replace it with --force")
    if not target.parent.is_dir():
        raise K25TraceError(f"{path}: cannot be written: there is no folder {target.parent}")


@contextmanager
def replacing(path: Path, *, force: bool, never: Sequence[Path] = ()) -> Generator[Path, None, None]:
    """Give a temporary path beside the target, and rename it to the target when the block ends well.

    Where the target is a symbolic link, what it leads to is replaced and the link stays.

    Raises
    ------
    UsageError
        The target is one of ``never`` (see `check_free`).
    OutputExists
        The target is there and ``force`` is not given.
    K25TraceError
        It is a pipe or a device, or its folder is not there or cannot be written.
    """
    check_free(path, force=force, never=never)
    target = behind_links(path)
    try:
        handle, name = tempfile.mkstemp(prefix=".k25trace-", dir=target.parent)
    except OSError as error:
        raise _unwritable(path, error) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(_mode_of(target))
        temporary.replace(target)
    except OSError as error:
        raise _unwritable(path, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def _mode_of(target: Path) -> int:
    """Return the permissions of a file that is replaced, or those that the user's umask gives a new one."""
    if target.exists():
        return target.stat().st_mode & 0o777
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


@contextmanager
def text_output(
    path: Path | None, *, force: bool, never: Sequence[Path] = (), exact: bool = False
) -> Generator[TextIO, None, None]:
    """Give standard output, or a file that appears under its name when it is complete, or a pipe or device.

    Parameters
    ----------
    path
        The target; None: standard output.
    force, never
        See `check_free`.
    exact
        Whether programs read it: then it is UTF-8 wherever it goes, whatever a terminal would want.
    """
    if path is None:
        reconfigure = getattr(sys.stdout, "reconfigure", None)
        if exact and reconfigure is not None:
            # JSON writes a byte of a file's name that is no text as the escape that `backslashreplace` makes of it.
            reconfigure(encoding="utf-8", errors="backslashreplace")
        yield sys.stdout
    elif is_stream(path):
        check_free(path, force=force, never=never, streams=True)
        try:
            with _stream(path) as out:
                yield out
        except OSError as error:
            raise _unwritable(path, error) from None
    else:
        with (
            replacing(path, force=force, never=never) as temporary,
            temporary.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out,
        ):
            yield out


def _stream(path: Path) -> TextIO:
    descriptor = descriptor_of(path)
    if descriptor == 1:
        sys.stdout.flush()
    opened = path if descriptor is None else os.dup(descriptor)
    return open(opened, "w", encoding="utf-8", errors="backslashreplace", newline="")


def _unwritable(path: Path, error: OSError) -> K25TraceError:
    return K25TraceError(f"{path}: cannot be written: {(error.strerror or str(error)).lower()}")

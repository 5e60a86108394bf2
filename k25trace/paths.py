"""Paths as the system has them: bytes that need not be UTF-8, links, pipes and devices. Standard library only."""

import os
import re
import stat
from pathlib import Path
from urllib.parse import quote

_DESCRIPTORS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})")


def read_only_uri(path: Path, *, immutable: bool = False) -> str:
    """Return the URI by which SQLite opens a file for reading, whatever bytes its name holds.

    Parameters
    ----------
    path
        The file.
    immutable
        Promise that nothing writes to it, so that SQLite creates nothing beside it.
    """
    return f"{file_uri(path)}?mode=ro" + ("&immutable=1" if immutable else "")


def file_uri(path: Path) -> str:
    """Return the ``file:`` URI of a path; only ASCII is in it."""
    return "file:" + quote(os.fsencode(path.absolute()))


def path_text(path: Path) -> str:
    r"""Return a path as text that can be written as UTF-8; other bytes are escaped.

    Examples
    --------
    >>> path_text(Path("trace.sqlite")), path_text(Path(os.fsdecode(b"caf\xe9")))
    ('trace.sqlite', 'caf\\xe9')
    """
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def behind_links(path: Path) -> Path:
    """Return what a path that may be a symbolic link leads to; other paths as they are."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def descriptor_of(path: Path) -> int | None:
    """Return the number of the open file that a name such as ``/dev/stdout`` means, None for other names."""
    name = str(path)
    found = _DESCRIPTOR.fullmatch(name)
    return int(found[1]) if found else _DESCRIPTORS.get(name)


def is_stream(path: Path) -> bool:
    """Whether something is there that takes bytes as they come and cannot be replaced: a pipe, a terminal, a device.

    Block devices are none: nobody means to write text over a disk.
    """
    if descriptor_of(path) is not None:
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)

"""Standard input, output and error as they are found: closed, full, or of an encoding that has no µ."""

import codecs
import os
import sys
from contextlib import suppress

_STAND_INS = {"µ": "u", "\N{EN DASH}": "-", "…": "~", "→": ">", "─": "-", "│": "|", "·": "."}
_CLOSED = ("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)


def prepare() -> None:
    """Make every stream one that can be used: what cannot be written is shown by a stand-in or an escape.

    A stream that was closed at the start becomes one that refuses, so that output is never lost in silence and no
    file that is opened later takes its place. What goes to a closed standard error is dropped.
    """
    for name, flags in _CLOSED:
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, flags)
            setattr(sys, name, open(descriptor, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    codecs.register_error("k25trace", _stand_in)
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="k25trace")
    sys.unraisablehook = _unraisable


def give_up() -> None:
    """Let what is still buffered for standard output go nowhere: the interpreter writes it when it ends."""
    with suppress(OSError):  # a stream of a host program may have no descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _stand_in(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    shown = "".join(_STAND_INS.get(c) or c.encode("ascii", "backslashreplace").decode("ascii") for c in text)
    return shown, error.end


def _unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Say what could not be raised, unless it is Ctrl-C.

    polars raises the interrupt itself, and Python raises it once more at the next instruction of its own: that of a
    reader that is being put away, where it can go nowhere. The first one ends the program.
    """
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)

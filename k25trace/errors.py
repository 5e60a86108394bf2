"""What can go wrong that a user can do something about.

Every error a user can cause is a `K25TraceError`: one line that says what is wrong, a hint that says what
to do, and the exit code of the process. Anything else that escapes is a defect of this program.
"""

from typing import ClassVar


class K25TraceError(Exception):
    """Root of the errors that end a command with one line instead of a traceback.

    Parameters
    ----------
    message
        What is wrong, naming the file or option; one line, no full stop.
    hint
        What to do about it; printed on a line of its own.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UnreadableReport(K25TraceError):
    """The file is missing, damaged, locked or not what it should be (exit 1)."""


class UsageError(K25TraceError):
    """Options that contradict each other or cannot be parsed (exit 2)."""

    exit_code = 2


class CannotAnswer(K25TraceError):
    """The report is sound but does not hold what was asked for (exit 3)."""

    exit_code = 3


class BadRules(K25TraceError):
    """A file of classification rules that breaks its own grammar or its own examples (exit 1)."""


class BadTemplate(K25TraceError):
    """A graph template that cannot be read, or is none (exit 1)."""


class BudgetExceeded(K25TraceError):
    """A budget or gate that the user set was exceeded (exit 4)."""

    exit_code = 4


class NsysFailed(K25TraceError):
    """nsys is not there, too old, or failed (exit 1)."""


class CaptureFailed(K25TraceError):
    """The program or its output cannot be what a capture needs, or there is no report afterwards (exit 1)."""


class UnsafeCopy(K25TraceError):
    """A value that was to be removed is still in the copy, which is not kept (exit 1)."""


class OutputExists(K25TraceError):
    """The output is there already and ``--force`` was not given (exit 1)."""


class BadQuery(K25TraceError):
    """A file of SQL that breaks its grammar or its own header, or one that SQLite refuses (exit 1)."""

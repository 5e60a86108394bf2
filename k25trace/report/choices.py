"""What a user can choose of an output; free of heavy imports, because the command line's help needs it."""

from dataclasses import dataclass
from enum import StrEnum

from k25trace.errors import UsageError


class By(StrEnum):
    """What a row is about."""

    category = "category"
    family = "family"
    kernel = "kernel"
    gpu = "gpu"
    range = "range"
    path = "path"


class Format(StrEnum):
    """How rows are written."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


def check_options(by: By, *, inclusive: bool, depth: int | None) -> None:
    """Raise if options do not go with what a row is about.

    Raises
    ------
    UsageError
        They do not.
    """
    if inclusive and by is not By.range:
        raise UsageError("--inclusive goes with --by range")
    if depth is not None and by is not By.path:
        raise UsageError("--depth goes with --by path")
    if depth is not None and depth < 1:
        raise UsageError("--depth counts from 1")


@dataclass(frozen=True)
class Request:
    """One output.

    Attributes
    ----------
    by, output_format
        What a row is, and how it is written.
    per_gpu
        Rows for each GPU instead of over all.
    inclusive
        For ranges: time at any depth inside them.
    depth
        For paths: outermost ranges that are kept.
    top
        Rows shown of long tables; None: all.
    verbose
        Also the longest-running kernels of each category.
    header
        For CSV: the ``#`` lines before the rows.
    """

    by: By = By.category
    output_format: Format = Format.table
    per_gpu: bool = False
    inclusive: bool = False
    depth: int | None = None
    top: int | None = 25
    verbose: bool = False
    header: bool = True

    def __post_init__(self) -> None:
        check_options(self.by, inclusive=self.inclusive, depth=self.depth)

    @property
    def needs_ranges(self) -> bool:
        """Whether kernels must be attributed to ranges for it."""
        return self.output_format is Format.json or self.by in {By.range, By.path}

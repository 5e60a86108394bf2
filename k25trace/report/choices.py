"""What a user can choose of an output; free of heavy imports, because the command line's help needs it."""

from dataclasses import dataclass
from enum import StrEnum

from k25trace.errors import UsageError

ROWS_SHOWN = 25
"""Rows shown of long tables where nothing else is asked for."""


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


def check_options(by: By, *, per_gpu: bool, inclusive: bool, depth: int | None) -> None:
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
    if per_gpu and by is By.gpu:
        raise UsageError("--per-gpu does not go with --by gpu", "leave it out: --by gpu has a row for each GPU")
    if per_gpu and by is By.kernel:
        raise UsageError(
            "--per-gpu does not go with --by kernel: kernel names have rows over all GPUs alone",
            "--by family --per-gpu is the finest there is for each GPU",
        )


class BriefFormat(StrEnum):
    """How what is no table is written."""

    table = "table"
    json = "json"


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
        Rows shown, 0: all; None: `ROWS_SHOWN` of long tables, all of others.
    verbose
        Also the longest-running kernels of each category.
    header
        For CSV: whether ``#`` lines come before the rows; None: they do.
    range_glob, domains, rules
        What of the analysis the header repeats: the pattern of ``--range``, the domains whose ranges own kernels
        (empty: all but NCCL's), and the files of rules that come before the default ones.
    save
        Whether every result is also saved as a database.
    step
        The step that the window was chosen by; None: none was.
    """

    by: By = By.category
    output_format: Format = Format.table
    per_gpu: bool = False
    inclusive: bool = False
    depth: int | None = None
    top: int | None = None
    verbose: bool = False
    header: bool | None = None
    range_glob: str | None = None
    domains: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    save: bool = False
    step: int | None = None

    def __post_init__(self) -> None:
        check_options(self.by, per_gpu=self.per_gpu, inclusive=self.inclusive, depth=self.depth)
        form, for_people = self.output_format, self.output_format in {Format.table, Format.markdown}
        if self.top is not None and self.top < 0:
            raise UsageError("--top counts rows", "--top 0 shows all")
        if self.top is not None and not for_people:
            raise UsageError(f"--top goes with tables: --format {form.value} has all rows")
        if self.verbose and not for_people:
            raise UsageError(f"--verbose goes with tables, not with --format {form.value}", "see --by kernel")
        if self.depth is not None and form is Format.json:
            raise UsageError("--depth does not go with --format json, which has whole paths")
        if self.header is not None and form is not Format.csv:
            raise UsageError("--header and --no-header go with --format csv")
        if self.domains and not (self.needs_ranges or self.range_glob is not None or self.save):
            raise UsageError(
                f"--domain does nothing for --by {self.by.value}: it says which ranges own kernels",
                "add --range, --by range or --by path, or leave it out",
            )

    @property
    def needs_ranges(self) -> bool:
        """Whether kernels must be attributed to ranges for it."""
        return self.output_format is Format.json or self.by in {By.range, By.path}

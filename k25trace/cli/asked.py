"""What the verbs that say why do before they read a report."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from k25trace.classify import RuleSet, load_rules
from k25trace.report.files import check_free
from k25trace.templates import Template, read_template


class Asked(NamedTuple):
    """The files of a question, read, and those that are never written over."""

    rules: RuleSet
    template: Template | None
    never: list[Path]


def asked(
    reports: Sequence[Path], rules: Sequence[Path] | None, template: Path | None, output: Path | None, *, force: bool
) -> Asked:
    """Check that the output can be written, then read rules and template.

    Raises
    ------
    OutputExists, UsageError, BadRules, BadTemplate
        Something of that cannot be.
    """
    never = [*reports, *(rules or []), *filter(None, [template])]
    if output is not None:
        check_free(output, force=force, never=never, streams=True)
    return Asked(load_rules(rules or []), None if template is None else read_template(template), never)

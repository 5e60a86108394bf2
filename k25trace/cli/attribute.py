"""``k25trace attribute``."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from k25trace.cli.options import Force, Output, Reports, Rules


class Format(str, Enum):
    """Output formats of verbs that print rows."""

    table = "table"
    json = "json"
    csv = "csv"
    markdown = "markdown"


def attribute(
    reports: Reports,
    output_format: Annotated[Format, typer.Option("--format")] = Format.table,
    window: Annotated[str | None, typer.Option("--window")] = None,
    range_glob: Annotated[str | None, typer.Option("--range")] = None,
    domain: Annotated[list[str] | None, typer.Option("--domain")] = None,
    rules: Rules = None,
    output: Output = None,
    force: Force = False,
) -> None:
    """Attribute."""
    import sys

    from k25trace.analysis import attribute as analyse
    from k25trace.classify import load_rules
    from k25trace.report import json_

    found = analyse(list(reports), window=window, range_glob=range_glob, domains=domain, rules=load_rules(rules or []))
    json_.render(json_.build(found), sys.stdout)

"""The command line: one verb a file, thin bodies, one place where errors become text and exit codes."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import typer

from k25trace import __version__
from k25trace.cli import (
    attribute,
    capture,
    collectives,
    doctor,
    export,
    gaps,
    query,
    report,
    rules,
    scrub,
    steps,
    streams,
    template,
    timeline,
    view,
)
from k25trace.errors import K25TraceError, UsageError
from k25trace.paths import path_text
from k25trace.report.text import printable

app = typer.Typer(
    name="k25trace",
    help="Where does the time of an LLM's step go on N GPUs? Attribution of Nsight Systems traces.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("attribute")(attribute.attribute)
app.command("steps")(steps.steps)
app.command("collectives")(collectives.collectives)
app.command("gaps")(gaps.gaps)
app.command("report")(report.report)
app.command("timeline")(timeline.timeline)
app.command("view")(view.view)
app.command("query", cls=query.QueryCommand, context_settings=query.CONTEXT)(query.query)
# What follows the program's name is the program's.
app.command("capture", context_settings={"allow_interspersed_args": False})(capture.capture)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)
app.command("scrub")(scrub.scrub)
app.add_typer(rules.app, name="rules")
app.add_typer(template.app, name="template")


def _version(value: bool) -> None:
    if value:
        typer.echo(f"k25trace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Say where the time of an LLM's step goes on N GPUs."""


def main() -> None:
    """Run the command line; a `K25TraceError` becomes one line, its hint another, and its exit code."""
    streams.prepare()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()  # here, where a full disk can still be told of
    except K25TraceError as error:
        _fail(error)
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`).
        streams.give_up()
        raise SystemExit(1) from None
    except UnicodeEncodeError as error:
        _fail(UsageError(f"{error.object[:80]!r}: not text that can be written as {error.encoding}"))
    except OSError as error:
        streams.give_up()
        what = path_text(Path(error.filename)) if error.filename else "the output cannot be written"
        _fail(K25TraceError(f"{what}: {(error.strerror or str(error)).lower()}"))


def _fail(error: K25TraceError) -> NoReturn:
    with suppress(OSError):  # where messages go has no room either: the exit code remains
        sys.stderr.write(f"k25trace: {printable(error.message)}\n")
        if error.hint:
            sys.stderr.write(f"  {printable(error.hint)}\n")
    raise SystemExit(error.exit_code) from None

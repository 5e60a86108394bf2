"""The command line: one verb a file, thin bodies, one place where errors become text and exit codes."""

import os
import sys

import typer

from k25trace import __version__
from k25trace.cli import attribute, capture, doctor, export, query, rules, scrub
from k25trace.errors import K25TraceError
from k25trace.report.text import printable

app = typer.Typer(
    name="k25trace",
    help="Where does the time of an LLM's step go on N GPUs? Attribution of Nsight Systems traces.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("attribute")(attribute.attribute)
app.command("query", cls=query.QueryCommand, context_settings=query.CONTEXT)(query.query)
# What follows the program's name is the program's.
app.command("capture", context_settings={"allow_interspersed_args": False})(capture.capture)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)
app.command("scrub")(scrub.scrub)
app.add_typer(rules.app, name="rules")


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
    try:
        app()
    except K25TraceError as error:
        sys.stderr.write(f"k25trace: {printable(error.message)}\n")
        if error.hint:
            sys.stderr.write(f"  {printable(error.hint)}\n")
        raise SystemExit(error.exit_code) from None
    except BrokenPipeError:
        # The reader of our output has seen enough (`| head`); what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None

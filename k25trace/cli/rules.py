"""``k25trace rules``: list, explain, check and apply the classification rules."""

import typer

app = typer.Typer(no_args_is_help=True, help="List, explain, check and apply the classification rules.")

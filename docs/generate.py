"""Write the parts of README and docs/reference that repeat what the program knows, from the live objects.

    python docs/generate.py            # rewrite the parts between the markers
    python docs/generate.py --check    # exit 1 if a page is not what it would become

A page holds ``<!-- NAME: begin -->`` and ``<!-- NAME: end -->``; all between them belongs to this script.
"""

import argparse
import importlib
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import typer
from typer.models import ArgumentInfo

import k25trace
from k25trace import errors
from k25trace.catalog import Column, Query, find
from k25trace.cli import app
from k25trace.presets import load_preset, preset_names
from k25trace.warnings import KINDS

REPOSITORY = Path(__file__).resolve().parents[1]
REFERENCE = REPOSITORY / "docs" / "reference"
SCHEMAS = {
    "json.md": "attribution.schema.json",
    "json-steps.md": "steps.schema.json",
    "json-collectives.md": "collectives.schema.json",
    "json-gaps.md": "gaps.schema.json",
}
"""Page of a document → its schema."""

SIGNS = {
    "incomplete-capture": (
        "In a process that launches kernels, at least 90 % of the innermost push/pop ranges (of 50 or more)"
        " hold no API call at all; or a process that opened the recording with the CUDA profiler's switch goes on with"
        " ranges that held calls after its last recorded API call"
    ),
    "no-kernels": "One of several reports holds no kernel (if none holds any, the command exits with 3)",
    "dropped-events": "A diagnostic message of nsys, of level warning or worse, speaks of lost events",
    "opaque-graphs": "A graph launch, outside any stream capture, with which no recorded operation is linked",
    "launches-without-kernels": (
        "A kernel launch that did not fail, was not made during a stream capture and is not within 1 ms of"
        " the end has no kernel"
    ),
    "kernels-without-launch": "No API call of the kernel's process has its correlation id",
    "capture-ranges-missing": (
        "The graph node of a replayed kernel was captured before the first recorded call or range of its"
        " process, or its capture is not in the report"
    ),
    "ranges-without-end": "An NVTX range has no end",
    "unusable-times": (
        "Start and end are 0, or the end is before the start, or one of them is more than 60 s outside the capture"
    ),
    "ambiguous-device": (
        "Several processes use one ordinal, no process uses another, and the report has no device map"
    ),
    "stream-overlap": "A kernel starts before the kernel ahead of it on its stream ends",
    "nvtx-not-recorded": "The report has no NVTX range",
    "unclassified": "No classification rule applies to a kernel's name",
    "diagnostics": "A diagnostic message of nsys, of level warning or worse, about anything but lost events",
    "clock-unaligned": "The reports of one analysis have clocks of their own",
    "assumed-device": "The report has no device map, and its processes use different ordinals",
    "schema-newer": "The version of the export's schema is above the newest one that is known",
}
"""How each warning is noticed; what it counts and does to the figures is in `k25trace.warnings.KINDS`."""


def main() -> int:
    """Rewrite the pages, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only")
    check = parser.parse_args().check
    stale = [page for page, text in pages() if page.read_text(encoding="utf-8") != text]
    for page, text in pages():
        if not check:
            page.write_text(text, encoding="utf-8")
    for page in stale if check else []:
        sys.stderr.write(f"{page.relative_to(REPOSITORY)} is stale; run: python docs/generate.py\n")
    return 1 if check and stale else 0


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page with the text that it should have."""
    blocks: dict[Path, dict[str, Callable[[], str]]] = {
        REPOSITORY / "README.md": {"output": readme_output},
        REFERENCE / "cli.md": {"commands": commands, "exit-codes": exit_codes},
        REFERENCE / "warnings.md": {"warnings": warnings},
        **{REFERENCE / page: {"fields": partial(fields, REFERENCE / schema)} for page, schema in SCHEMAS.items()},
        REFERENCE / "queries.md": {"queries": queries},
        REFERENCE / "python-api.md": {"api": api},
        REPOSITORY / "docs" / "how-to" / "capture.md": {"presets": presets},
    }
    for page, parts in blocks.items():
        text = page.read_text(encoding="utf-8")
        for marker, build in parts.items():
            begin, end = f"<!-- {marker}: begin -->\n", f"<!-- {marker}: end -->"
            before, found, rest = text.partition(begin)
            _, closed, after = rest.partition(end)
            if not (found and closed):
                raise SystemExit(f"{page}: no markers {marker}")
            text = f"{before}{begin}{build()}{end}{after}"
        yield page, text


# ---- README


def quick_start() -> list[str]:
    """Return the fenced commands of the README's *Quick start*."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Quick start\n")[2].partition("\n## ")[0]
    return re.findall(r"^```\w*\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def readme_output() -> str:
    """Return what the program prints when it is run as the first command of the README runs it."""
    words = shlex.split(quick_start()[0].rpartition("&&")[2])
    environment = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(  # noqa: S603 - this program, with the words of our own README
        [sys.executable, "-m", "k25trace", *words[1:]],
        cwd=REPOSITORY, env=environment, capture_output=True, encoding="utf-8", check=True,
    )  # fmt: skip
    return "```text\n" + "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines()) + "```\n"


# ---- command line


def leaves(group: typer.Typer = app, words: str = "k25trace") -> Iterator[tuple[str, Callable[..., None]]]:
    """Yield every command that does something, as (words, function): ``("k25trace rules list", ...)``."""
    for command in group.registered_commands:
        if command.callback is not None:
            yield f"{words} {command.name or command.callback.__name__.replace('_', '-')}", command.callback
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            yield from leaves(inner.typer_instance, f"{words} {inner.name}")


def commands() -> str:
    """Return a section a command: what it does, its arguments and options, an example."""
    return "\n".join(_command(words, function) for words, function in leaves())


def _command(words: str, function: Callable[..., None]) -> str:
    said, example = split_help(function)
    arguments, options = parameters(function)
    given = [a.spelling for a in arguments]
    # What follows `--` is the last of all.
    usage = " ".join([words, *given, "[OPTIONS]"] if not words.endswith("capture") else [words, "[OPTIONS]", *given])
    lines = [f"## `{words}`", "", said, "", "```text", usage, "```", ""]
    rows = [f"| {_code(p.spelling)} | {_cell(p.meaning)} |" for p in [*arguments, *options]]
    lines += ["| argument or option | meaning |", "| --- | --- |", *rows, ""]
    return "\n".join([*lines, "```console", f"$ {example}", "```", ""])


def split_help(function: Callable[..., None]) -> tuple[str, str]:
    """Return a command's help without its example, and the example (``""`` without one)."""
    said, _, example = (inspect.getdoc(function) or "").partition("Example: ")
    return " ".join(said.split()), example.strip()


class Parameter(NamedTuple):
    """An argument or option as the page shows it."""

    spelling: str
    meaning: str


def parameters(function: Callable[..., None]) -> tuple[list[Parameter], list[Parameter]]:
    """Return the arguments and the options of a command, from its annotated signature."""
    arguments: list[Parameter] = []
    options: list[Parameter] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if parameter.annotation is typer.Context:
            continue
        kind, info = get_args(parameter.annotation)[:2]
        if isinstance(info, ArgumentInfo):
            arguments.append(Parameter(info.metavar or name.upper(), info.help or ""))
            continue
        enums = [k for k in (kind, *get_args(kind)) if inspect.isclass(k) and issubclass(k, Enum)]
        choices = [str(c.value) for enum in enums for c in enum]
        # Inside Annotated, Typer keeps the first spelling where a default would be.
        given = [d for d in (info.default, *(info.param_decls or ())) if isinstance(d, str) and d.startswith("-")]
        declared = given or [f"--{name.replace('_', '-')}"]
        spelling = ", ".join(sorted(declared, key=lambda d: d.startswith("--")))
        if kind is not bool:
            spelling += f" {info.metavar or ('CHOICE' if choices else 'VALUE')}"
        meaning = info.help or ""
        if choices:
            meaning += f" One of {', '.join(f'`{choice}`' for choice in choices)}."
        default = getattr(parameter.default, "value", parameter.default)
        if default is parameter.empty:
            meaning += " Required."
        elif default is not None and not isinstance(default, bool):
            meaning += f" Default: `{default}`."
        options.append(Parameter(spelling, meaning))
    return arguments, options


def exit_codes() -> str:
    """Return the exit codes of the errors, from `k25trace.errors`."""
    kinds = [k for k in vars(errors).values() if inspect.isclass(k) and issubclass(k, errors.K25TraceError)]
    by_code: dict[int, list[str]] = {}
    for kind in kinds:
        if kind is not errors.K25TraceError:
            by_code.setdefault(kind.exit_code, []).append(re.sub(r" \(exit \d\)", "", _first_line(kind)))
    lines = [
        "| code | when |",
        "| ---: | --- |",
        "| 0 | Done; what is to be distrusted is among the warnings |",
    ]
    lines += [f"| {code} | {_cell(' '.join(said))} |" for code, said in sorted(by_code.items())]
    return "\n".join(lines) + "\n"


# ---- warnings


def warnings() -> str:
    """Return a table a level, from `k25trace.warnings.KINDS`."""
    if SIGNS.keys() != KINDS.keys():
        raise SystemExit(f"docs/generate.py: SIGNS and KINDS differ: {sorted(SIGNS.keys() ^ KINDS.keys())}")
    lines: list[str] = []
    for level in ("error", "warning", "info"):
        lines += [f"## Level {level}", ""]
        for code, kind in KINDS.items():
            if kind.level == level:
                lines += [
                    f"### `{code}`",
                    "",
                    f"- Sign: {SIGNS[code]}",
                    f"- Counts: {kind.unit}",
                    f"- Effect: {kind.effect}",
                    "",
                ]
    return "\n".join(lines)


# ---- queries


def queries() -> str:
    """Return a table of all queries and a section for each, then the steps, from their headers."""
    catalog = find()
    lines = ["| query | standalone | what it says |", "| --- | --- | --- |"]
    lines += [f"| [`{q.name}`](#{q.name}) | {'yes' if q.standalone else 'no'} | {_cell(q.summary)} |" for q in catalog]
    for q in catalog:
        lines += ["", f"### `{q.name}` {{ #{q.name} }}", "", *_query(q)]
    lines += ["", "## Steps", ""]
    lines.append(
        "Steps stand behind queries, and `--sql` may name them. One with an index is kept as a table in memory."
    )
    for _, step in sorted(catalog.queries.items()):
        if step.is_step:
            lines += ["", f"### `{step.name}`", "", *_query(step)]
    return "\n".join(lines) + "\n"


def _query(query: Query) -> list[str]:
    lines = [_prose(query.summary), ""]
    for paragraph in query.doc.split("\n\n"):
        lines += [_prose(" ".join(paragraph.split())), ""] if paragraph else []
    if query.params:
        lines += ["| parameter | type | meaning |", "| --- | --- | --- |"]
        lines += [f"| `--{p.name.replace('_', '-')}` | {_sql_type(p)} | {_cell(p.meaning)} |" for p in query.params]
        lines.append("")
    lines += ["| column | type | meaning |", "| --- | --- | --- |"]
    lines += [f"| `{c.name}` | {_sql_type(c)} | {_cell(c.meaning)} |" for c in query.columns]
    reads = ", ".join(f"`{r.table}`" + (" (may be absent)" if r.optional else "") for r in query.requires)
    lines += ["", f"Reads {reads}." + (f" Ordered by {', '.join(query.order)}." if query.order else "")]
    if query.indexes:
        lines[-1] += " Indexed by " + "; ".join(", ".join(index) for index in query.indexes) + "."
    if query.oracle:
        lines[-1] += f" The same in Python: `{query.oracle}`."
    return lines


def _prose(text: str) -> str:
    return re.sub(r"([*_|\[\]<])", r"\\\1", text)


def _sql_type(column: Column) -> str:
    unit = f", {column.unit}" if column.unit else ""
    unit += "" if column.least is None else f", at least {column.least}"
    return f"{column.type}{unit}" + (" or NULL" if column.nullable and not column.name.startswith(":") else "")


# ---- presets


def presets() -> str:
    """Return a section a preset of `k25trace capture`, from its data."""
    lines: list[str] = []
    for name in preset_names():
        preset = load_preset(name)
        sets = ", ".join(f"`{n}={v}`" for n, v in preset.environment.items()) or "nothing"
        lines += [
            f"### `--preset {name}`",
            "",
            f"{preset.summary}.",
            "",
            f"- Recording opened by: `{preset.capture_range}`",
            f"- Flags of nsys, where it has them: {', '.join(f'`{f}`' for f in preset.flags)}",
            f"- Sets in the environment, where you have not: {sets}",
            f"- To open it: {_cell(preset.open_range)}",
            f"- To close it: {_cell(preset.close_range)}",
            *(f"- `{text}`: {_cell(' '.join(how.split()))}" for text, how in preset.nvtx.items()),
            f"- Note: {_cell(preset.notes)}",
            "",
        ]
    return "\n".join(lines)


# ---- JSON


def fields(path: Path) -> str:
    """Return a table a kind of row, from a published schema."""
    schema = json.loads(path.read_text(encoding="utf-8"))
    lines = ["## The document", "", *_properties(schema)]
    for name, part in schema["$defs"].items():
        if part["type"] == "object":
            lines += [
                f"## {name.replace('_row', '').replace('_', ' ').capitalize()}",
                "",
                f"{part['description']}.",
                "",
            ]
            lines += _properties(part)
    return "\n".join(lines)


def _properties(part: dict[str, Any]) -> list[str]:
    rows = [
        f"| `{name}` | {_type(value)} | {_cell(value.get('description', ''))} |"
        for name, value in part["properties"].items()
    ]
    return ["| key | type | meaning |", "| --- | --- | --- |", *rows, ""]


def _type(value: dict[str, Any]) -> str:
    if "$ref" in value:
        return "string"
    if "const" in value:
        return f"`{value['const']}`"
    if "enum" in value:
        choices = ["null" if choice is None else f"`{choice}`" for choice in value["enum"]]
        return ", ".join(choices) if len(choices) < 6 else "string"
    types = value["type"] if isinstance(value["type"], list) else [value["type"]]
    if "array" in types:
        inner = value["items"].get("type") or value["items"]["$ref"].rsplit("/", 1)[1].replace("_row", "").replace(
            "_", " "
        )
        types = [f"array of {inner}" if t == "array" else t for t in types]
    return " or ".join(types)


# ---- Python


def api() -> str:
    """Return a section a public name, from its docstring and signature."""
    lines: list[str] = []
    for name in sorted(k25trace.__all__):
        thing = getattr(k25trace, name)
        home = importlib.import_module(thing.__module__).__name__
        lines += [f"### `{name}`", "", _cell(_first_line(thing)), ""]
        if inspect.isfunction(thing):
            lines += ["```python", _signature(name, thing), "```", ""]
        rows = [f"| `{what}` | {_cell(said)} |" for what, said in documented(thing)]
        if rows:
            lines += ["| name | meaning |", "| --- | --- |", *rows, ""]
        lines += [f"Defined in `{home}`.", ""]
    return "\n".join(lines)


def _signature(name: str, function: Callable[..., object]) -> str:
    shown = inspect.signature(function)
    parts = [str(p) for p in shown.parameters.values()]
    star = next((i for i, p in enumerate(shown.parameters.values()) if p.kind is p.KEYWORD_ONLY), None)
    if star is not None:
        parts.insert(star, "*")
    returns = shown.return_annotation
    text = f"{name}({', '.join(parts)}) -> {getattr(returns, '__name__', returns)}"
    return re.sub(r"\b(?:k25trace|os|collections|pathlib|_?local)(?:\.\w+)*\.(?=[A-Z])", "", text)


def documented(thing: object) -> Iterator[tuple[str, str]]:
    """Yield (name, meaning) of the parameters, attributes and methods that a numpydoc docstring lists."""
    text = inspect.getdoc(thing) or ""
    for section in re.findall(
        r"^(?:Parameters|Attributes|Methods)\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", text, re.DOTALL | re.MULTILINE
    ):
        for name, said in re.findall(r"^(\S[^\n]*)\n((?:[ \t]+[^\n]*\n?|\n)+)", section, re.MULTILINE):
            yield name, " ".join(said.split())


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")


def _code(text: str) -> str:
    return "`" + text.replace("|", r"\|") + "`"


def _cell(text: str) -> str:
    """Return text for a cell of a table: nothing in it ends the cell or begins a tag."""
    return text.replace("``", "`").replace("|", r"\|").replace("<", "&lt;")


if __name__ == "__main__":
    raise SystemExit(main())

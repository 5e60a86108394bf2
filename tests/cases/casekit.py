"""The form of a case: an input, a command, the right answer, and how the two are compared."""

from __future__ import annotations

import importlib.util
import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from laws import check_laws
from oracles import attribution
from tracekit import KernelName, TraceBuilder, classify_known

Cell = tuple[int, int]  # ns, count
Build = Callable[[Path], "TraceBuilder | Path | Sequence[Path | TraceBuilder]"]


@dataclass(frozen=True)
class Range:
    """A row of ``ranges``; None for what the case leaves open. ``path`` None: launched under no range."""

    path: tuple[str, ...] | None
    ns: int
    count: int
    kind: str = "pushpop"
    process: int | None = None
    via: str | None = None
    domain: str | None = None
    gpu: str | None = None


@dataclass(frozen=True)
class Want:
    """The right answer. A part that is None is not compared; one that is given must match row for row.

    ``categories`` and ``families`` are {(gpu, name): (ns, count)}, ``wall`` {(gpu, row): ns}, ``gpus``
    {gpu: {field: value}} with exactly these GPUs, ``warnings`` {code: count or None for any}, ``silent``
    codes that must not be said, ``inclusive`` {range name: ns} with a kernel once per name.
    """

    gpus: Mapping[str, Mapping[str, Any]] | None = None
    categories: Mapping[tuple[str, str], Cell] | None = None
    families: Mapping[tuple[str, str], Cell] | None = None
    wall: Mapping[tuple[str, str], int] | None = None
    ranges: Sequence[Range] | None = None
    inclusive: Mapping[str, int] = field(default_factory=dict)
    kernels: Mapping[str, Cell] | None = None
    windows: Sequence[tuple[int, int]] | None = None
    warnings: Mapping[str, int | None] = field(default_factory=dict)
    silent: Sequence[str] = ()
    says: Sequence[str] = ()
    never: Sequence[str] = ()


@dataclass(frozen=True)
class Refusal:
    """What a command says that gives no figures: its exit code, and one of each group of words."""

    code: int | tuple[int, ...]
    says: Sequence[Sequence[str]] = ()


@dataclass(frozen=True)
class Case:
    """One input with its right answer.

    ``build`` gets an empty folder and returns a builder (written as ``trace.sqlite``), a path, or several.
    ``oracle`` is False where the oracle has nothing to say of it: several reports, damaged files.
    """

    name: str
    build: Build
    want: Want | Refusal
    args: tuple[str, ...] = ()
    oracle: bool = True

    def inputs(self, folder: Path) -> list[Path]:
        """Make the inputs and return their paths."""
        made = self.build(folder)
        several = made if isinstance(made, Sequence) else [made]
        return [
            x.write(folder / f"trace{i or ''}.sqlite") if isinstance(x, TraceBuilder) else x
            for i, x in enumerate(several)
        ]


def params(cases: Sequence[Case]) -> list[Any]:
    """Return the cases as pytest parameters named after them."""
    names = [c.name for c in cases]
    assert len(set(names)) == len(names), "two cases of one name"
    return [pytest.param(c, id=c.name) for c in cases]


def options(args: Sequence[str]) -> dict[str, Any]:
    """Return the oracle's keywords for the options of a command line."""
    out: dict[str, Any] = {}
    for option, value in zip(args[::2], args[1::2], strict=True):
        if option == "--window":
            start, end = value.split(":")
            out["window"] = (int(start), int(end))
        elif option == "--range":
            out["range_glob"] = value
        elif option == "--domain":
            out.setdefault("domains", []).append(value)
        else:
            raise AssertionError(f"the oracle knows no {option}")
    return out


def check_oracle(case: Case, folder: Path) -> None:
    """Compare the oracle with the answer written by hand."""
    assert isinstance(case.want, Want)
    (path,) = case.inputs(folder)
    got = attribution(path, classify_known, **options(case.args))
    said = {code: (count, "") for code, count in got["warnings"].items()}
    compare(got, case.want, said, only_countable=True)


def check_product(case: Case, folder: Path, run: Callable[..., Any], guard: Callable[[Path], Any]) -> None:
    """Compare the command line with the answer, and see that it leaves its input alone."""
    inputs = case.inputs(folder)
    with guard(folder):
        outcome = run("attribute", *inputs, "--format", "json", *case.args)
    text = flat(outcome.stdout + " " + outcome.stderr)
    assert "Traceback (most recent call last)" not in text
    if isinstance(case.want, Refusal):
        codes = case.want.code if isinstance(case.want.code, tuple) else (case.want.code,)
        assert outcome.code in codes, outcome
        for group in case.want.says:
            assert any(word.lower() in text.lower() for word in group), (group, text)
        assert '"categories"' not in outcome.stdout
        return
    assert outcome.code == 0, outcome
    document = json.loads(outcome.stdout, parse_constant=_no_number)
    check_laws(document)
    said = {w["code"]: (w["count"], w["message"]) for w in document["warnings"]}
    compare(document, case.want, said)
    for word in case.want.says:
        assert word.lower() in text.lower(), (word, text)
    for secret in case.want.never:
        assert secret not in text


def _no_number(text: str) -> None:
    raise AssertionError(f"{text} in JSON")


def flat(text: str) -> str:
    """Return text on one line, without the frames and wrapping of a terminal library."""
    return re.sub(r"[\s\u2500-\u257f]+", " ", text)


def compare(
    got: Mapping[str, Any], want: Want, said: Mapping[str, tuple[Any, str]], *, only_countable: bool = False
) -> None:
    """Assert that a document, or the oracle's answer, is what the case wants."""
    if want.gpus is not None:
        assert sorted(g["gpu"] for g in got["gpus"]) == sorted(want.gpus)
        for g in got["gpus"]:
            expected = want.gpus[g["gpu"]]
            assert {k: g[k] for k in expected} == dict(expected), g["gpu"]
    for part, key in (("categories", "category"), ("families", "family")):
        expected = getattr(want, part)
        if expected is not None:
            cells: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
            for r in got[part]:
                if r["gpu"] != "all":
                    cells[r["gpu"], r[key]][0] += r["kernel_ns"]
                    cells[r["gpu"], r[key]][1] += r["kernel_count"]
            assert _present(cells) == _present(expected), part
    if want.wall is not None:
        rows = {(r["gpu"], r["row"]): r["wall_ns"] for r in got["wall"] if r["wall_ns"] and r["gpu"] != "all"}
        assert rows == {k: ns for k, ns in want.wall.items() if ns}
    if want.kernels is not None:
        names = {r["name"]: (r["kernel_ns"], r["kernel_count"]) for r in got["kernels"]}
        assert names == dict(want.kernels)
    if want.windows is not None:
        assert [(w["start_ns"], w["end_ns"]) for w in got["windows"]] == list(want.windows)
    if want.ranges is not None:
        _compare_ranges(got["ranges"], want.ranges)
    for name, ns in want.inclusive.items():
        inside = sum(r["kernel_ns"] for r in got["ranges"] if r["kind"] == "pushpop" and name in (r["path"] or ()))
        assert inside == ns, name
    for code, count in want.warnings.items():
        if only_countable and code not in COUNTABLE:
            continue
        assert code in said, f"{code} is not said, only {sorted(said)}"
        assert count is None or said[code][0] == count or (only_countable and code in YES_OR_NO), (
            code,
            said[code],
        )
    for code in want.silent:
        assert code not in said, said[code]


COUNTABLE = {
    "opaque-graphs",
    "kernels-without-launch",
    "launches-without-kernels",
    "ranges-without-end",
    "capture-ranges-missing",
    "unusable-times",
    "incomplete-capture",
    "assumed-device",
    "ambiguous-device",
}
YES_OR_NO = {"incomplete-capture", "assumed-device", "ambiguous-device"}


def _present(cells: Mapping[tuple[str, str], Sequence[int]]) -> dict[tuple[str, str], Cell]:
    return {k: (ns, count) for k, (ns, count) in cells.items() if ns or count}


def _compare_ranges(rows: Sequence[Mapping[str, Any]], wanted: Sequence[Range]) -> None:
    """Every row of the answer is taken by exactly one wanted range, and each of those has its sum."""
    left = [r for r in rows if r["gpu"] != "all" and (r["kernel_ns"] or r["kernel_count"])]
    for w in wanted:
        mine = [r for r in left if _matches(r, w)]
        left = [r for r in left if not _matches(r, w)]
        sums = sum(r["kernel_ns"] for r in mine), sum(r["kernel_count"] for r in mine)
        assert sums == (w.ns, w.count), (w, rows)
    assert not left, left


def _matches(row: Mapping[str, Any], want: Range) -> bool:
    path = None if row["path"] is None else tuple(row["path"])
    return (path, row["kind"]) == (want.path, want.kind) and all(
        expected is None or row[key] == expected
        for key, expected in (
            ("process", want.process),
            ("via", want.via),
            ("domain", want.domain),
            ("gpu", want.gpu),
        )
    )


def names(*kernels: tuple[KernelName, Cell]) -> dict[str, Cell]:
    """Return a `Want.kernels` from kernels and their cells."""
    return {k.demangled: cell for k, cell in kernels}


needs_product = pytest.mark.skipif(
    importlib.util.find_spec("k25trace.cli.attribute") is None, reason="the command is not there yet"
)

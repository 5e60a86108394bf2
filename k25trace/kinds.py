"""What kind of step one is: prefill, decode or mixed where names say so; otherwise told apart and not named.

Nothing is guessed: where names do not say, steps are told apart by ``M=...`` in the names of their ranges, by the
kernels of the graphs they replay, or by their attention kernels, and called after that.
"""

import re
from collections import Counter
from string import ascii_uppercase

import polars as pl

from k25trace.examined import Examined
from k25trace.stepping import Stepping
from k25trace.taxonomy import ALL_CATEGORIES
from k25trace.trace.interning import integers

PREFILL, DECODE, MIXED, EMPTY = "prefill", "decode", "mixed", "no requests"
UNLABELLED = "unlabelled"

_BATCH = (
    re.compile(r"execute_context_(?P<prefill>\d+)\(\d+\)_generation_(?P<decode>\d+)\(\d+\)"),
    re.compile(r"(?P<prefill>\d+) ctx reqs\D.*?(?P<decode>\d+) gen(?:eration)? reqs"),
)
"""How vLLM and TensorRT-LLM write the requests of a step into the name of its range."""

_WORDS = {
    PREFILL: re.compile(r"(?<![a-z])(?:prefill|extend)(?![a-z])", re.IGNORECASE),
    DECODE: re.compile(r"(?<![a-z])decode(?![a-z])", re.IGNORECASE),
}
_TOKENS = re.compile(r"(?<![A-Za-z0-9])M=(\d+)(?!\d)")
_ATTENTION = [i for i, c in enumerate(ALL_CATEGORIES) if c.startswith("attention.")]


def kind_of_name(name: str) -> str | None:
    """Return the kind that the name of a step's range says, or None.

    Examples
    --------
    >>> kind_of_name("execute_context_2(512)_generation_3(3)"), kind_of_name("decode_step"), kind_of_name("step7")
    ('mixed', 'decode', None)
    """
    for pattern in _BATCH:
        if batch := pattern.search(name):
            prefill, decode = int(batch["prefill"]), int(batch["decode"])
            return (MIXED if decode else PREFILL) if prefill else (DECODE if decode else EMPTY)
    said = [kind for kind, word in _WORDS.items() if word.search(name)]
    return None if not said else said[0] if len(said) == 1 else MIXED


def step_kinds(examined: Examined, stepping: Stepping) -> pl.DataFrame:
    """Return the kind of each step.

    Returns
    -------
    pl.DataFrame
        Aligned with ``stepping.steps``: kind String · kind_basis String, what it rests on: ``name`` (of the range),
        ``tokens`` (``M=...`` in a range's name), ``graph`` (kernels of the replayed graphs), ``attention`` (names of
        the attention kernels), ``none``.
    """
    names = examined.trace.names
    steps = stepping.steps
    by_name = {n: kind_of_name(names[n]) for n in integers(steps["name"].drop_nulls().unique())}
    said: list[str | None] = [by_name.get(n) for n in steps["name"].to_list()]
    rest = {
        "tokens": _tokens(examined, stepping),
        "graph": _letters(_signatures(examined, stepping, pl.col("graph_node").is_not_null(), counted=True), "graph"),
        "attention": _letters(
            _signatures(examined, stepping, pl.col("category").is_in(_ATTENTION), counted=False), "attention"
        ),
    }
    kinds: list[str] = []
    bases: list[str] = []
    for step, kind in enumerate(said):
        basis = "name" if kind else next((b for b, found in rest.items() if step in found), "none")
        bases.append(basis)
        kinds.append(kind or rest.get(basis, {}).get(step, UNLABELLED))
    return pl.DataFrame({"kind": kinds, "kind_basis": bases}, schema={"kind": pl.String, "kind_basis": pl.String})


def _tokens(examined: Examined, stepping: Stepping) -> dict[int, str]:
    """Return ``M=...`` of the steps in whose ranges it has one value."""
    frame = examined.operations.select("path", stepping.of_operations.alias("step")).drop_nulls("step").unique()
    paths = examined.path_names(frame["path"])
    told = {path: {int(m) for name in found for m in _TOKENS.findall(name)} for path, found in paths.items()}
    values: dict[int, set[int]] = {}
    for path, step in frame.iter_rows():
        values.setdefault(step, set()).update(told.get(path, ()))
    return {step: f"M={found.copy().pop()}" for step, found in values.items() if len(found) == 1}


def _signatures(examined: Examined, stepping: Stepping, which: pl.Expr, *, counted: bool) -> dict[int, str]:
    """Return the names of some kernels of each step, with how often each comes if ``counted``, as one text."""
    chosen = (
        examined.operations.select("name", "category", "graph_node", stepping.of_operations.alias("step"))
        .filter(pl.col("name").is_not_null() & pl.col("step").is_not_null() & which)
        .group_by("step", "name")
        .agg(pl.len().alias("count"))
        .sort("step", "name")
    )
    if not counted:
        chosen = chosen.with_columns(pl.lit(1).alias("count"))
    texts = chosen.group_by("step", maintain_order=True).agg(pl.format("{}x{}", "name", "count").str.join(","))
    return dict(texts.rows())


def _letters(signatures: dict[int, str], what: str) -> dict[int, str]:
    """Return ``what A`` for the commonest signature, ``what B`` for the next; none where they are too many to tell."""
    common = [text for text, _ in sorted(Counter(signatures.values()).items(), key=lambda item: (-item[1], item[0]))]
    if len(common) > len(ascii_uppercase):
        return {}
    letter = {text: f"{what} {ascii_uppercase[i]}" for i, text in enumerate(common)}
    return {step: letter[text] for step, text in signatures.items()}

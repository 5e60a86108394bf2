"""Names of NVTX ranges: one grammar for what the workloads emit and what reads it. Standard library only.

A name is a kind, with an index where there are many of them, and a part where a kind has several::

    name  = "rank=" index | kind [index] ["." part]
    kind  = lower-case words joined by "_"         layer, mla_attention, gemm
    index = 0 | a number without leading zeros     layer3
    part  = a lower-case word, digits allowed      gemm.experts, allreduce.attn

So a name says one thing in one way: ``parse(build(x)) == x``, and ``build(parse(text)) == text``.
"""

import re
from dataclasses import dataclass

DOMAIN = "k25"
"""The NVTX domain of all of them."""

RANK = "rank"
LAYER = "layer"
EAGER_STEP, GRAPH_STEP = "eager_step", "graph_step"
GRAPH_CAPTURE = "graph_capture"
EMBEDDING = "embedding"
MLA_ATTENTION = "mla_attention"
MLA = "mla"
MLP = "mlp"
MOE = "moe"
MOE_ROUTING = "moe_routing"
GEMM = "gemm"
ALLREDUCE, ALLGATHER, REDUCESCATTER = "allreduce", "allgather", "reducescatter"
NORM = "norm"
SAMPLING = "sampling"
SKEW = "skew"
BENCH = "bench"
"""One timed sample of a benchmark; its part is the variant."""

KINDS = frozenset(
    {
        RANK,
        LAYER,
        EAGER_STEP,
        GRAPH_STEP,
        GRAPH_CAPTURE,
        EMBEDDING,
        MLA_ATTENTION,
        MLA,
        MLP,
        MOE,
        MOE_ROUTING,
        GEMM,
        ALLREDUCE,
        ALLGATHER,
        REDUCESCATTER,
        NORM,
        SAMPLING,
        SKEW,
        BENCH,
    }
)
"""What the workloads emit. The grammar itself takes any kind: programs of others may use it."""

_KIND = re.compile(r"[a-z]+(?:_[a-z]+)*")
_PART = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
_NAME = re.compile(rf"(?P<kind>{_KIND.pattern})(?P<equals>=)?(?P<index>0|[1-9][0-9]*)?(?:\.(?P<part>{_PART.pattern}))?")


@dataclass(frozen=True)
class Range:
    """What a name says.

    Parameters
    ----------
    kind
        What runs in it: one of `KINDS`, or a kind of your own.
    index
        Which of them; None where there is one.
    part
        Which of several under one kind.

    Raises
    ------
    ValueError
        A kind, index or part that the grammar does not have.
    """

    kind: str
    index: int | None = None
    part: str | None = None

    def __post_init__(self) -> None:
        if _KIND.fullmatch(self.kind) is None:
            raise ValueError(f"{self.kind!r} is no kind of range: lower-case words joined by _")
        if self.part is not None and _PART.fullmatch(self.part) is None:
            raise ValueError(f"{self.part!r} is no part of a range: lower-case words and digits joined by _")
        if self.index is not None and self.index < 0:
            raise ValueError(f"{self.index} is no index of a range: it is negative")
        if self.kind == RANK and (self.index is None or self.part is not None):
            raise ValueError("a rank label has an index and nothing else")


def build(what: Range) -> str:
    """Return the name of a range.

    Examples
    --------
    >>> build(Range(LAYER, 3)), build(Range(GEMM, part="experts")), build(Range(RANK, 0))
    ('layer3', 'gemm.experts', 'rank=0')
    """
    equals = "=" if what.kind == RANK else ""
    index = "" if what.index is None else str(what.index)
    part = "" if what.part is None else f".{what.part}"
    return f"{what.kind}{equals}{index}{part}"


def parse(text: str) -> Range:
    """Return what a name says; ValueError if it is not of the grammar.

    Examples
    --------
    >>> parse("allreduce.attn")
    Range(kind='allreduce', index=None, part='attn')
    """
    match = _NAME.fullmatch(text)
    if match is None or (match["equals"] is not None) != (match["kind"] == RANK):
        raise ValueError(f"{text!r} is no name of the range grammar")
    index = match["index"]
    return Range(match["kind"], None if index is None else int(index), match["part"])


def name(kind: str, index: int | None = None, part: str | None = None) -> str:
    """Return the name of the range of a kind, index and part: ``build(Range(kind, index, part))``."""
    return build(Range(kind, index, part))

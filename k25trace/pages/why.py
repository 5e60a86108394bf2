"""What the questions about steps, collectives and gaps say of a report: an answer each, or why there is none."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from k25trace.attribution import Attribution
from k25trace.classify import RuleSet
from k25trace.collectives import Collectives, match_collectives
from k25trace.errors import CannotAnswer, UsageError
from k25trace.examined import examined
from k25trace.gaps import Gaps, find_gaps
from k25trace.selection import Bounds
from k25trace.steps import Steps, find_steps

Found = TypeVar("Found")


@dataclass(frozen=True)
class Why:
    """The answers; a text in the place of one says why it is not there."""

    steps: Steps | str
    collectives: Collectives | str
    gaps: Gaps | str


NOT_ASKED = Why("not computed", "not computed", "not computed")


def why(
    attributions: Sequence[Attribution],
    rules: RuleSet,
    *,
    bounds: Bounds | None = None,
    range_glob: str | None = None,
) -> Why:
    """Return the answers about some reports with kernels; a range pattern names the steps, where it can."""
    given = [examined(each, bounds, rules) for each in attributions]
    return Why(
        _or_reason(lambda: find_steps(given, step=range_glob, window=bounds)),
        _or_reason(lambda: match_collectives(given, step=range_glob, window=bounds)),
        _or_reason(lambda: find_gaps(given, window=bounds, range_glob=range_glob)),
    )


def _or_reason(ask: Callable[[], Found]) -> Found | str:
    try:
        return ask()
    except (CannotAnswer, UsageError) as error:
        return error.message

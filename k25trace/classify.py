"""Kernel name to category and family, by ordered rules that are data.

The first rule that applies wins; a name that no rule applies to is ``unclassified`` and stays visible.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from k25trace.errors import BadRules
from k25trace.names import KernelName, kernel_name
from k25trace.rulefile import Rule, RuleFile, read_rule_file, reject_duplicates
from k25trace.taxonomy import UNCLASSIFIED

__all__ = ["Explanation", "Match", "Rule", "RuleSet", "load_rules"]


@dataclass(frozen=True, slots=True)
class Match:
    """What a kernel is: category, family, and the id of the rule that says so (``None``: no rule applies)."""

    category: str
    family: str
    rule: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a kernel is classified as it is.

    Parameters
    ----------
    raw
        The name as given.
    normalised
        The name as the rules see it.
    match
        The outcome.
    winner
        The first rule that applies; ``None`` if none does.
    runners_up
        The other rules that apply, in order.
    """

    raw: str
    normalised: KernelName
    match: Match
    winner: Rule | None
    runners_up: tuple[Rule, ...]


_NOTHING = Match(UNCLASSIFIED, UNCLASSIFIED, None)


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules in order; the first that applies wins.

    Parameters
    ----------
    rules
        The rules, ids unique.

    Notes
    -----
    Outcomes are remembered by name, and which rules come into question by path, so that a set is meant to be
    loaded once and used for all reports of a run.
    """

    rules: tuple[Rule, ...]
    _memo: dict[str, Match] = field(default_factory=dict[str, Match], init=False, repr=False, compare=False)
    _by_path: dict[str, tuple[tuple[Rule, Match], ...]] = field(
        default_factory=dict[str, tuple[tuple[Rule, Match], ...]], init=False, repr=False, compare=False
    )

    def classify(self, name: str) -> Match:
        """Category, family and rule of one kernel name; never raises.

        Parameters
        ----------
        name
            The name as a tool prints it: full, short, mangled or truncated.

        Returns
        -------
        Match
            ``unclassified`` in category and family, and rule ``None``, where no rule applies.

        Examples
        --------
        >>> rules = load_rules()
        >>> rules.classify("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)").category
        'comm.allgather'
        """
        match = self._memo.get(name)
        if match is None:
            match = self._memo[name] = self._decide(kernel_name(name))
        return match

    def classify_many(self, names: Iterable[str]) -> list[Match]:
        """Outcomes for many names, in their order; each distinct name is decided once."""
        return [self.classify(name) for name in names]

    def explain(self, name: str) -> Explanation:
        """Outcome for one name with all rules that apply to it, in order."""
        normalised = kernel_name(name)
        applying = [rule for rule in self.rules if rule.applies(normalised)]
        return Explanation(
            raw=name,
            normalised=normalised,
            match=self.classify(name),
            winner=applying[0] if applying else None,
            runners_up=tuple(applying[1:]),
        )

    def _decide(self, name: KernelName) -> Match:
        for rule, match in self._candidates(name):
            if rule.on_name is None or rule.on_name(name):
                return match
        return _NOTHING

    def _candidates(self, name: KernelName) -> tuple[tuple[Rule, Match], ...]:
        """Return the rules that may apply to names of this path, up to the first that always does."""
        candidates = self._by_path.get(name.path)
        if candidates is None:
            found: list[tuple[Rule, Match]] = []
            for rule in self.rules:
                if rule.on_path is None or rule.on_path(name):
                    found.append((rule, Match(rule.category, rule.family, rule.id)))
                    if rule.on_name is None:
                        break
            candidates = self._by_path[name.path] = tuple(found)
        return candidates


def load_rules(files: Sequence[Path] = (), *, check_examples: bool = True) -> RuleSet:
    """Rule set of the user's files, in the order given, followed by the default rules.

    Parameters
    ----------
    files
        Rule files that come before the defaults. If one of them says ``extends = "none"``, the defaults are
        left out.
    check_examples
        Whether the examples and counterexamples of `files` are checked against the whole set. Those of the
        default rules are checked by the project's tests, not at every start.

    Raises
    ------
    BadRules
        A file is unreadable or breaks the grammar, an id occurs twice, an example is not won by its rule or
        a counterexample is.
    """
    own = [read_rule_file(file) for file in files]
    rules = tuple(rule for file in own for rule in file.rules)
    user_count = len(rules)
    if all(file.extends_default for file in own):
        rules += _default_rules().rules
    reject_duplicates(rules)
    result = RuleSet(rules)
    if check_examples:
        for rule in rules[:user_count]:
            check_rule(result, rule)
    return result


def check_rule(rules: RuleSet, rule: Rule) -> None:
    """Raise `BadRules` where an example is not won by its rule, or a counterexample is."""
    for name in rule.examples:
        winner = rules.classify(name).rule
        if winner != rule.id:
            what = "no rule applies to it" if winner is None else f"won by rule {winner!r}"
            raise BadRules(f"{rule.file}: rule {rule.id!r}: example not won by it: {_short(name)}: {what}")
    for name in rule.counterexamples:
        if rules.classify(name).rule == rule.id:
            raise BadRules(f"{rule.file}: rule {rule.id!r}: counterexample won by it: {_short(name)}")


@cache
def _default_rules() -> RuleFile:
    with as_file(files("k25trace.rules") / "kernels.toml") as file:
        return read_rule_file(file)


def _short(name: str) -> str:
    return ascii(name if len(name) <= 120 else name[:117] + "...")

"""Files of classification rules: their grammar, and what is wrong with one that breaks it.

The grammar is documented in docs/reference/rules.md.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from k25trace.errors import BadRules
from k25trace.names import KernelName
from k25trace.taxonomy import CATEGORIES, is_communication, is_nccl

Predicate = Callable[[KernelName], bool]

_FILE_KEYS = frozenset({"extends", "rule"})
_RULE_KEYS = frozenset({"id", "category", "family", "match", "source", "examples", "counterexamples"})
_REQUIRED = ("id", "category", "family", "match", "source", "examples")
_TEXT_KEYS = ("exact", "prefix", "suffix", "contains", "regex")
_SUBJECTS = ("function", "path")
_MATCH_KEYS = frozenset({*_TEXT_KEYS, *_SUBJECTS, "any", "all", "not"})
_CASED = re.compile(r"(?<!\\)[A-Z]|\(\?-i|[^\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: kernels for which `applies` holds belong to `category` and `family`.

    Parameters
    ----------
    id
        Name of the rule, unique in a rule set.
    category
        One of `k25trace.taxonomy.CATEGORIES`.
    family
        The finer name within the category.
    source
        Which libraries and versions have such kernels.
    examples, counterexamples
        Names that this rule wins, and names that it must not win.
    file
        The file that states the rule.
    on_path, on_name
        The two halves of the condition: what depends on the path alone, and the rest (``None``: nothing).
    """

    id: str
    category: str
    family: str
    source: str
    examples: tuple[str, ...]
    counterexamples: tuple[str, ...]
    file: str
    on_path: Predicate | None
    on_name: Predicate | None

    def applies(self, name: KernelName) -> bool:
        """Return whether the rule's condition holds for this name."""
        return (self.on_path is None or self.on_path(name)) and (self.on_name is None or self.on_name(name))


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The rules of one file in order, and whether the default rules follow them."""

    rules: tuple[Rule, ...]
    extends_default: bool


def read_rule_file(file: Path) -> RuleFile:
    """Rules of one file, in file order; their examples are not checked yet.

    Raises
    ------
    BadRules
        The file cannot be read, is not TOML, or breaks the grammar. The message names the file, the rule
        and what is wrong with it, in one line.
    """
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise BadRules(f"{file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRules(f"{file}: not TOML: {_one_line(str(error))}") from None
    except RecursionError:
        raise BadRules(f"{file}: not TOML: nested too deeply") from None
    where = str(file)
    _only(document, _FILE_KEYS, where)
    extends = document.get("extends", "default")
    if extends not in ("default", "none"):
        raise BadRules(f"{where}: extends must be 'default' or 'none', not {extends!r}")
    tables = document.get("rule", [])
    if not isinstance(tables, list):
        raise BadRules(f"{where}: write rules as [[rule]]")
    if not tables:
        raise BadRules(f"{where}: no rules in it", hint="write each rule as [[rule]]; docs/reference/rules.md")
    rules = tuple(_rule(table, where, index) for index, table in enumerate(cast("list[Any]", tables), 1))
    reject_duplicates(rules)
    return RuleFile(rules, extends == "default")


def reject_duplicates(rules: tuple[Rule, ...]) -> None:
    """Raise `BadRules` for the first id that two of the rules share."""
    seen: dict[str, str] = {}
    for rule in rules:
        if rule.id in seen:
            other = "" if seen[rule.id] == rule.file else f" (also in {seen[rule.id]})"
            raise BadRules(f"{rule.file}: rule {rule.id!r}: duplicate id{other}")
        seen[rule.id] = rule.file


def _rule(table: object, file: str, index: int) -> Rule:
    if not isinstance(table, dict):
        raise BadRules(f"{file}: rule {index}: must be a table")
    fields = cast("dict[str, Any]", table)
    identity = fields.get("id")
    where = f"{file}: rule {identity!r}" if isinstance(identity, str) else f"{file}: rule {index}"
    _only(fields, _RULE_KEYS, where)
    for key in _REQUIRED:
        if key not in fields:
            raise BadRules(f"{where}: {key} is missing")
    for key in ("id", "category", "family", "source"):
        if not isinstance(fields[key], str) or not fields[key].strip():
            raise BadRules(f"{where}: {key} must be a string that is not empty")
    if fields["category"] not in CATEGORIES:
        raise BadRules(f"{where}: unknown category {fields['category']!r}", hint=f"one of: {', '.join(CATEGORIES)}")
    if is_nccl(fields["family"].strip().lower()) and not is_communication(fields["category"]):
        raise BadRules(
            f"{where}: family {fields['family']!r} is NCCL's own, and {fields['category']} is no communication",
            hint="give it a category of communication, or another family",
        )
    examples = _texts(fields["examples"], f"{where}: examples")
    counterexamples = _texts(fields.get("counterexamples", []), f"{where}: counterexamples", empty=True)
    on_path, on_name = _halves(fields["match"], f"{where}: match")
    return Rule(
        id=fields["id"],
        category=fields["category"],
        family=fields["family"],
        source=fields["source"],
        examples=examples,
        counterexamples=counterexamples,
        file=file,
        on_path=on_path,
        on_name=on_name,
    )


def _halves(match: object, where: str) -> tuple[Predicate | None, Predicate | None]:
    """Return a condition in two: the part on function and path, shared by many names, and the rest."""
    table = _table(match, where)
    if not table:
        raise BadRules(f"{where}: must not be empty")
    path_part = {key: value for key, value in table.items() if _path_alone(key, value)}
    name_part = {key: value for key, value in table.items() if key not in path_part}
    return (
        _condition(path_part, where) if path_part else None,
        _condition(name_part, where) if name_part else None,
    )


def _path_alone(key: str, value: object) -> bool:
    """Whether a part of a condition looks at nothing but function and path."""
    if key in _SUBJECTS:
        return True
    inner = cast("list[Any]", value if isinstance(value, list) else [value])
    return key in ("any", "all", "not") and all(
        isinstance(item, dict) and all(_path_alone(*pair) for pair in cast("dict[str, Any]", item).items())
        for item in inner
    )


def _condition(match: object, where: str) -> Predicate:
    """All that a match table states must hold."""
    table = _table(match, where)
    _only(table, _MATCH_KEYS, where)
    parts: list[Predicate] = []
    for key, value in table.items():
        at = f"{where}.{key}"
        if key in _TEXT_KEYS:
            parts.append(_on("name", _text_test(key, value, at)))
        elif key in _SUBJECTS:
            tests = _table(value, at)
            _only(tests, frozenset(_TEXT_KEYS), at)
            if not tests:
                raise BadRules(f"{at}: must not be empty")
            parts.extend(_on(key, _text_test(kind, text, f"{at}.{kind}")) for kind, text in tests.items())
        elif key == "not":
            parts.append(_negation(_condition(value, at)))
        else:
            if not isinstance(value, list) or not value:
                raise BadRules(f"{at}: must be a list of conditions")
            inner = [_condition(item, at) for item in cast("list[Any]", value)]
            parts.append(_either(inner) if key == "any" else _every(inner))
    if not parts:
        raise BadRules(f"{where}: must not be empty")
    return parts[0] if len(parts) == 1 else _every(parts)


def _text_test(kind: str, value: object, where: str) -> Callable[[str], bool]:
    texts = _texts([value] if isinstance(value, str) else value, where)
    if kind == "exact":
        return frozenset(texts).__contains__
    if kind == "prefix":
        return lambda subject: subject.startswith(texts)
    if kind == "suffix":
        return lambda subject: subject.endswith(texts)
    if kind == "contains":
        return lambda subject: any(text in subject for text in texts)
    searches = [_search(text, where) for text in texts]
    return searches[0] if len(searches) == 1 else lambda subject: any(search(subject) for search in searches)


def _search(pattern: str, where: str) -> Callable[[str], bool]:
    """Whether a regular expression is found; ``(?i)`` of one in lower case is done by lowering the subject.

    The second is three times as fast: `re` skips to a first character only where case matters.
    """
    lowered = pattern.startswith("(?i)") and not _CASED.search(pattern)
    try:
        search = re.compile(pattern[4:] if lowered else pattern).search
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRules(f"{where}: bad regex {pattern!r}: {_one_line(str(error))}") from None
    if lowered:
        return lambda subject: search(subject.lower()) is not None
    return lambda subject: search(subject) is not None


def _on(subject: str, test: Callable[[str], bool]) -> Predicate:
    if subject == "function":
        return lambda name: test(name.function)
    if subject == "path":
        return lambda name: test(name.path)
    return lambda name: test(name.name)


def _negation(condition: Predicate) -> Predicate:
    return lambda name: not condition(name)


def _every(conditions: list[Predicate]) -> Predicate:
    return lambda name: all(condition(name) for condition in conditions)


def _either(conditions: list[Predicate]) -> Predicate:
    return lambda name: any(condition(name) for condition in conditions)


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRules(f"{where}: must be a table")
    return cast("dict[str, Any]", value)


def _texts(value: object, where: str, *, empty: bool = False) -> tuple[str, ...]:
    if not isinstance(value, list) or (not value and not empty):
        raise BadRules(f"{where}: must be a list of strings that is not empty")
    items = cast("list[Any]", value)
    if not all(isinstance(item, str) and item for item in items):
        raise BadRules(f"{where}: must hold strings that are not empty")
    return tuple(cast("list[str]", items))


def _only(table: Mapping[str, Any], allowed: frozenset[str], where: str) -> None:
    for key in table:
        if key not in allowed:
            raise BadRules(f"{where}: unknown key {key!r}", hint=f"known keys: {', '.join(sorted(allowed))}")


def _one_line(text: str) -> str:
    return " ".join(text.split())

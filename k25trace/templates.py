"""Graph templates: which ranges the kernels of a CUDA graph were captured in, kept for reports that do not say.

A template holds the kernel sequences of graphs with the capture path of each kernel. A report whose graphs were
captured before the recording shows the same sequences without the paths; aligned with the template, its kernels get
them. Knows nothing of reports.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from k25trace.errors import BadTemplate

SCHEMA = "k25trace.template/1"

LEAST_SCORE = 0.8
"""A graph that agrees with no learned one as much as this keeps its launch paths alone."""

Path_ = tuple[tuple[str, str], ...]
"""A capture path: names and domains of ranges, outermost first."""


@dataclass(frozen=True)
class Graph:
    """A graph as it was learned.

    Attributes
    ----------
    names
        Names of its kernels, in the order of the graph's nodes.
    paths
        The capture path of each.
    p50_ns
        The median duration of each.
    replay_count
        Replays it was learned from.
    """

    names: tuple[str, ...]
    paths: tuple[Path_, ...]
    p50_ns: tuple[int, ...]
    replay_count: int


@dataclass(frozen=True)
class Alignment:
    """A kernel sequence aligned with a learned graph.

    Attributes
    ----------
    graph
        Index of the learned graph.
    score
        Kernels of equal name that are aligned with each other ÷ kernels of the longer sequence.
    paths
        The capture path of each kernel of the sequence. A kernel that stands in the place of another has that one's
        path; an additional one has what the paths before and after it have in common.
    """

    graph: int
    score: float
    paths: tuple[Path_, ...]


@dataclass(frozen=True)
class Template:
    """Learned graphs."""

    graphs: tuple[Graph, ...]

    @cached_property
    def _sequences(self) -> list[list[int]]:
        return [self._coded(graph.names) for graph in self.graphs]

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {}

    def _coded(self, names: Sequence[str]) -> list[int]:
        return [self._codes.setdefault(name, len(self._codes)) for name in names]

    def align(self, names: Sequence[str]) -> Alignment | None:
        """Return the alignment of a kernel sequence with the learned graph that it agrees with most.

        None where there is no learned graph, or nothing to align.
        """
        from rapidfuzz.distance import Levenshtein

        coded = self._coded(names)
        best: Alignment | None = None
        for number, (graph, sequence) in enumerate(zip(self.graphs, self._sequences, strict=True)):
            if not coded or not sequence:
                continue
            if coded == sequence:
                return Alignment(number, 1.0, graph.paths)
            if best is not None:
                # A kernel that agrees takes two places, and each edit takes one at least.
                most = (len(coded) + len(sequence) - Levenshtein.distance(coded, sequence)) // 2
                if most <= best.score * max(len(coded), len(sequence)):
                    continue
            found = _aligned(number, coded, sequence, graph.paths)
            if best is None or found.score > best.score:
                best = found
        return best


def _aligned(number: int, names: list[int], learned: list[int], paths: tuple[Path_, ...]) -> Alignment:
    from rapidfuzz.distance import Levenshtein

    found: list[Path_ | None] = [None] * len(names)
    agreeing = 0
    for operation in Levenshtein.opcodes(names, learned):
        if operation.tag == "delete":
            continue
        for here, there in zip(
            range(operation.src_start, operation.src_end), range(operation.dest_start, operation.dest_end), strict=False
        ):
            found[here] = paths[there]
            agreeing += operation.tag == "equal"
    return Alignment(number, agreeing / max(len(names), len(learned)), tuple(_filled(found)))


def _filled(paths: list[Path_ | None]) -> list[Path_]:
    """Give each kernel without a path what the nearest paths before and after it have in common."""
    following: list[Path_ | None] = []
    after: Path_ | None = None
    for path in reversed(paths):
        after = after if path is None else path
        following.append(after)
    filled: list[Path_] = []
    before: Path_ | None = None
    for path, later in zip(paths, reversed(following), strict=True):
        before = before if path is None else path
        filled.append(path if path is not None else common(before or (), later or ()))
    return filled


def common(one: Path_, other: Path_) -> Path_:
    """Return the ranges with which both paths begin.

    Examples
    --------
    >>> common((("step", "k25"), ("layer0", "k25")), (("step", "k25"), ("layer1", "k25")))
    (('step', 'k25'),)
    """
    shared = 0
    while shared < min(len(one), len(other)) and one[shared] == other[shared]:
        shared += 1
    return one[:shared]


# ---- the file


def written(template: Template) -> str:
    """Return a template as the text of its file: JSON, names and paths once each."""
    names = {name: i for i, name in enumerate(dict.fromkeys(n for g in template.graphs for n in g.names))}
    paths = {path: i for i, path in enumerate(dict.fromkeys(p for g in template.graphs for p in g.paths))}
    content = {
        "schema": SCHEMA,
        "names": list(names),
        "paths": [[list(part) for part in path] for path in paths],
        "graphs": [
            {
                "replay_count": graph.replay_count,
                "names": [names[n] for n in graph.names],
                "paths": [paths[p] for p in graph.paths],
                "p50_ns": list(graph.p50_ns),
            }
            for graph in template.graphs
        ],
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def read_template(path: Path | str) -> Template:
    """Read a template that ``k25trace template learn`` wrote.

    Raises
    ------
    BadTemplate
        There is no such file, or it is no template.
    """
    try:
        content: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise BadTemplate(f"{path}: cannot be read: {error.strerror}") from None
    except RecursionError:
        raise BadTemplate(f"{path}: no template: nested too deeply", _HINT) from None
    except ValueError:
        raise BadTemplate(f"{path}: no template: not JSON", _HINT) from None
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:  # pyright: ignore[reportUnknownMemberType]
        raise BadTemplate(f"{path}: no template of schema {SCHEMA}", _HINT)
    try:
        return _read(content)
    except (KeyError, IndexError, TypeError, ValueError):
        raise BadTemplate(f"{path}: damaged: it is not what its schema says", _HINT) from None


_HINT = "make one with: k25trace template learn REPORT -o decode.k25tpl"


def _read(content: Any) -> Template:  # noqa: ANN401 - JSON
    names: list[str] = [_text(name) for name in content["names"]]
    paths: list[Path_] = [tuple((_text(n), _text(d)) for n, d in path) for path in content["paths"]]
    graphs: list[Graph] = []
    for graph in content["graphs"]:
        names_of, paths_of, p50_ns = (_indices(graph[key]) for key in ("names", "paths", "p50_ns"))
        if not len(names_of) == len(paths_of) == len(p50_ns):
            raise ValueError(graph)
        (replays,) = _indices([graph["replay_count"]])
        graphs.append(Graph(tuple(names[i] for i in names_of), tuple(paths[i] for i in paths_of), p50_ns, replays))
    return Template(tuple(graphs))


def _indices(values: list[object]) -> tuple[int, ...]:
    """Return integers that are not negative."""
    found = [value for value in values if isinstance(value, int) and value >= 0]
    if len(found) < len(values):
        raise ValueError(values)
    return tuple(found)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    value.encode()  # JSON can hold halves of characters (UnicodeEncodeError is a ValueError)
    return value

"""Learn graph templates: from reports whose graphs were captured inside the recording."""

import os
from collections.abc import Sequence

import polars as pl

from k25trace.attribution import Attribution
from k25trace.errors import CannotAnswer, UsageError
from k25trace.percentiles import nearest_rank
from k25trace.sequences import sequences
from k25trace.templates import Graph, Path_, Template, common
from k25trace.trace import Trace, open_trace
from k25trace.trace.interning import integers

Report = Trace | str | os.PathLike[str]


def learn_template(reports: Report | Sequence[Report], *, domains: Sequence[str] | None = None) -> Template:
    """Learn the kernel sequences of graphs with the ranges that were open when each kernel was captured.

    Parameters
    ----------
    reports
        Opened reports or paths; graphs captured before the recording of one began are left out.
    domains
        Only ranges of these NVTX domains; None: of every domain but NCCL's.

    Returns
    -------
    Template
        Each distinct sequence of kernel names once. Where the same sequence was captured in different ranges, its
        kernels have what their paths have in common.

    Raises
    ------
    CannotAnswer
        No graph was captured inside a range that was recorded.
    """
    given = [reports] if isinstance(reports, Trace | str | os.PathLike) else list(reports)
    if not given:
        raise UsageError("no report given")
    traces = [each if isinstance(each, Trace) else open_trace(each, number) for number, each in enumerate(given)]
    learned: dict[tuple[str, ...], Graph] = {}
    for trace in traces:
        for graph in _graphs(Attribution(trace, domains)):
            known = learned.get(graph.names)
            learned[graph.names] = graph if known is None else _merged(known, graph)
    graphs = tuple(graph for graph in learned.values() if any(graph.paths))
    if not graphs:
        raise CannotAnswer(
            f"{traces[0].path}: no CUDA graph that was captured inside a recorded range",
            "record a run from before the capture on, with ranges around what is captured",
        )
    return Template(graphs)


def _graphs(attribution: Attribution) -> list[Graph]:
    """Return the distinct graphs of a report whose capture was recorded."""
    names = attribution.trace.names
    late = attribution.without_capture.select("process", "correlation").unique()
    replayed = attribution.kernels.filter(pl.col("graph_node").is_not_null())
    replayed = replayed.join(late, on=["process", "correlation"], how="anti").with_columns(
        (pl.col("end_ns") - pl.col("start_ns")).alias("ns"), pl.col("graph_node").alias("node")
    )
    found = sequences(replayed)
    nodes = replayed.group_by("process", "node").agg(nearest_rank("ns", 50).alias("p50_ns"), pl.col("captured").first())
    shown = found.sequences.select("sequence", "process", "replay_count")
    members = found.members.join(shown, on="sequence").join(nodes, on=["process", "node"]).sort("sequence", "place")
    paths: dict[int, Path_] = {i: _path(attribution, ranges) for i, ranges in enumerate(attribution.captures)}
    return [
        Graph(
            tuple(names[n] for n in integers(mine["name"])),
            tuple(paths.get(c, ()) for c in integers(mine["captured"].fill_null(-1))),
            tuple(integers(mine["p50_ns"])),
            int(mine["replay_count"][0]),
        )
        for mine in members.partition_by("sequence", maintain_order=True)
    ]


def _path(attribution: Attribution, ranges: Sequence[int]) -> Path_:
    texts, chosen = attribution.trace.names, attribution.push_pop[list(ranges)]
    names, domains = integers(chosen["name"]), integers(chosen["domain"])
    return tuple((texts[name], texts[domain]) for name, domain in zip(names, domains, strict=True))


def _merged(one: Graph, other: Graph) -> Graph:
    """Return two graphs of one sequence of names as one: durations are those of the one with more replays."""
    paths = tuple(common(a, b) for a, b in zip(one.paths, other.paths, strict=True))
    most = max(one, other, key=lambda graph: graph.replay_count)
    return Graph(one.names, paths, most.p50_ns, one.replay_count + other.replay_count)

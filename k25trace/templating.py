"""A template applied to the graphs of a report that were captured before the recording began."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from k25trace.sequences import sequences
from k25trace.templates import LEAST_SCORE, Path_, Template
from k25trace.trace.interning import ID, Interner, integers
from k25trace.trace.tables import NCCL_DOMAIN


@dataclass(frozen=True)
class Templated:
    """What a template says of a report's graphs.

    Attributes
    ----------
    graphs
        One row a distinct kernel sequence of a process: process, kernel_count (of one replay), replay_count, graph
        (index of the learned one; null: none is like it), score, applied (whether it is at least `LEAST_SCORE`).
    nodes
        process, node, templated Int32 (index into ``paths``): the nodes that got a path.
    paths
        Capture paths.
    """

    graphs: pl.DataFrame
    nodes: pl.DataFrame
    paths: list[Path_]


def apply(kernels: pl.DataFrame, names: Sequence[str], template: Template, domains: Sequence[str] | None) -> Templated:
    """Align the graphs of a report with a template.

    Parameters
    ----------
    kernels
        process, correlation, graph_node, name, start_ns: replayed kernels without a capture path.
    names
        What ``name`` is an index into.
    domains
        Ranges of these domains alone; None: of every domain but NCCL's.
    """
    found = sequences(kernels)
    interner: Interner[Path_] = Interner()
    parts = found.members.partition_by("sequence", as_dict=True, maintain_order=True)
    rows: list[tuple[int, int, int, int | None, float, bool]] = []
    nodes: list[pl.DataFrame] = [
        pl.DataFrame(schema={"process": ID, "node": pl.Int64, "templated": pl.Int32, "score": pl.Float64})
    ]
    for sequence, process, _, replays in found.sequences.iter_rows():
        members = parts[(sequence,)]
        aligned = template.align([names[n] for n in integers(members["name"])])
        score = 0.0 if aligned is None else aligned.score
        applied = aligned is not None and score >= LEAST_SCORE
        rows.append((process, members.height, replays, aligned.graph if aligned else None, score, applied))
        if aligned is not None and applied:
            ids = [interner.id(_kept(path, domains)) for path in aligned.paths]
            nodes.append(
                members.select(
                    pl.lit(process, ID).alias("process"),
                    "node",
                    pl.Series("templated", ids, dtype=pl.Int32),
                    pl.lit(score).alias("score"),
                )
            )
    # A replay of which a part is missing shows a sequence of its own: of a node's paths that of the best counts.
    best = pl.concat(nodes).sort("score", descending=True, maintain_order=True)
    schema = {
        "process": ID, "kernel_count": pl.Int64, "replay_count": pl.Int64, "graph": pl.Int64, "score": pl.Float64,
        "applied": pl.Boolean,
    }  # fmt: skip
    return Templated(
        pl.DataFrame(rows, schema=schema, orient="row"),
        best.unique(["process", "node"], keep="first", maintain_order=True).drop("score"),
        interner.values,
    )


def template_rows(report: int, pids: pl.Series, found: Templated) -> pl.DataFrame:
    """Return ``found.graphs`` with the report and operating system ids: report, process, kernel_count, ..."""
    graphs = found.graphs
    return graphs.with_columns(pids.gather(graphs["process"]).alias("process")).select(
        pl.lit(report, pl.Int64).alias("report"), pl.all()
    )


def _kept(path: Path_, domains: Sequence[str] | None) -> Path_:
    if domains is None:
        return tuple(part for part in path if part[1] != NCCL_DOMAIN)
    return tuple(part for part in path if part[1] in domains)

"""What opaque graph replays may have spent their time on: an estimate, by a template.

A report does not show the kernels of an opaque replay. A template knows how the time of a replay was divided when it
was learned; the same division of the opaque time is an estimate, and is called one wherever it is shown.
"""

from collections import Counter

import polars as pl

from k25trace.accounting import OPAQUE
from k25trace.classify import RuleSet
from k25trace.templates import Template

_Part = tuple[tuple[str, ...], str]


def estimated(wall: pl.DataFrame, template: Template, rules: RuleSet) -> pl.DataFrame:
    """Divide the wall row ``opaque graph`` of each GPU as the learned graphs divided their kernel time.

    Parameters
    ----------
    wall
        gpu, row, wall_ns.
    template
        Its graphs weigh as much as the replays that they were learned from took.

    Returns
    -------
    pl.DataFrame
        gpu, path (list of names of the ranges of the capture), category, estimate_ns Int64: sums to the wall row.
    """
    weights: Counter[_Part] = Counter()
    for graph in template.graphs:
        for name, path, ns in zip(graph.names, graph.paths, graph.p50_ns, strict=True):
            weights[tuple(part for part, _ in path), rules.classify(name).category] += ns * graph.replay_count
    total = weights.total()
    rows: list[tuple[str, list[str], str, int]] = []
    for gpu, opaque_ns in wall.filter(pl.col("row") == OPAQUE).select("gpu", "wall_ns").iter_rows():
        given = reached = 0
        for (path, category), weight in weights.most_common() if total else ():
            # Cut where the running sum of the weights is, so that the parts sum to the whole.
            reached += weight
            until = opaque_ns * reached // total
            rows.append((gpu, list(path), category, until - given))
            given = until
    schema = {"gpu": pl.String, "path": pl.List(pl.String), "category": pl.String, "estimate_ns": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")

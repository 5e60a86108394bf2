"""What NVTX events say: ranges with their domains, and the rank of a process."""

import re

import polars as pl

from k25trace.trace.interning import ID, integers
from k25trace.trace.tables import (
    DEFAULT_DOMAIN,
    DOMAIN_CREATE,
    FAR_FUTURE_NS,
    NCCL_DOMAIN,
    PUSH_POP,
    START_END,
    Ids,
)

_RANK = re.compile(r"(?<![\w.-])rank=(\d{1,6})(?!\w)")


def ranges(events: pl.DataFrame, ids: Ids) -> pl.DataFrame:
    """Return the ranges among events (`tables.nvtx_events`): see `Trace.ranges`."""
    found = events.filter(pl.col("event_type").is_in([PUSH_POP, START_END]) & pl.col("process").is_not_null())
    return (
        found.join(_domains(events, ids), on=["process", "domain_id"], how="left", maintain_order="left")
        .with_columns(
            (pl.col("event_type") == PUSH_POP).alias("push_pop"),
            pl.col("end_ns").is_not_null().alias("closed"),
            pl.col("end_ns").fill_null(FAR_FUTURE_NS),
        )
        .select(*("row", "push_pop", "process", "thread", "start_ns", "end_ns", "closed", "name", "domain", "is_nccl"))
    )


def ranks(events: pl.DataFrame, names: list[str]) -> dict[int, int]:
    """Return process → rank, where its events (process, name) name exactly one."""
    distinct = events.select("process", "name").unique().drop_nulls()
    labelled = {i: m for i in integers(distinct["name"].unique()) if (m := _RANK.search(names[i]))}
    found: dict[int, set[int]] = {}
    for process, name in distinct.filter(pl.col("name").is_in(list(labelled))).iter_rows():
        found.setdefault(process, set()).add(int(labelled[name][1]))
    return {process: said.pop() for process, said in found.items() if len(said) == 1}


def _domains(events: pl.DataFrame, ids: Ids) -> pl.DataFrame:
    """process, domain_id → domain (name index), is_nccl. Domain ids are per process."""
    names = ids.names.values
    created = (
        events.filter(pl.col("event_type") == DOMAIN_CREATE)
        .group_by("process", "domain_id", maintain_order=True)
        .agg(pl.col("name").last().alias("domain"))
    )
    used = (
        events.filter(pl.col("event_type").is_in([PUSH_POP, START_END]))
        .group_by("process", "domain_id", maintain_order=True)
        .agg(pl.col("name").unique())
        .join(created, on=["process", "domain_id"], how="left", maintain_order="left")
    )
    rows: list[tuple[int, int, int, bool]] = []
    for process, domain_id, members, domain in used.iter_rows():
        if domain is not None:
            text = names[int(domain)]
        elif domain_id == 0:
            text = DEFAULT_DOMAIN
        elif all(names[int(name)].startswith("nccl") for name in members):
            text = NCCL_DOMAIN
        else:
            text = f"domain {domain_id}"
        rows.append((process, domain_id, ids.names.id(text), text == NCCL_DOMAIN))
    schema = {"process": ID, "domain_id": pl.Int64, "domain": ID, "is_nccl": pl.Boolean}
    return pl.DataFrame(rows, schema=schema, orient="row")

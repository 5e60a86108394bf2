"""Kernel → launch → NVTX path: which ranges a kernel belongs to, and on what grounds.

A kernel belongs to the push/pop ranges open on the launching thread when its launch call began. A kernel
replayed by a CUDA graph also belongs to the ranges that were open when its graph node was captured: its path is
the launch path followed by what of the capture path is about the graph itself. Reads a `Trace`; knows nothing
of categories or windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from k25trace.errors import CannotAnswer
from k25trace.graphcaptures import Captures
from k25trace.nesting import NO_STACK, Nesting, nest, of_nodes
from k25trace.packing import Packing
from k25trace.templates import Template
from k25trace.templating import Templated, apply, template_rows
from k25trace.trace import Trace
from k25trace.trace.interning import ID, Interner, integers
from k25trace.trace.keys import with_key

ROOT = 0
"""The path of a kernel launched under no range."""

VIAS = ("launch", "capture", "template")
"""What a path rests on besides the launch, indexed by the column ``via``."""

_LAUNCH, _CAPTURE, _TEMPLATE = range(len(VIAS))

_SLICE_ROWS = 1 << 20

_FIRST_TO_LAST = (pl.col("first_ns").min(), pl.col("last_ns").max())


@dataclass(frozen=True)
class Owner:
    """Where a path ends: its names from outermost to innermost, and the domain of the innermost."""

    names: tuple[str, ...]
    domain: str


class Attribution:
    """The NVTX paths of every kernel of one report.

    Parameters
    ----------
    trace
        The report.
    domains
        Only ranges of these NVTX domains; None: of every domain but NCCL's, whose ranges annotate the user's
        and never own a kernel.
    template
        Gives the kernels of graphs that were captured before the recording the paths of a learned graph, where one is
        alike.

    Methods
    -------
    projected_spans()
        When what was launched inside each range instance ran, on each GPU: row, process, thread, domain, name,
        start_ns, end_ns, gpu, first_ns, last_ns, operation_count, kernel_ns.
    inclusive()
        Kernels launched inside ranges of one name, a kernel once for each name: process, thread, name,
        kernel_count, kernel_ns.

    Raises
    ------
    CannotAnswer
        The report has no range of the domains asked for.
    """

    def __init__(self, trace: Trace, domains: Sequence[str] | None = None, template: Template | None = None) -> None:
        self.trace = trace
        self.domains = domains
        self.template = template
        self._paths: Interner[tuple[int, int, int]] = Interner()  # (parent path, name, domain)
        self._paths.id((ROOT, -1, -1))

    @cached_property
    def owning(self) -> pl.DataFrame:
        """The ranges that may own: the trace's `ranges` of the chosen domains."""
        ranges = self.trace.ranges
        if self.domains is None:
            return ranges.filter(~pl.col("is_nccl"))
        present = {self.trace.names[d]: d for d in integers(ranges["domain"].unique())}
        absent = [domain for domain in self.domains if domain not in present]
        chosen = [present[domain] for domain in self.domains if domain in present]
        if absent:
            raise CannotAnswer(
                f"{self.trace.path}: no NVTX range of domain {' or '.join(map(repr, absent))}",
                f"domains in this report: {', '.join(sorted(present)) or 'none'}",
            )
        return ranges.filter(pl.col("domain").is_in(chosen))

    @cached_property
    def push_pop(self) -> pl.DataFrame:
        """The owning push/pop ranges in the order of their rows; `nesting` counts from its first."""
        return self.owning.filter("push_pop").sort("row")

    @cached_property
    def nesting(self) -> Nesting:
        """The stacks of `push_pop`."""
        return nest(self.push_pop)

    @cached_property
    def calls(self) -> pl.DataFrame:
        """One call per (process, correlation): key, thread, launch_ns, stack; ordered by key.

        Of several calls with one correlation id the launch call is meant, else the earliest.
        """
        calls = self._one_call_a_key("thread", pl.col("start_ns").alias("at_ns"))
        stack = self.nesting.at(calls).cast(pl.Int32).alias("stack")
        return calls.select("key", "thread", pl.col("at_ns").alias("launch_ns"), stack)

    def _one_call_a_key(self, *columns: str | pl.Expr) -> pl.DataFrame:
        """Return key and columns of one call per (process, correlation), ordered by key."""
        calls = with_key(self.trace.launches.filter(pl.col("correlation").is_not_null()))
        calls = calls.select("key", *columns, pl.col("start_ns").alias("began"), "name")
        if not calls["key"].is_sorted():
            calls = calls.sort("key")
        if (calls["key"] == calls["key"].shift(1)).any():
            launching = self.trace.calls("kernel_launch", "graph_launch")["name"].unique()
            calls = calls.sort("key", ~pl.col("name").is_in(launching.to_list()), "began", maintain_order=True)
            calls = calls.unique("key", keep="first", maintain_order=True)
        return calls.drop("began", "name")

    def launch_ends(self, operations: pl.DataFrame) -> pl.Series:
        """Return when the launch call of each operation (process, correlation) returned; null without a launch."""
        ends = self._one_call_a_key("end_ns")
        keys = with_key(operations.select("process", "correlation")).select("key")
        found = keys.join(ends, on="key", how="left", maintain_order="left")["end_ns"]
        return found.alias("launch_end_ns")

    def placed(self, operations: pl.DataFrame) -> pl.DataFrame:
        """Return operations (process, correlation, graph_node) with their paths: the columns that `kernels` adds."""
        return self._with_paths(self._with_launches(operations))

    @cached_property
    def kernels(self) -> pl.DataFrame:
        """Every kernel with its path, aligned with the trace's `kernels`.

        Returns
        -------
        pl.DataFrame
            The columns of `Trace.kernels` and: thread, launch_ns (null without a launch) ·
            stack Int32 (node of `nesting` at the launch) · captured Int32 (index into `captures`; null for an
            eager kernel) · path UInt32 (see `owner`) · via UInt8 (index into `VIAS`) · and with a template
            templated Int32 (index into the paths of `templated`; null for kernels without one).
        """
        return self.placed(self.trace.kernels)

    @cached_property
    def copies(self) -> pl.DataFrame:
        """Every copy and set with its path: the columns of `Trace.copies` and those that `kernels` adds."""
        return self.placed(self.trace.copies)

    def _with_launches(self, operations: pl.DataFrame) -> pl.DataFrame:
        # By binary search in ordered keys, slice by slice: a hash table of all calls would be the largest thing here.
        empty = operations.clear()
        slices = list(operations.iter_slices(_SLICE_ROWS)) or [empty]
        return operations.hstack(pl.concat([self._launch_of(part) for part in slices]))

    def _launch_of(self, operations: pl.DataFrame) -> pl.DataFrame:
        """Return thread, launch_ns and stack, aligned with some operations."""
        calls = self.calls
        keys = with_key(operations.select("process", "correlation"))["key"]
        if calls.height == 0:
            columns = [
                pl.repeat(None, keys.len(), dtype=calls.schema[c], eager=True).alias(c) for c in calls.columns[1:]
            ]
            return pl.DataFrame(columns).with_columns(pl.col("stack").fill_null(NO_STACK))
        place = calls["key"].search_sorted(keys.fill_null(-1), side="left").clip(upper_bound=calls.height - 1)
        unknown = (calls["key"].gather(place) != keys).fill_null(value=True)
        thread, launch, stack = (calls[c].gather(place) for c in ("thread", "launch_ns", "stack"))
        return pl.DataFrame([thread.set(unknown, None), launch.set(unknown, None), stack.set(unknown, NO_STACK)])

    def _with_paths(self, operations: pl.DataFrame) -> pl.DataFrame:
        launch_path = of_nodes(self._node_paths, operations["stack"]).fill_null(ROOT).alias("launch_path")
        if operations["graph_node"].null_count() == operations.height:
            nothing = pl.repeat(None, operations.height, dtype=pl.Int32, eager=True)
            eager = pl.repeat(_LAUNCH, operations.height, dtype=pl.UInt8, eager=True).alias("via")
            more = [] if self.template is None else [nothing.alias("templated")]
            return operations.hstack([nothing.alias("captured"), launch_path.alias("path"), eager, *more])
        captured = self._captures.of(operations)
        case = pl.DataFrame([launch_path, self._captures.open_again(operations).alias("shared"), captured])
        packing = Packing.of([case], case.columns)
        packed = packing.pack(case).alias("case")
        distinct = packed.filter(captured.is_not_null()).unique()
        paths = pl.Series("path", [self._extended(*row) for row in packing.unpack(distinct).iter_rows()], dtype=ID)
        extended = pl.DataFrame([distinct, paths])
        found = packed.to_frame().join(extended, on="case", how="left", maintain_order="left")["path"]
        path = found.fill_null(launch_path).alias("path")
        via = (path != launch_path).cast(pl.UInt8).alias("via")
        if self.template is None:
            return operations.hstack([captured, path, via])
        return operations.hstack([captured, *self._with_template(operations, launch_path, path, via)])

    def _extended(self, launch_path: int, shared: int, captured: int) -> int:
        """Return launch path + what of a capture path is not in the launch path already."""
        path = launch_path
        for name, domain in self._captures.beyond(shared, captured):
            path = self._paths.id((path, name, domain))
        return path

    def _with_template(
        self, operations: pl.DataFrame, launch_path: pl.Series, path: pl.Series, via: pl.Series
    ) -> list[pl.Series]:
        """Return path, via and templated of operations, the template's paths among them."""
        nodes = operations.select("process", pl.col("graph_node").alias("node"))
        found = nodes.join(self.templated.nodes, on=nodes.columns, how="left", maintain_order="left")["templated"]
        case = pl.DataFrame([launch_path.alias("launch_path"), found])
        distinct = case.drop_nulls().unique()
        paths = pl.Series("learned", [self._learned(*row) for row in distinct.iter_rows()], dtype=ID)
        learned = case.join(distinct.with_columns(paths), on=case.columns, how="left", maintain_order="left")["learned"]
        taught = (learned != launch_path).fill_null(value=False)
        return [path.zip_with(~taught, learned), via.set(taught, _TEMPLATE), found]

    def _learned(self, launch_path: int, templated: int) -> int:
        """Return launch path + a learned capture path."""
        path = launch_path
        for name, domain in self.templated.paths[templated]:
            path = self._paths.id((path, self.trace.name_id(name), self.trace.name_id(domain)))
        return path

    @cached_property
    def templated(self) -> Templated:
        """What the template says of the graphs that were captured before the recording began."""
        if self.template is None:
            raise AssertionError("there is no template")
        return apply(self.without_capture, self.trace.names, self.template, self.domains)

    @property
    def template_rows(self) -> pl.DataFrame | None:
        """How the graphs of the report go with the template; None without one.

        report, process (operating system id), kernel_count, replay_count, graph, score, applied: see `Templated`.
        """
        if self.template is None:
            return None
        pids = pl.Series([process.pid for process in self.trace.processes], dtype=pl.Int64)
        return template_rows(self.trace.report, pids, self.templated)

    @cached_property
    def without_capture(self) -> pl.DataFrame:
        """Replayed kernels whose capture was not recorded: process, correlation, graph_node, name, start_ns."""
        replayed = self.trace.kernels.select("process", "correlation", "graph_node", "name", "start_ns")
        known = self._captures.nodes.filter(~pl.col("late")).select("process", pl.col("node").alias("graph_node"))
        return replayed.drop_nulls("graph_node").join(known, on=["process", "graph_node"], how="anti")

    @cached_property
    def _captures(self) -> Captures:
        return Captures(self.trace, self.push_pop, self.nesting)

    @property
    def captures(self) -> list[tuple[int, ...]]:
        """Distinct capture paths: range instances (indices into `push_pop`) open when a node was captured."""
        return self._captures.paths

    def owner(self, path: int) -> Owner | None:
        """Return what a ``path`` stands for; None: launched under no range."""
        if path == ROOT:
            return None
        names: list[str] = []
        at, domain = path, self._paths.values[path][2]
        while at != ROOT:
            at, name, _ = self._paths.values[at]
            names.append(self.trace.names[name])
        return Owner(tuple(reversed(names)), self.trace.names[domain])

    @cached_property
    def uncaptured(self) -> int:
        """Kernels replayed from a graph that was captured before the recording began, and no template says in what."""
        unknown = self.without_capture
        if self.template is not None:
            told = self.templated.nodes.select("process", pl.col("node").alias("graph_node"))
            unknown = unknown.join(told, on=["process", "graph_node"], how="anti")
        return unknown.height

    # ---- inclusive figures, by launch alone

    def projected_spans(self) -> pl.DataFrame:
        """Return when the operations launched inside each push/pop range instance ran, on each GPU.

        Inside are kernels, copies and sets whose launch call began while the instance was open on its thread,
        however many ranges were open below it. A graph replay is inside where it was launched; what it was
        captured in has no part in this.

        Returns
        -------
        pl.DataFrame
            One row for each owning instance and GPU that it launched anything on, ordered by both:
            row (of the instance in the report; with ``gpu`` the key) · process, thread, domain, name UInt32
            (indices, as in `Trace`) · start_ns, end_ns Int64 (of the range) · gpu UInt32 (index into
            `Trace.gpus`) · first_ns, last_ns Int64 (first start to last end of the operations) ·
            operation_count Int64 · kernel_ns Int64 (sum of the kernels' durations).
        """
        nodes = self.nesting.nodes["range"]
        spans = (
            self._by_node.with_columns(nodes.gather(self._by_node["node"]))
            .group_by("range", "gpu")
            .agg(*_FIRST_TO_LAST, pl.col("operation_count", "kernel_ns").sum())
        )
        instance = ("row", "process", "thread", "domain", "name", "start_ns", "end_ns")
        return (
            spans.hstack(self.push_pop.select(instance)[spans["range"]])
            .sort("row", "gpu")
            .select(*instance, "gpu", "first_ns", "last_ns", "operation_count", "kernel_ns")
        )

    def inclusive(self) -> pl.DataFrame:
        """Return the kernels launched inside push/pop ranges by name, whatever ranges were open below those.

        A kernel counts once for each name open at its launch, however often that name is nested. Names of
        different domains are one if their texts are.

        Returns
        -------
        pl.DataFrame
            process, thread (of the launch), name UInt32 (indices, as in `Trace`; the key, and the order) ·
            kernel_count, kernel_ns Int64.
        """
        parents = self.nesting.nodes["parent"]
        names = self.push_pop["name"].gather(self.nesting.nodes["range"])
        # Of nested nodes of one name the outermost holds all that the others hold.
        inside = self._by_node.filter(pl.col("kernel_count") > 0)
        above = inside.select("node", pl.col("node").alias("above")).unique()
        again = [above["node"].clear()]
        while above.height:
            above = above.with_columns(parents.gather(above["above"]).alias("above"))
            above = above.filter(pl.col("above") != NO_STACK)
            same = names.gather(above["above"]) == names.gather(above["node"])
            again.append(above["node"].filter(same))
            above = above.filter(~same)
        outermost = inside.join(pl.concat(again).to_frame(), on="node", how="anti")
        ranges = self.nesting.nodes["range"].gather(outermost["node"])
        return (
            outermost.hstack(self.push_pop.select("process", "thread", "name")[ranges])
            .group_by("process", "thread", "name")
            .agg(pl.col("kernel_count", "kernel_ns").sum())
            .sort("process", "thread", "name")
        )

    @cached_property
    def _by_node(self) -> pl.DataFrame:
        """What was launched under each node of `nesting` or any below it: node, gpu, first_ns, last_ns, counts, ns."""
        by, counts = ("node", "gpu"), ("operation_count", "kernel_count", "kernel_ns")
        launched = [
            operations.filter(pl.col("stack") != NO_STACK)
            .group_by(pl.col("stack").cast(pl.Int64).alias("node"), "gpu")
            .agg(
                pl.col("start_ns").min().alias("first_ns"),
                pl.col("end_ns").max().alias("last_ns"),
                pl.len().cast(pl.Int64).alias("operation_count"),
                (pl.len().cast(pl.Int64) * is_kernel).alias("kernel_count"),
                ((pl.col("end_ns") - pl.col("start_ns")).sum() * is_kernel).alias("kernel_ns"),
            )
            for operations, is_kernel in ((self.kernels, 1), (self.copies, 0))
        ]
        own = pl.concat(launched)
        parents = self.nesting.nodes["parent"]
        depths = self.nesting.nodes["depth"].gather(own["node"])
        by_depth = own.with_columns(depths).partition_by("depth", as_dict=True, include_key=False)
        deepest = depths.max()
        below, levels = own.clear(), [own.clear()]
        for depth in range(deepest if isinstance(deepest, int) else 0, 0, -1):
            level = pl.concat([by_depth.get((depth,), own.clear()), below])
            level = level.group_by(by).agg(*_FIRST_TO_LAST, pl.col(counts).sum())
            levels.append(level)
            below = level.with_columns(parents.gather(level["node"]).alias("node"))
        return pl.concat(levels)

    # ---- paths of stacks

    @cached_property
    def _node_paths(self) -> pl.Series:
        """Path of each node of `nesting`: instances that have the same names share one."""
        return down_the_tree(self.nesting, self.push_pop.select("name", "domain"), self._paths)


def down_the_tree(nesting: Nesting, keys: pl.DataFrame, interner: Interner[tuple[int, int, int]]) -> pl.Series:
    """Intern every node by its parent's number and its range's keys, from the outermost level down."""
    nodes = nesting.nodes.with_row_index("node")
    found = pl.repeat(ROOT, nodes.height, dtype=ID, eager=True)
    deepest = nodes["depth"].max()
    for depth in range(1, (deepest if isinstance(deepest, int) else 0) + 1):
        level = nodes.filter(pl.col("depth") == depth)
        parents = of_nodes(found, level["parent"]).fill_null(ROOT)
        keyed = pl.DataFrame([parents.alias("parent"), *(keys[c].gather(level["range"]) for c in keys.columns)])
        distinct = keyed.unique(maintain_order=True)
        numbers = pl.Series("number", [interner.id(row) for row in distinct.iter_rows()], dtype=ID)
        numbered = keyed.join(distinct.with_columns(numbers), on=keyed.columns, how="left", maintain_order="left")
        found = found.scatter(level["node"], numbered["number"])
    return found

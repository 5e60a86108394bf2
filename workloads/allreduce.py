"""Collectives alone: sizes as nccl-tests measures them, and the burst of small all-reduces of a decode step.

algbw = S / t and busbw = algbw · f are nccl-tests' (S of a gather or scatter is the whole array). Times are
of one call: an iteration is ``-m`` calls, or a whole burst, divided by the calls in it; the slowest rank
counts.

Settings of NCCL are read when a process starts it, so ``--sweep`` starts torchrun anew for each combination
of them; it is run without torchrun itself, with ``--nproc``.
"""

import argparse
import functools
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from k25trace.workloads import machine, options
from k25trace.workloads.annotate import Annotator, recording
from k25trace.workloads.collective import (
    ONE_SHOT,
    OPERATIONS,
    Clock,
    Measured,
    Operation,
    begin_together,
    iterate,
)
from k25trace.workloads.mla_attention import normal
from k25trace.workloads.results import Result, document, publish
from k25trace.workloads.shapes import Preset, bus_factor, collectives, linears
from k25trace.workloads.sweep import sweep, without_sweep
from k25trace.workloads.timing import Hold, Moment, Quantiles, Taken, moment
from k25trace.workloads.world import CannotRun, World, run

from k25trace.errors import UsageError
from k25trace.ranges import ALLREDUCE, BENCH, name

LINKS = {
    "H200": 450e9,  # NVLink 4, one direction
    "H100": 450e9,
    "B200": 900e9,  # NVLink 5
    "A100": 300e9,  # NVLink 3
    "RTX PRO 6000": 63e9,  # PCIe 5.0 x16: 32 GT/s · 16 / 8 · 128/130
}
"""Bytes a second of a GPU's links in one direction, by a part of its name, from vendors' figures."""


def size_of(text: str) -> int:
    """Return the bytes that ``8``, ``14K``, ``1M`` or ``1G`` names: powers of 1,024, as in nccl-tests."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:].upper(), 1)
    digits = text if scale == 1 else text[:-1]
    if not digits.isdigit() or int(digits) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, such as 8, 16K or 1M")
    return int(digits) * scale


@dataclass(frozen=True)
class Row:
    """A row and what it needs to be finished after the recording; nothing, where it could not be measured.

    Parameters
    ----------
    operation, size, calls
        The collective, nccl-tests' S in bytes, and how many of them an iteration has.
    beside
        The same work as what ran beside the collective, alone; and how many GEMMs it has.
    """

    result: Result
    operation: str = ""
    size: int = 0
    calls: int = 0
    measured: Measured | None = None
    beside: tuple[Measured, int] | None = None


Job = Callable[[], Row]
"""Measures one row. Its buffers are made and its sums checked before, so that a recording has only what is timed."""


class Bench:
    """What the measurements of this run share."""

    def __init__(self, world: World, annotator: Annotator, chosen: argparse.Namespace, preset: Preset) -> None:
        self.world, self.annotator, self.chosen, self.preset = world, annotator, chosen, preset
        self.dtype: torch.dtype = {"bfloat16": torch.bfloat16, "float32": torch.float32}[chosen.dtype]
        self._link = chosen.link_gb_per_s * 1e9 if chosen.link_gb_per_s else None
        if self._link is None and world.cuda:
            gpu = torch.cuda.get_device_name(world.device)
            self._link = next((rate for part, rate in LINKS.items() if part in gpu), None)
        self._one_host = machine.one_host(world)

    def finish(self, row: Row) -> Result:
        """Return the row with its times, after the recording; every rank takes part.

        The slowest rank's time of one call, bandwidths, and the skew of the starts.
        """
        result, measured = row.result, row.measured
        if measured is None:
            return result
        lasted = Taken(self.world, measured.pairs).read()
        arrived = [measured.clock.host_ns(start) for start, _ in measured.pairs]
        slowest = [max(every) for every in zip(*self.world.gather(lasted), strict=True)]
        skews = [max(every) - min(every) for every in zip(*self.world.gather(arrived), strict=True)]
        result.samples = [ns // row.calls for ns in slowest]
        median = max(1, Quantiles.of(result.samples).p50) * 1e-9
        algorithm = row.size / median
        bus = algorithm * bus_factor(row.operation, self.world.size)
        figures = {
            "operation": row.operation,
            "size_bytes": row.size,
            "calls": row.calls,
            "iteration_ns": asdict(Quantiles.of(slowest)),
            "algbw_bytes_per_s": algorithm,
            "busbw_bytes_per_s": bus,
            "link_bytes_per_s": self._link,
            "link_share": bus / self._link if self._link else None,
            "start_skew_ns": asdict(Quantiles.of(skews)) if self._one_host else None,
            "start_skew_uncertainty_ns": max(self.world.gather(measured.clock.uncertainty_ns)),
        }
        if measured.range is not None:
            figures["range"] = measured.range
        if row.beside is not None:
            alone, count = row.beside
            figures["gemm_alone_ns"] = Quantiles.of(Taken(self.world, alone.pairs).read()).p50 // count
        result.extra = figures | result.extra
        return result

    def check(self, operation: Operation) -> int:
        """Return the number of wrong elements; none is right."""
        wrong = operation.wrong()
        if wrong:
            raise CannotRun(f"{operation.kind} of {operation.size:,} B: {wrong:,} elements are wrong")
        return wrong

    def sizes(self) -> list[Job]:
        """Return the measurements of sizes from ``-b`` to ``-e``, eager or as a graph."""
        jobs, chosen = [], self.chosen
        for kind in chosen.operations.split(","):
            size = chosen.minbytes
            while size <= chosen.maxbytes:
                jobs.append(self._size(kind, size))
                size *= chosen.stepfactor
        return jobs

    def _size(self, kind: str, size: int) -> Job:
        chosen, graph = self.chosen, bool(self.chosen.cudagraph) and self.world.cuda
        library = "symmetric memory" if kind == ONE_SHOT else self.world.backend
        result = Result(
            name(OPERATIONS.get(kind, ALLREDUCE)),
            f"{library}, {'graph' if graph else 'eager'}",
            {"S": size},
            chosen.dtype,
        )

        def impossible(error: Exception) -> Row:
            result.unavailable = str(error).splitlines()[0]
            return Row(result)

        try:
            operation = Operation(self.world, kind, size, self.dtype)
            result.extra["wrong"] = self.check(operation)
        except (RuntimeError, ImportError, AttributeError) as error:
            row = impossible(error)
            return lambda: row
        result.shape["S"] = operation.size

        def once() -> None:
            for _ in range(chosen.aggregate):
                operation()

        def measure() -> Row:
            label = f"{kind}_{operation.size}"
            try:
                found = iterate(self.world, self.annotator, label, once, chosen.iters, chosen.warmup, graph=graph)
            except RuntimeError as error:
                return impossible(error)
            of = "all_reduce" if kind == ONE_SHOT else kind
            return Row(result, of, operation.size, chosen.aggregate, found)

        return measure

    def bursts(self) -> list[Job]:
        """Return the measurements of a decode step's all-reduces in a row: those of the layers, and all of a step."""
        jobs: list[Job] = []
        for tokens in self.chosen.tokens:
            step = collectives(self.preset, self.world.size, tokens)
            reduces = [one for one in step if one.operation == "all_reduce"]
            in_layers = sum(one.calls for one in reduces if one.calls > 1)
            reduce = Operation(self.world, "all_reduce", reduces[0].payload_bytes, self.dtype)
            wrong = self.check(reduce)
            (logits,) = [one for one in step if one.operation == "all_gather"]
            gather = Operation(self.world, "all_gather", logits.payload_bytes * self.world.size, self.dtype)
            wrong += self.check(gather)

            def layers(reduce: Operation = reduce, count: int = in_layers) -> None:
                for _ in range(count):
                    reduce()

            def whole(reduce: Operation = reduce, gather: Operation = gather, count: int = in_layers + 1) -> None:
                for _ in range(count):
                    reduce()
                gather()

            for body, calls, part in ((layers, in_layers, "burst"), (whole, in_layers + 2, "burst_whole")):
                if self.chosen.burst not in {"both", part}:
                    continue
                for graph in (False, True) if self.world.cuda else (False,):
                    result = Result(
                        name(ALLREDUCE, part=part), "graph" if graph else "eager", {"M": tokens}, self.chosen.dtype
                    )
                    result.extra["wrong"] = wrong
                    if body is whole:
                        # Two kinds of calls have no bandwidth in common.
                        result.extra |= dict.fromkeys(("algbw_bytes_per_s", "busbw_bytes_per_s", "link_share"))
                    jobs.append(functools.partial(self._burst, result, part, body, reduce.size, calls, graph=graph))
            if self.chosen.with_gemm:
                jobs.append(self._with_gemm(tokens, reduce, in_layers, layers))
        return jobs

    def _burst(self, result: Result, part: str, body: Callable[[], None], size: int, calls: int, *, graph: bool) -> Row:
        label = f"{part}_{result.variant}_m{result.shape['M']}"
        chosen = self.chosen
        found = iterate(self.world, self.annotator, label, body, chosen.iters, chosen.warmup, graph=graph)
        return Row(result, "all_reduce", size, calls, found)

    def _with_gemm(self, tokens: int, reduce: Operation, calls: int, layers: Callable[[], None]) -> Job:
        """Return the burst while GEMMs of the same model run beside it, on a stream of their own."""
        world, one = self.world, linears(self.preset, self.world.size)["o_proj"]
        generator = torch.Generator(world.device).manual_seed(self.chosen.seed)
        weights = [normal(one.k, one.n, generator) for _ in range(4)]
        x = torch.randn(max(64, tokens), one.k, device=world.device, generator=generator, dtype=torch.bfloat16)
        out = torch.empty(len(x), one.n, device=world.device, dtype=torch.bfloat16)
        # The burst is beside GEMMs for as long as they outlast it: `gemm_alone_ns` times their count says how long.
        count = self.chosen.gemms * calls
        result = Result(
            name(ALLREDUCE, part="burst"),
            "graph, beside GEMMs" if world.cuda else "between GEMMs",
            {"M": tokens},
            self.chosen.dtype,
            extra={"gemm": {"M": len(x), "K": one.k, "N": one.n, "count": count}},
        )

        def gemms(count: int) -> None:
            for index in range(count):
                torch.matmul(x, weights[index % 4], out=out)

        def between() -> None:
            layers()
            gemms(calls)

        def measure() -> Row:
            alone = iterate(
                world, self.annotator, f"gemm_alone_m{tokens}", lambda: gemms(count), 3, 1, graph=world.cuda
            )
            side = torch.cuda.Stream(world.device) if world.cuda else None
            found = self._beside(side, layers, lambda: gemms(count), between)
            return Row(result, "all_reduce", reduce.size, calls, found, (alone, count))

        return measure

    def _beside(
        self,
        side: "torch.cuda.Stream | None",
        layers: Callable[[], None],
        gemms: Callable[[], None],
        between: Callable[[], None],
    ) -> Measured:
        """Return the burst's own times, with events inside the work that is run beside it."""
        world, chosen = self.world, self.chosen
        if side is None:
            return iterate(world, self.annotator, "burst_gemm", between, chosen.iters, chosen.warmup, graph=False)
        # Two graphs, replayed on two streams at once: the host launches nothing in between.
        graphs = []
        for body in (gemms, layers):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                body()
            graphs.append(graph)
        main = torch.cuda.current_stream(world.device)

        def both() -> tuple[Moment, Moment]:
            side.wait_stream(main)
            with torch.cuda.stream(side):
                graphs[0].replay()
            with self.annotator(BENCH, part="burst_gemm"):
                start = moment(world)
                graphs[1].replay()
                end = moment(world)
            main.wait_stream(side)
            return start, end

        hold = Hold(world, both, together=True)
        clock = Clock(world)
        pairs = []
        world.barrier("the burst beside GEMMs")
        for _ in range(chosen.iters):
            begin_together(world, hold)
            pairs.append(both())
        world.synchronize()
        graphs.clear()
        # No range of its own: other kernels run in its time, and ranges of several M share the name.
        return Measured(pairs, clock)


def _parser() -> argparse.ArgumentParser:
    parser = options.parser("allreduce", __doc__)
    sizes = parser.add_argument_group("sizes, as in nccl-tests")
    sizes.add_argument("-b", "--minbytes", type=size_of, default="8K", metavar="S")
    sizes.add_argument("-e", "--maxbytes", type=size_of, default="8M", metavar="S")
    sizes.add_argument("-f", "--stepfactor", type=int, default=4, metavar="F")
    sizes.add_argument("-n", "--iters", type=options.positive, default=20, metavar="N")
    sizes.add_argument("-w", "--warmup", type=options.positive, default=5, metavar="N")
    sizes.add_argument("-m", "--aggregate", type=options.positive, default=10, metavar="N", help="calls an iteration")
    sizes.add_argument("-G", "--cudagraph", type=options.natural, default=0, metavar="N", help="1: as a CUDA graph")
    sizes.add_argument("--operations", default="all_reduce", metavar="OP,...", help=", ".join([*OPERATIONS, ONE_SHOT]))
    sizes.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    burst = parser.add_argument_group("the decode burst")
    burst.add_argument("-M", "--tokens", type=options.tokens, default="1,4,16,64,256", metavar="M,...")
    burst.add_argument("--with-gemm", action="store_true", help="beside GEMMs, too")
    burst.add_argument("--gemms", type=options.positive, default=16, metavar="N", help="GEMMs for each all-reduce")
    burst.add_argument(
        "--burst",
        choices=("both", "burst", "burst_whole"),
        default="both",
        help="of the layers; of the whole step, with the embedding's and the gather",
    )
    burst.add_argument("--no-burst", action="store_true")
    burst.add_argument("--no-sizes", action="store_true")
    parser.add_argument("--link-gb-per-s", type=options.rate, metavar="X", help="of a GPU's links, in one direction")
    sweep = parser.add_argument_group("settings of NCCL")
    sweep.add_argument(
        "--sweep",
        action="append",
        metavar="NAME=V,...",
        help="run for each value, such as NCCL_PROTO=LL,Simple; of several, every combination; empty: unset",
    )
    sweep.add_argument("--nproc", type=options.positive, metavar="N", help="ranks that --sweep starts")
    return parser


def main() -> int:
    """Run the benchmark."""
    chosen = _parser().parse_args()
    if chosen.stepfactor < 2:
        raise UsageError("-f must be at least 2")
    if chosen.no_sizes and chosen.no_burst:
        raise UsageError("nothing is measured with both --no-sizes and --no-burst")
    if chosen.minbytes > chosen.maxbytes and not chosen.no_sizes:
        raise UsageError(f"-b {chosen.minbytes:,} is above -e {chosen.maxbytes:,}")
    if unknown := set(chosen.operations.split(",")) - {*OPERATIONS, ONE_SHOT}:
        raise UsageError(
            f"there is no operation {', '.join(one or repr(one) for one in sorted(unknown))}",
            ", ".join([*OPERATIONS, ONE_SHOT]),
        )
    if chosen.sweep:
        return sweep(chosen, without_sweep(sys.argv[1:]))
    world, annotator = options.begin(chosen)
    if world.size < 2:
        raise UsageError("a collective needs at least 2 ranks", "torchrun --nproc-per-node N -m ...")
    before = machine.look_before(world, chosen.on_dirty)
    bench = Bench(world, annotator, chosen, options.preset(chosen))
    jobs = ([] if chosen.no_sizes else bench.sizes()) + ([] if chosen.no_burst else bench.bursts())
    with recording(world, annotator):
        rows = [job() for job in jobs]
    results = [bench.finish(row) for row in rows]
    publish(world, document(world, "allreduce", chosen, results, before), chosen)
    world.close()
    return 0


if __name__ == "__main__":
    run(main)

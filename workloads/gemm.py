"""Every matrix product of a decode step alone: dense ones in bf16, experts in four ways of reading weights.

- ``bf16``: the bf16 product (cuBLAS), for the weights that a step holds in bf16, and for one expert as a
  comparison;
- ``cast``: INT4 weights dequantised by elementwise kernels, then a bf16 product. It stands in for NVFP4
  weights on a path without fused kernels;
- ``int4pack``: torch's own W4A16 kernel;
- ``marlin``: vLLM's Marlin kernel, for one expert as a dense product; ``experts`` rows have all of a
  layer's experts and the routing of a step.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from k25trace.workloads import machine, options, w4a16
from k25trace.workloads.annotate import Annotator, recording
from k25trace.workloads.experts import PATHS, Draw, Experts, expert_bytes, relative_error, scratch_bytes
from k25trace.workloads.mla_attention import normal
from k25trace.workloads.moe_routing import route
from k25trace.workloads.results import Job, Result, check_error, document, failures, guarded, publish, take
from k25trace.workloads.shapes import ROUTED, Linear, Preset, linears
from k25trace.workloads.timing import Timing, copies_for, measure_ceilings
from k25trace.workloads.world import CannotRun, World, run

from k25trace.errors import UsageError
from k25trace.ranges import GEMM, name

TOLERANCE = 0.01
"""Of one bf16 product against float64."""
EXPERTS_TOLERANCE = 0.02
"""Of two in a row, with an activation between them."""
ALL_EXPERTS = "experts"

Packed = tuple[torch.Tensor, torch.Tensor]
"""A weight and its scales, as one way of reading it wants them."""
T = TypeVar("T")


class Bench:
    """What every measurement of this run shares."""

    def __init__(self, world: World, annotator: Annotator, chosen: argparse.Namespace, preset: Preset) -> None:
        self.world, self.annotator, self.preset = world, annotator, preset
        self.ranks: int = chosen.tp
        self.seed: int = chosen.seed
        self.timing: Timing = options.timing(chosen)
        self.marlin_missing: str | None = None
        self.jobs: list[Job] = []
        self._made: dict[tuple[str, ...], Any] = {}

    def once(self, key: tuple[str, ...], make: Callable[[], T]) -> T:
        """Return what all numbers of tokens share: weights are made for the first of them."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def has(self, key: tuple[str, ...]) -> bool:
        """Whether it is made already."""
        return key in self._made

    def generator(self, salt: int = 0) -> torch.Generator:
        """Return a generator of this rank's own."""
        return torch.Generator(self.world.device).manual_seed((self.seed * 4096 + self.world.rank) * 97 + salt)

    def rows(self, tokens: int, width: int, batch: int = 1) -> torch.Tensor:
        """Return random bf16 activations."""
        size = (batch, tokens, width) if batch > 1 else (tokens, width)
        return torch.randn(size, device=self.world.device, generator=self.generator(1), dtype=torch.bfloat16)

    def time(self, result: Result, call: Callable[[int], object]) -> None:
        """Have a result timed that is right."""
        label = f"{result.name.partition('.')[2]}_{result.variant}_m{result.shape['M']}"
        self.jobs.append(Job(check_error(result), call, label))


def dense(bench: Bench, linear: Linear, tokens: int) -> Result:
    """Measure a bf16 product."""
    result = Result(
        linear.range,
        "bf16",
        {"M": tokens, "K": linear.k, "N": linear.n, "batch": linear.batch},
        "bfloat16",
        bytes=linear.weights * 2 + linear.activation_bytes(tokens),
        flops=linear.flops(tokens),
        tolerance=TOLERANCE,
    )

    def run_it(result: Result) -> None:
        copies = result.extra["copies"] = copies_for(bench.world, linear.weights * 2)
        generator = bench.generator()
        batch = linear.batch if linear.batch > 1 else None
        weights = bench.once(
            (linear.name, "bf16"),
            lambda: [normal(linear.k, linear.n, generator, batch=batch) for _ in range(copies)],
        )
        x = bench.rows(tokens, linear.k, linear.batch)
        exact = x.to(torch.float64) @ weights[0].to(torch.float64)
        result.error = relative_error(torch.matmul(x, weights[0]), exact)
        bench.time(result, lambda i: torch.matmul(x, weights[i % copies]))

    return guarded(result, run_it)


def quantized(bench: Bench, linear: Linear, tokens: int, path: str) -> Result:
    """Measure one INT4 weight as a dense product."""
    result = Result(
        linear.range,
        path,
        {"M": tokens, "K": linear.k, "N": linear.n, "batch": 1},
        "bfloat16 x int4",
        bytes=linear.weight_bytes + linear.activation_bytes(tokens),
        flops=linear.flops(tokens),
        tolerance=TOLERANCE,
    )
    if path == "marlin" and bench.marlin_missing is not None:
        result.unavailable = bench.marlin_missing
        return result

    def run_it(result: Result) -> None:
        copies = result.extra["copies"] = copies_for(bench.world, linear.weight_bytes)
        generator, device = bench.generator(), bench.world.device

        def make() -> tuple[torch.Tensor, torch.Tensor, list[Packed]]:
            drawn = [
                (
                    w4a16.random_q(linear.k, linear.n, generator, device),
                    w4a16.random_scales(linear.k, linear.n, generator, device),
                )
                for _ in range(copies)
            ]
            return *drawn[0], [_pack(path, *one) for one in drawn]

        q, scales, packed = bench.once((linear.name, path), make)
        x = bench.rows(tokens, linear.k)
        multiply = _multiply(bench, path, tokens)
        result.error = relative_error(multiply(x, *packed[0]), x.to(torch.float64) @ w4a16.dequantized(q, scales))
        bench.time(result, lambda i: multiply(x, *packed[i % copies]))

    return guarded(result, run_it)


def _pack(path: str, q: torch.Tensor, scales: torch.Tensor) -> Packed:
    if path == "cast":
        return w4a16.pack_plain(q), scales
    if path == "int4pack":
        return w4a16.pack_int4pack(q, scales)
    return w4a16.pack_marlin(q).unsqueeze(0), w4a16.permute_scales(scales).unsqueeze(0)


def _multiply(
    bench: Bench, path: str, tokens: int
) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]:
    """Return the product of x and a weight that `_pack` made."""
    if path == "cast":
        return lambda x, packed, scales: x @ w4a16.dequantize_elementwise(packed, scales)
    if path == "int4pack":
        return w4a16.int4pack_mm
    # A mixture of one expert, to which every token goes.
    device = bench.world.device
    kernel = w4a16.MarlinMoe(tokens, 1, 1, device)
    kernel.align(torch.zeros(tokens, 1, dtype=torch.int32, device=device))
    ones = torch.ones(tokens, 1, device=device)
    return lambda x, packed, scales: kernel.gemm(x, packed, scales, ones, second=False)


def all_experts(bench: Bench, tokens: int, path: str) -> Result:
    """Measure all routed experts of a layer, for the routing of random tokens."""
    preset, world = bench.preset, bench.world
    one = linears(preset, bench.ranks)
    result = Result(
        name(GEMM, part=ALL_EXPERTS),
        path,
        {"M": tokens, "experts": preset.experts, "top_k": preset.top_k, "tp": bench.ranks},
        "bfloat16 x bfloat16" if path == "bf16" else "bfloat16 x int4",
        tolerance=EXPERTS_TOLERANCE,
    )
    if path == "marlin" and bench.marlin_missing is not None:
        result.unavailable = bench.marlin_missing
        return result
    key = (ALL_EXPERTS, path)
    need = scratch_bytes(preset, bench.ranks, path, tokens)
    need += 0 if bench.has(key) else expert_bytes(preset, bench.ranks, path)
    if world.cuda:
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(world.device)[0]
        if need > free:
            result.unavailable = f"not enough memory: {need:,} B needed, {free:,} B free"
            return result

    def run_it(result: Result) -> None:
        experts = bench.once(
            key,
            lambda: Experts(preset, bench.ranks, path, Draw(bench.seed, 0, world.rank), world.device, bench.annotator),
        )
        if path == "marlin":
            experts = experts.by(w4a16.MarlinMoe(tokens, preset.top_k, preset.experts, world.device))
        generator = bench.generator(2)
        # Other tokens in every call: other experts, so that no weight is still in the cache.
        inputs = []
        for _ in range(bench.timing.calls if world.cuda else 2):
            x = torch.randn(tokens, preset.hidden, device=world.device, generator=generator, dtype=torch.bfloat16)
            logits = torch.randn(tokens, preset.experts, device=world.device, generator=generator)
            inputs.append((x, *route(logits, torch.zeros_like(logits[0]), preset)))
        x, weights, ids = inputs[0]
        experts.align(ids)
        exact = experts.reference(x.to(torch.float64), weights, ids)
        result.error = relative_error(experts(x, weights, ids), exact)
        hit = sum(ids.unique().numel() for _, _, ids in inputs) / len(inputs)
        result.bytes = round(
            hit * sum(one[key].weight_bytes if path != "bf16" else 2 * one[key].weights for key in ROUTED)
        )
        result.flops = sum(one[key].flops(tokens * preset.top_k) for key in ROUTED)
        result.extra["experts_hit"] = hit

        def call(i: int) -> torch.Tensor:
            x, weights, ids = inputs[i % len(inputs)]
            experts.align(ids)
            return experts(x, weights, ids)

        bench.time(result, call)

    return guarded(result, run_it)


def make_ready(bench: Bench, tokens: Sequence[int], only: Sequence[str], paths: Sequence[str]) -> list[Result]:
    """Return rows of the chosen linears and paths, checked, for each number of tokens; ``bench.jobs`` time them."""
    results: list[Result] = []
    for linear in linears(bench.preset, bench.ranks).values():
        if linear.name not in only or linear.calls == 0:
            continue
        for count in tokens:
            if not linear.routed or "bf16" in paths:
                results.append(dense(bench, linear, count))
            if linear.routed:
                results += [quantized(bench, linear, count, path) for path in paths if path != "bf16"]
    if ALL_EXPERTS in only:
        results += [all_experts(bench, count, path) for path in paths for count in tokens]
    return results


def main() -> int:
    """Run the benchmark."""
    parser = options.parser("gemm", __doc__)
    parser.add_argument("-M", "--tokens", type=options.tokens, default="1,8,64", metavar="M,...")
    parser.add_argument("--tp", type=options.positive, help="ranks that share the weights (default: those of this run)")
    parser.add_argument(
        "--only", metavar="NAME,...", help="some of the linears; 'experts' is a layer's experts together"
    )
    parser.add_argument("--paths", default=",".join(PATHS), metavar="PATH,...", help="ways of reading INT4 weights")
    parser.add_argument("--ranks", choices=("1", "all"), default="all", help="1: rank 0 works alone, the others wait")
    parser.add_argument("--vllm-ops", type=Path, metavar="PATH", help="vLLM's MoE library; also if vllm is installed")
    options.add_timing(parser)
    chosen = parser.parse_args()
    world, annotator = options.begin(chosen)
    chosen.tp = chosen.tp or world.size
    preset = options.preset(chosen)
    every = [*linears(preset, chosen.tp), ALL_EXPERTS]
    only, paths = (chosen.only.split(",") if chosen.only else every), chosen.paths.split(",")
    for given, known in ((only, every), (paths, list(PATHS))):
        if unknown := set(given) - set(known):
            raise UsageError(
                f"there is no {', '.join(one or repr(one) for one in sorted(unknown))}",
                "choose from " + ", ".join(known),
            )
    before = machine.look_before(world, chosen.on_dirty)
    bench = Bench(world, annotator, chosen, preset)
    if "marlin" in paths:
        try:
            if not world.cuda:
                raise CannotRun("Marlin's kernels need a GPU")
            w4a16.load_vllm_ops(chosen.vllm_ops)
        except CannotRun as error:
            if chosen.vllm_ops is not None and world.cuda:
                raise
            bench.marlin_missing = error.message
    ceilings = measure_ceilings(world, annotator, bench.timing)
    alone = chosen.ranks == "1"
    busy = world.rank == 0 or not alone
    results = make_ready(bench, chosen.tokens, only, paths) if busy else []
    with recording(world, annotator):
        take(world, annotator, bench.timing, bench.jobs)
    world.barrier("the other ranks")
    if alone:
        # The others were idle: their rows are rank 0's.
        results = world.gather([one.read() for one in results])[0]
    publish(
        world,
        document(
            world,
            "gemm",
            chosen,
            results,
            before,
            ceilings,
            {"stands_in": "the cast path stands in for NVFP4: elementwise dequantisation of INT4"},
        ),
        chosen,
    )
    failed = failures(results)
    world.close()
    return failed


if __name__ == "__main__":
    run(main)

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

import torch
from k25trace.workloads import machine, options, w4a16
from k25trace.workloads.annotate import Annotator, recording
from k25trace.workloads.experts import PATHS, Draw, Experts, expert_bytes, relative_error, scratch_bytes
from k25trace.workloads.mla_attention import normal
from k25trace.workloads.moe_routing import route
from k25trace.workloads.results import Result, check_error, document, failures, guarded, publish
from k25trace.workloads.shapes import ROUTED, Linear, Preset, linears
from k25trace.workloads.timing import Timing, copies_for, measure_ceilings, time_calls
from k25trace.workloads.world import CannotRun, World, run

from k25trace.errors import UsageError
from k25trace.ranges import BENCH, GEMM, name

TOLERANCE = 0.01
"""Of one bf16 product against float64."""
EXPERTS_TOLERANCE = 0.02
"""Of two in a row, with an activation between them."""
ALL_EXPERTS = "experts"

Multiply = Callable[[torch.Tensor], torch.Tensor]


class Bench:
    """What every measurement of this run shares."""

    def __init__(self, world: World, annotator: Annotator, chosen: argparse.Namespace, preset: Preset) -> None:
        self.world, self.annotator, self.preset = world, annotator, preset
        self.ranks: int = chosen.tp
        self.seed: int = chosen.seed
        self.timing: Timing = options.timing(chosen)
        self.marlin_missing: str | None = None

    def generator(self, salt: int = 0) -> torch.Generator:
        """Return a generator of this rank's own."""
        return torch.Generator(self.world.device).manual_seed((self.seed * 4096 + self.world.rank) * 97 + salt)

    def rows(self, tokens: int, width: int, batch: int = 1) -> torch.Tensor:
        """Return random bf16 activations."""
        size = (batch, tokens, width) if batch > 1 else (tokens, width)
        return torch.randn(size, device=self.world.device, generator=self.generator(1), dtype=torch.bfloat16)

    def time(self, result: Result, call: Callable[[int], object]) -> Result:
        """Add the timing to a result that is right."""
        label = f"{result.name.partition('.')[2]}_{result.variant}_m{result.shape['M']}"
        result.extra["range"] = name(BENCH, part=label)
        check_error(result).samples = time_calls(self.world, self.annotator, call, self.timing, label)
        return result


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
        weights = [normal(linear.k, linear.n, generator, batch=batch) for _ in range(copies)]
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
        x = bench.rows(tokens, linear.k)
        calls: list[Multiply] = []
        exact = x.new_empty(0, dtype=torch.float64)
        for _ in range(copies):
            q = w4a16.random_q(linear.k, linear.n, generator, device)
            scales = w4a16.random_scales(linear.k, linear.n, generator, device)
            if not calls:
                exact = x.to(torch.float64) @ w4a16.dequantized(q, scales)
            calls.append(_multiply(bench, path, q, scales, tokens))
        result.error = relative_error(calls[0](x), exact)
        bench.time(result, lambda i: calls[i % copies](x))

    return guarded(result, run_it)


def _multiply(bench: Bench, path: str, q: torch.Tensor, scales: torch.Tensor, tokens: int) -> Multiply:
    if path == "cast":
        packed = w4a16.pack_plain(q)
        return lambda x: x @ w4a16.dequantize_elementwise(packed, scales)
    if path == "int4pack":
        weight, both = w4a16.pack_int4pack(q, scales)
        return lambda x: w4a16.int4pack_mm(x, weight, both)
    # A mixture of one expert, to which every token goes.
    device = bench.world.device
    kernel = w4a16.MarlinMoe(tokens, 1, 1, device)
    kernel.align(torch.zeros(tokens, 1, dtype=torch.int32, device=device))
    weight, permuted = w4a16.pack_marlin(q).unsqueeze(0), w4a16.permute_scales(scales).unsqueeze(0)
    ones = torch.ones(tokens, 1, device=device)
    return lambda x: kernel.gemm(x, weight, permuted, ones, second=False)


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
    need = expert_bytes(preset, bench.ranks, path) + scratch_bytes(preset, bench.ranks, path, tokens)
    if world.cuda:
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(world.device)[0]
        if need > free:
            result.unavailable = f"not enough memory: {need:,} B needed, {free:,} B free"
            return result

    def run_it(result: Result) -> None:
        marlin = w4a16.MarlinMoe(tokens, preset.top_k, preset.experts, world.device) if path == "marlin" else None
        experts = Experts(
            preset, bench.ranks, path, Draw(bench.seed, 0, world.rank), world.device, bench.annotator, marlin
        )
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


def measure(bench: Bench, tokens: Sequence[int], only: Sequence[str], paths: Sequence[str]) -> list[Result]:
    """Return the measurements of the chosen linears and paths, for each number of tokens."""
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
    parser.add_argument("-M", "--tokens", default="1,8,64", metavar="M,...")
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
            raise UsageError(f"there is no {', '.join(sorted(unknown))}", "choose from " + ", ".join(known))
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
    results: list[Result] = []
    with recording(world, annotator):
        if world.rank == 0 or not alone:
            results = measure(bench, options.tokens(chosen.tokens), only, paths)
    world.barrier("the other ranks")
    if alone:
        # The others were idle: their rows are rank 0's.
        results = world.gather(results)[0]
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

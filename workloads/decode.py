"""A decode step: L layers of attention, routing, experts and all-reduces, eager and as a CUDA graph.

The step is whole: embedding, layers, head, gather of the logits, and the choice of the next token, which
the next step begins with. Tensor parallelism is the number of ranks. The position does not advance: every
step does the same work.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from k25trace.workloads import machine, options, w4a16
from k25trace.workloads.annotate import Annotator, recording
from k25trace.workloads.decoder import CPU_SPARE_BYTES, SPARE_BYTES, Decoder, layer_bytes, layers_that_fit
from k25trace.workloads.experts import (
    PATHS,
    scratch_bytes,
)
from k25trace.workloads.mla_attention import CORES, TOLERANCE
from k25trace.workloads.results import Result, check_error, document, publish
from k25trace.workloads.shapes import (
    Preset,
    collectives,
    linears,
    weight_bytes,
)
from k25trace.workloads.timing import Moment, Quantiles, elapsed_ns, moment
from k25trace.workloads.world import CannotRun, World, run, say

from k25trace import ranges
from k25trace.errors import UsageError
from k25trace.ranges import (
    EAGER_STEP,
    GRAPH_CAPTURE,
    GRAPH_STEP,
)
from k25trace.units import format_ns, parse_ns


def _loop(
    world: World, annotator: Annotator, kind: str, count: int, once: Callable[[], None]
) -> tuple[list[Moment], int]:
    """Return the moments before, between and after the steps, and the time of all by the host's clock.

    Nothing synchronises in between.
    """
    if count == 0:
        return [], 0
    world.barrier(f"{count} times {kind}")
    began = time.monotonic_ns()
    moments = [moment(world)]
    for _ in range(count):
        with annotator(kind):
            once()
        moments.append(moment(world))
    world.synchronize()
    return moments, time.monotonic_ns() - began


def _capture(world: World, annotator: Annotator, decoder: Decoder) -> "torch.cuda.CUDAGraph | None":
    if not world.cuda:
        return None
    world.at("the capture of the graph")
    graph = torch.cuda.CUDAGraph()
    with annotator(GRAPH_CAPTURE), torch.cuda.graph(graph):
        decoder.step()
    return graph


def measure(
    world: World, annotator: Annotator, decoder: Decoder, chosen: argparse.Namespace, errors: dict[str, float]
) -> list[Result]:
    """Return the steps' times: eager and replayed, inside the recording and after it.

    The recording begins before the graph is captured, so that the ranges around each node's capture are in
    it; unless ``--graph-capture before`` wants what a serving engine does, which captures when it starts.
    """
    for _ in range(chosen.warmup):
        decoder.step()
    world.synchronize()
    found: list[tuple[str, bool, list[Moment], int]] = []
    graph, early = None, chosen.graph_capture == "before"
    if chosen.graph_steps and early:
        graph = _capture(world, annotator, decoder)
    with recording(world, annotator):
        if chosen.graph_steps and not early:
            graph = _capture(world, annotator, decoder)
        once = decoder.step if graph is None else graph.replay
        if graph is not None:
            graph.replay()  # the first replay uploads the graph
        found += [
            (EAGER_STEP, True, *_loop(world, annotator, EAGER_STEP, chosen.eager_steps, decoder.step)),
            (GRAPH_STEP, True, *_loop(world, annotator, GRAPH_STEP, chosen.graph_steps, once)),
        ]
    found += [
        (EAGER_STEP, False, *_loop(world, annotator, EAGER_STEP, chosen.eager_steps, decoder.step)),
        (GRAPH_STEP, False, *_loop(world, annotator, GRAPH_STEP, chosen.graph_steps, once)),
    ]
    world.synchronize()
    # Before the process group goes: destroying it while a graph holds NCCL's work hangs.
    del graph, once
    preset, results = decoder.preset, []
    for kind, recorded, moments, wall in found:
        if not moments:
            continue
        samples = [elapsed_ns(world, start, end) for start, end in itertools.pairwise(moments)]
        slowest = Quantiles.of([max(every) for every in zip(*world.gather(samples), strict=True)])
        walls = world.gather(wall)
        results.append(
            Result(
                kind,
                f"{chosen.path}, {'recorded' if recorded else 'not recorded'}",
                {
                    "M": chosen.requests,
                    "tokens": decoder.tokens,
                    "layers": decoder.layers,
                    "context": chosen.context,
                    "tp": world.size,
                },
                "bfloat16",
                samples=samples,
                error=max(errors.values()) if errors else None,
                tolerance=TOLERANCE,
                extra={
                    "recorded": recorded,
                    "is_graph": kind == GRAPH_STEP and world.cuda,
                    "wall_ns": max(walls),
                    "tokens_per_s": decoder.tokens * len(samples) / (max(walls) * 1e-9),
                    "tokens_per_s_median_step": decoder.tokens / (slowest.p50 * 1e-9),
                    "all_layers": decoder.layers == preset.layers,
                },
            )
        )
    return results


def _fit(world: World, chosen: argparse.Namespace, preset: Preset) -> int:
    """Return the number of layers: what was asked for if it fits, or as many as do."""
    tokens = chosen.requests * (chosen.verify_width + 1)
    arguments = (preset, world.size, chosen.path, chosen.requests, chosen.context)
    # On a CPU all ranks share the machine's memory.
    free = torch.cuda.mem_get_info(world.device)[0] if world.cuda else machine.available_bytes() // world.local_size
    free = min(world.gather(free))
    spare = SPARE_BYTES if world.cuda else CPU_SPARE_BYTES
    fitting = layers_that_fit(*arguments, tokens, free, spare)
    wanted = chosen.layers or fitting
    if wanted > preset.layers:
        raise UsageError(f"{preset.name} has {preset.layers} layers, not {wanted}")
    if wanted > fitting or wanted == 0:
        need = layer_bytes(*arguments)
        dense = min(max(wanted, 1), preset.dense_layers)
        total = (
            need["once"]
            + dense * need["dense"]
            + (max(wanted, 1) - dense) * need["moe"]
            + scratch_bytes(preset, world.size, chosen.path, tokens)
            + spare
        )
        raise CannotRun(
            f"not enough memory: {max(wanted, 1)} layers need {total:,} B on each rank, and {free:,} B are free",
            f"--layers {fitting} is the most that fits, at this M and context, on {world.size} ranks"
            if fitting
            else "use more ranks, or a smaller -M or --context",
        )
    return wanted


def _skew(text: str) -> tuple[int, int]:
    rank, _, late = text.partition(":")
    if not rank.isdigit() or not late:
        raise argparse.ArgumentTypeError(f"{text!r} is not RANK:us, such as 1:200")
    try:
        ns = parse_ns(late if not late.replace(".", "", 1).isdigit() else f"{late}us")
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from None
    if ns < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: a rank cannot be early")
    return int(rank), ns


def _parser() -> argparse.ArgumentParser:
    parser = options.parser("decode", __doc__)
    parser.add_argument("--path", choices=PATHS, default="marlin", help="how the experts' weights are read")
    parser.add_argument("--layers", type=options.positive, metavar="L", help="default: as many as fit")
    parser.add_argument("--context", type=options.positive, default=4096, metavar="C")
    parser.add_argument("-M", "--requests", type=options.positive, default=4, metavar="M")
    parser.add_argument("--attention", choices=sorted(CORES), default="matmul", help="the core of MLA")
    parser.add_argument("--eager-steps", type=options.natural, default=10, metavar="N")
    parser.add_argument("--graph-steps", type=options.natural, default=10, metavar="N")
    parser.add_argument(
        "--graph-capture",
        choices=("inside", "before"),
        default="inside",
        help="of the recording; before: replayed kernels have no capture ranges, as in serving engines",
    )
    parser.add_argument("-w", "--warmup", type=options.positive, default=3, metavar="N")
    parser.add_argument(
        "--verify-width",
        type=options.natural,
        default=0,
        metavar="K",
        help="K more tokens a request, to be verified",
    )
    parser.add_argument("--skew", type=_skew, metavar="RANK:us", help="make a rank late by so much in every step")
    parser.add_argument("--vllm-ops", type=Path, metavar="PATH", help="vLLM's MoE library, for --path marlin")
    return parser


def main() -> None:
    """Run the workload."""
    chosen = _parser().parse_args()
    preset = options.preset(chosen)
    if chosen.eager_steps == 0 == chosen.graph_steps:
        raise UsageError("nothing is measured with --eager-steps 0 and --graph-steps 0")
    if chosen.context <= chosen.verify_width:
        raise UsageError("--context must hold the tokens that are verified")
    world, annotator = options.begin(chosen)
    linears(preset, world.size)
    if chosen.skew is not None and chosen.skew[0] >= world.size:
        raise UsageError(f"--skew: there is no rank {chosen.skew[0]}", f"ranks are 0 to {world.size - 1}")
    before = machine.look_before(world, chosen.on_dirty)
    if chosen.path == "marlin":
        if not world.cuda:
            raise CannotRun("Marlin's kernels need a GPU", "--path int4pack, cast or bf16")
        w4a16.load_vllm_ops(chosen.vllm_ops)
    layers = _fit(world, chosen, preset)
    began = time.monotonic()
    decoder = Decoder(world, annotator, preset, chosen, layers)
    world.barrier("the weights")
    if world.rank == 0:
        say(f"{layers} of {preset.layers} layers of {preset.name}, made in {time.monotonic() - began:.0f} s")
    errors = decoder.errors()
    wrong = Result(ranges.LAYER, chosen.path, {}, "bfloat16", error=max(errors.values()), tolerance=TOLERANCE)
    check_error(wrong)
    world.barrier("the check against float64")
    if world.rank == 0:
        say(f"checked against float64: relative error {wrong.error:.1e} at most")
    results = measure(world, annotator, decoder, chosen, errors)
    weights = weight_bytes(preset, world.size, decoder.tokens)
    extra: dict[str, Any] = {
        "errors": errors,
        "range_cost_ns": annotator.cost_ns(),
        "ranges": sorted(annotator.emitted),
        "weight_bytes_all_layers": {key: round(value) for key, value in weights.items()},
        "collectives": [vars(one) for one in collectives(preset, world.size, decoder.tokens)],
        "stands_in": "elementwise dequantisation of INT4 stands in for NVFP4" if chosen.path == "cast" else None,
    }
    found = document(world, "decode", chosen, results, before, extra=extra)
    publish(world, found, chosen)
    if world.rank == 0:
        for row in found["results"]:
            say(
                f"{row['name']} ({row['variant']}): {row['tokens_per_s']:,.1f} tokens/s,"
                f" {format_ns(row['time_ns']['p50'])} a step of {layers} layers"
            )
    world.close()


if __name__ == "__main__":
    run(main)

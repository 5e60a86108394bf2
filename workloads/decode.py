"""A decode step: L layers of attention, routing, experts and all-reduces, eager and as a CUDA graph.

The step is whole: embedding, layers, head, gather of the logits, and the choice of the next token, which
the next step begins with. Tensor parallelism is the number of ranks. The position does not advance: every
step does the same work.
"""

import argparse
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from k25trace.workloads import machine, options, w4a16
from k25trace.workloads.annotate import Annotator, recording
from k25trace.workloads.experts import (
    PATHS,
    Draw,
    Experts,
    expert_bytes,
    relative_error,
    scratch_bytes,
)
from k25trace.workloads.mla_attention import CORES, TOLERANCE, Attention, normal
from k25trace.workloads.moe_routing import route, routing_error
from k25trace.workloads.results import Result, check_error, document, publish
from k25trace.workloads.shapes import (
    Preset,
    collectives,
    linears,
    mla_core,
    weight_bytes,
)
from k25trace.workloads.timing import Moment, Quantiles, elapsed_ns, moment
from k25trace.workloads.world import CannotRun, World, all_gather_into, run, say
from torch.nn.functional import rms_norm, silu

from k25trace import ranges
from k25trace.errors import UsageError
from k25trace.ranges import (
    ALLGATHER,
    ALLREDUCE,
    EAGER_STEP,
    EMBEDDING,
    GEMM,
    GRAPH_CAPTURE,
    GRAPH_STEP,
    LAYER,
    MLP,
    MOE,
    MOE_ROUTING,
    NORM,
    SAMPLING,
    SKEW,
)
from k25trace.units import format_ns, parse_ns

SPARE_BYTES = 3 << 30
"""GPU memory left to CUDA, NCCL, graphs and activations."""
CPU_SPARE_BYTES = 64 << 20
HEAD_CHUNK = 8192


def layer_bytes(preset: Preset, ranks: int, path: str, requests: int, context: int) -> dict[str, int]:
    """Return the bytes on one rank of a dense layer, of a MoE layer, and of what there is once."""
    one = linears(preset, ranks)
    cache = mla_core(preset, ranks, requests, context).cache_bytes
    attention = sum(one[key].weight_bytes for key in ("qkv_a", "q_b", "w_uk", "w_uv", "o_proj")) + cache
    return {
        "dense": attention + one["dense_gate_up"].weight_bytes + one["dense_down"].weight_bytes,
        "moe": attention
        + sum(one[key].weight_bytes for key in ("router", "shared_gate_up", "shared_down"))
        + expert_bytes(preset, ranks, path),
        "once": 2 * one["lm_head"].weight_bytes,
    }


def layers_that_fit(
    preset: Preset,
    ranks: int,
    path: str,
    requests: int,
    context: int,
    tokens: int,
    free_bytes: int,
    spare_bytes: int = SPARE_BYTES,
) -> int:
    """Return how many layers fit into so much memory, the dense ones first."""
    need = layer_bytes(preset, ranks, path, requests, context)
    left = free_bytes - spare_bytes - need["once"] - scratch_bytes(preset, ranks, path, tokens)
    fitting = 0
    while fitting < preset.layers:
        left -= need["dense" if fitting < preset.dense_layers else "moe"]
        if left < 0:
            break
        fitting += 1
    return fitting


class DenseMlp:
    """A gated MLP, split over ranks by its intermediate width."""

    def __init__(self, k: int, width: int, parts: tuple[str, str], own: torch.Generator, annotator: Annotator) -> None:
        self._up, self._down = normal(k, 2 * width, own), normal(width, k, own)
        self._width, self._parts, self._a = width, parts, annotator

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the output."""
        with self._a(GEMM, part=self._parts[0]):
            both = x @ self._up
        with self._a(MLP, part="act"):
            middle = silu(both[:, : self._width]) * both[:, self._width :]
        with self._a(GEMM, part=self._parts[1]):
            return middle @ self._down

    def reference(self, x: torch.Tensor) -> torch.Tensor:
        """Return the same in float64; x float64."""
        both = x @ self._up.to(x.dtype)
        return (silu(both[:, : self._width]) * both[:, self._width :]) @ self._down.to(x.dtype)


class Moe:
    """Router, routed experts and the shared expert of one layer on one rank."""

    def __init__(
        self,
        preset: Preset,
        ranks: int,
        experts: Experts,
        shared: torch.Generator,
        own: torch.Generator,
        a: Annotator,
    ) -> None:
        one = linears(preset, ranks)
        self._preset, self._a, self.experts = preset, a, experts
        self._router = normal(one["router"].k, one["router"].n, shared)
        self._bias = 0.1 * torch.randn(preset.experts, device=own.device, generator=shared)
        self._shared = DenseMlp(preset.hidden, one["shared_down"].k, ("shared_gate_up", "shared_down"), own, a)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the output: routed experts and the shared one."""
        with self._a(MOE):
            with self._a(MOE_ROUTING):
                weights, ids = self.route(x)
                self.experts.align(ids)
            routed = self.experts(x, weights, ids)
            shared = self._shared(x)
            with self._a(MLP, part="add"):
                return routed + shared

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights and ids of the experts of each token."""
        with self._a(GEMM, part="router"):
            logits = (x @ self._router).to(torch.float32)
        return route(logits, self._bias, self._preset)

    def reference(self, x: torch.Tensor) -> torch.Tensor:
        """Return the same in float64 for bf16 x, with the experts that the router chose.

        Two scores that are nearly equal may swap in bf16, so the choice is checked apart, on the router's
        own logits.
        """
        weights, ids = self.route(x)
        wide = x.to(torch.float64)
        return self.experts.reference(wide, weights.to(torch.float64), ids) + self._shared.reference(wide)

    def routing_error(self, x: torch.Tensor) -> float:
        """Return the error of the routing itself, given the router's logits."""
        weights, ids = self.route(x)
        return routing_error(weights, ids, (x @ self._router).to(torch.float32), self._bias, self._preset)


class Decoder:
    """The whole step on one rank.

    Parameters
    ----------
    layers
        How many of the preset's layers, from the first.
    """

    def __init__(
        self, world: World, annotator: Annotator, preset: Preset, chosen: argparse.Namespace, layers: int
    ) -> None:
        self.world, self._a, self.preset, self.layers = world, annotator, preset, layers
        p, ranks, device = preset, world.size, world.device
        self.queries = chosen.verify_width + 1
        self.tokens = chosen.requests * self.queries
        one = linears(preset, ranks)
        shared = torch.Generator(device).manual_seed(2 * chosen.seed)
        own = torch.Generator(device).manual_seed(2 * (chosen.seed * 4096 + world.rank) + 1)
        self._vocabulary = one["lm_head"].n
        self._embedding = torch.randn(self._vocabulary, p.hidden, device=device, generator=own, dtype=torch.bfloat16)
        marlin = None
        if chosen.path == "marlin":
            marlin = w4a16.MarlinMoe(self.tokens, p.top_k, p.experts, device)
        self._attention: list[Attention] = []
        self._mlps: list[DenseMlp | Moe] = []
        for index in range(layers):
            world.at(f"layer {index}'s weights")
            self._attention.append(
                Attention(
                    p,
                    ranks,
                    chosen.requests,
                    chosen.context,
                    self.queries,
                    shared,
                    own,
                    annotator,
                    CORES[chosen.attention],
                )
            )
            if index < p.dense_layers:
                width = one["dense_down"].k
                self._mlps.append(DenseMlp(p.hidden, width, ("dense_gate_up", "dense_down"), own, annotator))
            else:
                experts = Experts(
                    p, ranks, chosen.path, Draw(chosen.seed, index, world.rank), device, annotator, marlin
                )
                self._mlps.append(Moe(p, ranks, experts, shared, own, annotator))
        self._head = normal(p.hidden, self._vocabulary, own)
        self.ids = torch.randint(0, p.vocabulary, (self.tokens,), device=device, generator=shared)
        self._gathered = torch.empty((ranks, self.tokens, self._vocabulary), dtype=torch.bfloat16, device=device)
        self._delay = _delay(world, chosen)

    def _norm(self, x: torch.Tensor, part: str) -> torch.Tensor:
        with self._a(NORM, part=part):
            return rms_norm(x, (self.preset.hidden,), eps=self.preset.norm_epsilon)

    def embed(self) -> torch.Tensor:
        """Return the embedding of the current tokens, summed over the ranks' slices of the vocabulary."""
        with self._a(EMBEDDING):
            local = self.ids - self.world.rank * self._vocabulary
            mine = (local >= 0) & (local < self._vocabulary)
            rows = self._embedding.index_select(0, local.clamp(0, self._vocabulary - 1))
            x = rows.masked_fill(~mine.unsqueeze(1), 0)
        with self._a(ALLREDUCE, part="embedding"):
            return self.world.all_reduce(x)

    def layer(self, index: int, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream after a layer."""
        with self._a(LAYER, index):
            part = self._attention[index](self._norm(x, "attn"))
            with self._a(ALLREDUCE, part="attn"):
                self.world.all_reduce(part)
            with self._a(MLP, part="residual"):
                x = x + part
            part = self._mlps[index](self._norm(x, "mlp"))
            with self._a(ALLREDUCE, part="mlp"):
                self.world.all_reduce(part)
            with self._a(MLP, part="residual"):
                return x + part

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits [ranks, T, vocabulary / ranks] of the residual stream."""
        x = self._norm(x, "final")
        with self._a(GEMM, part="lm_head"):
            part = x @ self._head
        with self._a(ALLGATHER, part="logits"):
            if self.world.size > 1:
                all_gather_into(self._gathered.flatten(0, 1), part)
            else:
                self._gathered.copy_(part.unsqueeze(0))
        return self._gathered

    def step(self) -> None:
        """Do one step: the tokens become the next ones."""
        if self._delay is not None:
            with self._a(SKEW):
                self._delay()
        x = self.embed()
        for index in range(self.layers):
            x = self.layer(index, x)
        logits = self.logits(x)
        with self._a(SAMPLING):
            best, place = logits.max(dim=-1)
            rank = best.argmax(dim=0, keepdim=True)
            self.ids.copy_((place.gather(0, rank) + rank * self._vocabulary).squeeze(0))

    # ---- against float64

    def errors(self) -> dict[str, float]:
        """Return the relative errors of each kind of layer and of the logits; inputs are this program's own.

        Every layer of a kind runs the same code, so the first of each is compared.
        """
        found: dict[str, float] = {}
        x = self.embed()
        for index in range(min(self.layers, self.preset.dense_layers + 1)):
            mlp = self._mlps[index]
            kind = "moe" if isinstance(mlp, Moe) else "dense"
            out = self.layer(index, x)
            if f"{kind}_layer" not in found:
                wide = x.to(torch.float64)
                middle = wide + self._sum(self._attention[index].reference(self._norm(wide, "attn")))
                # The MLP is given what it was given in the program: bf16, and the same routing.
                given = x + self.world.all_reduce(self._attention[index](self._norm(x, "attn")))
                normed = self._norm(given, "mlp")
                if isinstance(mlp, Moe):
                    found["routing"] = mlp.routing_error(normed)
                    rest = mlp.reference(normed)
                else:
                    rest = mlp.reference(normed.to(torch.float64))
                found[f"{kind}_layer"] = relative_error(out, middle + self._sum(rest))
                found[f"{kind}_attention"] = relative_error(given, middle)
            x = out
        wide = self._norm(x.to(torch.float64), "final")
        exact = torch.cat([wide @ chunk.to(torch.float64) for chunk in self._head.split(HEAD_CHUNK, dim=1)], dim=1)
        found["logits"] = relative_error(self.logits(x)[self.world.rank], exact)
        return found

    def _sum(self, part: torch.Tensor) -> torch.Tensor:
        return self.world.all_reduce(part)


def _delay(world: World, chosen: argparse.Namespace) -> Callable[[], None] | None:
    """Return what makes the chosen rank late; None for the others."""
    if chosen.skew is None or chosen.skew[0] != world.rank:
        return None
    ns = chosen.skew[1]
    if not world.cuda:
        return lambda: time.sleep(ns * 1e-9)
    # A kernel that spins for so many cycles; how many a nanosecond has is measured.
    torch.cuda._sleep(1_000_000)
    start = moment(world)
    torch.cuda._sleep(10_000_000)
    end = moment(world)
    world.synchronize()
    cycles = round(ns * 10_000_000 / max(1, elapsed_ns(world, start, end)))
    return lambda: torch.cuda._sleep(cycles)


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
    if world.cuda:
        free = torch.cuda.mem_get_info(world.device)[0]
    else:
        # All ranks share the machine's memory.
        free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") // world.local_size
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

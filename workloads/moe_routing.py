"""Which experts a token goes to: the routing of a mixture of experts, in torch and by vLLM's operators.

Sigmoid of the logits; a correction bias added for the choice alone; of ``groups`` groups the ``top_groups``
best (by their two best experts); the top k of those; their sigmoids, renormalised and scaled, as weights.
Then routed rows are sorted by expert for the grouped GEMMs.
"""

import argparse
from pathlib import Path

import torch
from k25trace.workloads import machine, options, w4a16
from k25trace.workloads.annotate import Annotator, recording
from k25trace.workloads.experts import relative_error
from k25trace.workloads.results import Result, check_error, document, publish
from k25trace.workloads.shapes import Preset
from k25trace.workloads.timing import time_calls
from k25trace.workloads.world import CannotRun, World, run

from k25trace import ranges

SIGMOID = 1
"""vLLM's number of the scoring function."""


def route(logits: torch.Tensor, bias: torch.Tensor, preset: Preset) -> tuple[torch.Tensor, torch.Tensor]:
    """Return weights (of the logits' dtype) and ids (int32), [M, top_k] each, for logits [M, experts]."""
    scores = logits.sigmoid()
    choice = scores + bias
    if preset.groups > 1:
        grouped = choice.unflatten(-1, (preset.groups, -1))
        best = grouped.topk(2, dim=-1).values.sum(-1).topk(preset.top_groups, dim=-1).indices
        kept = torch.zeros(grouped.shape[:-1], dtype=torch.bool, device=logits.device).scatter(-1, best, value=True)
        choice = grouped.masked_fill(~kept.unsqueeze(-1), float("-inf")).flatten(-2)
    ids = choice.topk(preset.top_k, dim=-1).indices
    weights = scores.gather(-1, ids)
    weights = weights / weights.sum(-1, keepdim=True) * preset.routed_scale
    return weights, ids.to(torch.int32)


def sort_rows(ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the routed rows in the order of their experts, and where each expert's rows end."""
    sorted_ids, order = ids.flatten().sort(stable=True)
    every = torch.arange(1, experts + 1, device=ids.device, dtype=sorted_ids.dtype)
    return order, torch.searchsorted(sorted_ids, every, out_int32=True)


def routing_error(
    weights: torch.Tensor, ids: torch.Tensor, logits: torch.Tensor, bias: torch.Tensor, preset: Preset
) -> float:
    """Return the relative error of each expert's weight against float64, as a matrix [M, experts].

    So the order of the chosen does not matter, and a wrong choice is a large error.
    """
    exact, wanted = route(logits.to(torch.float64), bias.to(torch.float64), preset)
    places = (len(ids), preset.experts)
    dense = [
        torch.zeros(places, dtype=torch.float64, device=ids.device).scatter(1, chosen.long(), values.to(torch.float64))
        for chosen, values in ((ids, weights), (wanted, exact))
    ]
    return relative_error(*dense)


def measure(
    world: World, annotator: Annotator, chosen: argparse.Namespace, preset: Preset, *, vllm: bool
) -> list[Result]:
    """Return the timings of routing and of sorting, checked, for each number of tokens."""
    results = []
    timing = options.timing(chosen)
    generator = torch.Generator(world.device).manual_seed(chosen.seed + world.rank)
    for tokens in options.tokens(chosen.tokens):
        shape = {"M": tokens, "experts": preset.experts, "top_k": preset.top_k}
        logits = torch.randn(tokens, preset.experts, device=world.device, generator=generator)
        bias = 0.1 * torch.randn(preset.experts, device=world.device, generator=generator)
        weights, ids = route(logits, bias, preset)
        common = {"name": ranges.MOE_ROUTING, "shape": shape, "dtype": "float32"}
        moved = 4 * (logits.numel() + bias.numel() + 2 * ids.numel())
        result = Result(
            **common,
            variant="torch",
            bytes=moved,
            error=routing_error(weights, ids, logits, bias, preset),
            tolerance=1e-4,
        )
        check_error(result).samples = time_calls(
            world, annotator, lambda _, a=logits, b=bias: route(a, b, preset), timing, "routing_torch"
        )
        results.append(result)
        order, ends = sort_rows(ids, preset.experts)
        counts = torch.bincount(ids.flatten(), minlength=preset.experts)
        wrong = int((ends != counts.cumsum(0)).sum()) + int((ids.flatten()[order].diff() < 0).sum())
        result = Result(**common, variant="torch_sort", error=float(wrong), tolerance=0.0)
        check_error(result).samples = time_calls(
            world, annotator, lambda _, a=ids: sort_rows(a, preset.experts), timing, "sort_torch"
        )
        results.append(result)
        if vllm:
            results += _vllm(world, annotator, chosen, preset, logits, bias, common, moved)
    return results


def _vllm(
    world: World,
    annotator: Annotator,
    chosen: argparse.Namespace,
    preset: Preset,
    logits: torch.Tensor,
    bias: torch.Tensor,
    common: dict,
    moved: int,
) -> list[Result]:
    ops, timing = torch.ops._moe_C, options.timing(chosen)

    def grouped() -> tuple[torch.Tensor, torch.Tensor]:
        return ops.grouped_topk(
            logits, preset.groups, preset.top_groups, preset.top_k, True, preset.routed_scale, bias, SIGMOID
        )

    weights, ids = grouped()
    result = Result(
        **common,
        variant="vllm",
        bytes=moved,
        error=routing_error(weights, ids, logits, bias, preset),
        tolerance=1e-3,
    )
    check_error(result).samples = time_calls(world, annotator, lambda _: grouped(), timing, "routing_vllm")
    kernel = w4a16.MarlinMoe(len(logits), preset.top_k, preset.experts, world.device)
    ids = ids.to(torch.int32)
    aligned = Result(**common, variant="vllm_align")
    aligned.samples = time_calls(world, annotator, lambda _: kernel.align(ids), timing, "align_vllm")
    return [result, aligned]


def main() -> None:
    """Run the benchmark."""
    parser = options.parser("moe_routing", __doc__)
    parser.add_argument("-M", "--tokens", default="1,8,64", metavar="M,...")
    parser.add_argument("--vllm-ops", type=Path, metavar="PATH", help="vLLM's MoE library; also if vllm is installed")
    options.add_timing(parser)
    chosen = parser.parse_args()
    world, annotator = options.begin(chosen)
    before = machine.look_before(world, chosen.on_dirty)
    preset = options.preset(chosen)
    missing = None
    try:
        w4a16.load_vllm_ops(chosen.vllm_ops)
    except CannotRun as error:
        if chosen.vllm_ops is not None:
            raise
        missing = error.message
    with recording(world, annotator):
        results = measure(world, annotator, chosen, preset, vllm=missing is None)
    if missing is not None:
        results.append(Result(ranges.MOE_ROUTING, "vllm", {}, "float32", unavailable=missing))
    publish(world, document(world, "moe_routing", chosen, results, before), chosen)
    world.close()


if __name__ == "__main__":
    run(main)

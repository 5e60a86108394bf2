"""Which experts a token goes to: the routing of a mixture of experts, in torch and by vLLM's operators.

Sigmoid of the logits; a correction bias added for the choice alone; of ``groups`` groups the ``top_groups``
best (by their two best experts); the top k of those; their sigmoids, renormalised and scaled, as weights.
Then routed rows are sorted by expert for the grouped GEMMs.
"""

import argparse
from pathlib import Path

import torch
from k25trace.workloads import machine, options, w4a16
from k25trace.workloads.annotate import recording
from k25trace.workloads.experts import relative_error
from k25trace.workloads.results import Job, Result, check_error, document, failures, publish, take
from k25trace.workloads.shapes import Preset
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


def jobs(world: World, chosen: argparse.Namespace, preset: Preset, *, vllm: bool) -> list[Job]:
    """Return routing and sorting, checked, for each number of tokens."""
    found = []
    generator = torch.Generator(world.device).manual_seed(chosen.seed + world.rank)
    for tokens in chosen.tokens:
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
        found.append(
            Job(
                check_error(result),
                lambda _, a=logits, b=bias: route(a, b, preset),
                f"routing_torch_m{tokens}",
            )
        )
        order, ends = sort_rows(ids, preset.experts)
        counts = torch.bincount(ids.flatten(), minlength=preset.experts)
        wrong = int((ends != counts.cumsum(0)).sum()) + int((ids.flatten()[order].diff() < 0).sum())
        result = Result(**common, variant="torch_sort", error=float(wrong), tolerance=0.0)
        found.append(Job(check_error(result), lambda _, a=ids: sort_rows(a, preset.experts), f"sort_torch_m{tokens}"))
        if vllm:
            found += _vllm(world, preset, logits, bias, common, moved)
    return found


def _vllm(
    world: World,
    preset: Preset,
    logits: torch.Tensor,
    bias: torch.Tensor,
    common: dict,
    moved: int,
) -> list[Job]:
    ops, tokens = torch.ops._moe_C, len(logits)

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
    kernel = w4a16.MarlinMoe(tokens, preset.top_k, preset.experts, world.device)
    ids = ids.to(torch.int32)
    return [
        Job(check_error(result), lambda _: grouped(), f"routing_vllm_m{tokens}"),
        Job(Result(**common, variant="vllm_align"), lambda _: kernel.align(ids), f"align_vllm_m{tokens}"),
    ]


def main() -> int:
    """Run the benchmark."""
    parser = options.parser("moe_routing", __doc__)
    parser.add_argument("-M", "--tokens", type=options.tokens, default="1,8,64", metavar="M,...")
    parser.add_argument("--vllm-ops", type=Path, metavar="PATH", help="vLLM's MoE library; also if vllm is installed")
    options.add_timing(parser)
    chosen = parser.parse_args()
    world, annotator = options.begin(chosen)
    before = machine.look_before(world, chosen.on_dirty)
    preset = options.preset(chosen)
    missing = None
    try:
        w4a16.load_vllm_ops(chosen.vllm_ops)
        if not world.cuda:
            missing = "vLLM's operators need a GPU"
    except CannotRun as error:
        if chosen.vllm_ops is not None:
            raise
        missing = error.message
    ready = jobs(world, chosen, preset, vllm=missing is None)
    with recording(world, annotator):
        take(world, annotator, options.timing(chosen), ready)
    results = [job.result for job in ready]
    if missing is not None:
        results.append(Result(ranges.MOE_ROUTING, "vllm", {}, "float32", unavailable=missing))
    publish(world, document(world, "moe_routing", chosen, results, before), chosen)
    failed = failures(results)
    world.close()
    return failed


if __name__ == "__main__":
    run(main)

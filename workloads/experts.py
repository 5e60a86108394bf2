"""The routed experts of one layer on one rank, in four ways of reading their weights.

The weights are the same numbers in all of them: drawn expert by expert from seeds of their own, so that the
reference can draw any expert again.

- ``marlin``: vLLM's Marlin MoE kernels read INT4 (what serves Kimi-K2.5);
- ``int4pack``: torch's own W4A16 kernel, which is dense: the routed rows' weights are gathered, and each
  row is a call;
- ``cast``: the routed rows' weights are gathered and dequantised by elementwise kernels, then multiplied in
  bf16. It stands in for NVFP4 weights on a path without fused kernels;
- ``bf16``: bf16 weights, as a grouped GEMM where torch has one for this GPU, else gathered and multiplied.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from k25trace.workloads import w4a16
from k25trace.workloads.annotate import Annotator
from k25trace.workloads.shapes import BF16_BYTES, ROUTED, Preset, linears
from k25trace.workloads.w4a16 import MarlinMoe
from torch.nn.functional import silu

from k25trace.ranges import GEMM, MLP

PATHS = ("marlin", "int4pack", "cast", "bf16")
CHUNK_BYTES = 2 << 30
"""Float32 weights that the cast path holds at once."""
_STRIDE = 1_000_003


def expert_bytes(preset: Preset, ranks: int, path: str) -> int:
    """Return the bytes of all routed experts of one layer on one rank."""
    one = linears(preset, ranks)
    if path == "bf16":
        return preset.experts * sum(one[key].weights for key in ROUTED) * BF16_BYTES
    zeros = sum(one[key].weights for key in ROUTED) // w4a16.GROUP_SIZE * BF16_BYTES if path == "int4pack" else 0
    return preset.experts * (sum(one[key].weight_bytes for key in ROUTED) + zeros)


def scratch_bytes(preset: Preset, ranks: int, path: str, tokens: int) -> int:
    """Return about how much the path needs besides, at its largest moment."""
    one, rows = linears(preset, ranks), tokens * preset.top_k
    largest = max(one[key].weights for key in ROUTED)
    if path == "cast":
        # Float32, bf16, and the nibbles.
        return min(rows, max(1, CHUNK_BYTES // (4 * largest))) * largest * 8
    if path == "int4pack":
        return rows * largest
    if path == "bf16":
        return rows * largest * BF16_BYTES
    return rows * (one["experts_w13"].n + preset.hidden) * 4


@dataclass(frozen=True)
class Draw:
    """The seed of one layer's experts on one rank."""

    seed: int
    layer: int
    rank: int

    def expert(
        self, preset: Preset, ranks: int, number: int, device: torch.device
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Yield q and scales of an expert's two weights."""
        generator = torch.Generator(device)
        place = (self.layer * 64 + self.rank) * preset.experts + number
        generator.manual_seed(self.seed * _STRIDE + place + 1)
        one = linears(preset, ranks)
        for key in ROUTED:
            k, n = one[key].k, one[key].n
            yield w4a16.random_q(k, n, generator, device), w4a16.random_scales(k, n, generator, device)


class Experts:
    """The routed experts of one layer on one rank.

    Parameters
    ----------
    path
        One of `PATHS`.
    marlin
        Kernel and buffers of the path ``marlin``; None for others.
    """

    def __init__(
        self,
        preset: Preset,
        ranks: int,
        path: str,
        draw: Draw,
        device: torch.device,
        annotator: Annotator,
        marlin: MarlinMoe | None = None,
    ) -> None:
        self.preset, self.ranks, self.path, self.draw = preset, ranks, path, draw
        self._device, self._a, self._marlin = device, annotator, marlin
        self._width = linears(preset, ranks)["experts_w2"].k
        self._grouped = path == "bf16" and device.type == "cuda" and torch.cuda.get_device_capability() >= (9, 0)
        self._weights: list[torch.Tensor] = []
        self._scales: list[torch.Tensor] = []
        for number in range(preset.experts):
            for index, (q, scales) in enumerate(draw.expert(preset, ranks, number, device)):
                self._put(index, number, *self._layout(q, scales))

    def by(self, marlin: MarlinMoe) -> "Experts":
        """Return the same experts, their weights shared, read by a kernel for another number of tokens."""
        other = copy.copy(self)
        other._marlin = marlin
        return other

    def _layout(self, q: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.path == "marlin":
            return w4a16.pack_marlin(q), w4a16.permute_scales(scales)
        if self.path == "int4pack":
            return w4a16.pack_int4pack(q, scales)
        if self.path == "cast":
            return w4a16.pack_plain(q), scales
        weight = w4a16.dequantized(q, scales, torch.float32).to(torch.bfloat16)
        return (weight.t().contiguous() if self._grouped else weight), scales[:0]

    def _put(self, index: int, number: int, weight: torch.Tensor, scales: torch.Tensor) -> None:
        if number == 0:
            every = self.preset.experts
            self._weights.append(weight.new_empty((every, *weight.shape)))
            self._scales.append(scales.new_empty((every, *scales.shape)))
        self._weights[index][number] = weight
        self._scales[index][number] = scales

    def align(self, ids: torch.Tensor) -> None:
        """Do what the path needs to know of the routing before its GEMMs."""
        if self._marlin is not None:
            self._marlin.align(ids)

    def __call__(self, x: torch.Tensor, route_weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the experts' sum [M, hidden] for x [M, hidden], weights float32 and ids int32 [M, top_k]."""
        tokens, top_k = ids.shape
        with self._a(GEMM, part="experts"):
            if self._grouped:
                return self._as_groups(x, route_weights, ids)
            with self._a(GEMM, part=ROUTED[0]):
                first = self._product(0, x, route_weights, ids)
            with self._a(MLP, part="act"):
                middle = self._gate(first)
            with self._a(GEMM, part=ROUTED[1]):
                second = self._product(1, middle, route_weights, ids)
            with self._a(MLP, part="combine"):
                rows = second.view(tokens, top_k, -1)
                if self._marlin is not None:
                    return rows.sum(1)
                return torch.bmm(route_weights.to(rows.dtype).unsqueeze(1), rows).squeeze(1)

    def _gate(self, first: torch.Tensor) -> torch.Tensor:
        return silu(first[:, : self._width]) * first[:, self._width :]

    def _product(self, index: int, x: torch.Tensor, route_weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        weight, scales = self._weights[index], self._scales[index]
        if self._marlin is not None:
            return self._marlin.gemm(x, weight, scales, route_weights, second=index == 1)
        experts = ids.flatten()
        # The first product takes a token's row for each of its experts, the second the rows of the first.
        rows = x.repeat_interleave(ids.shape[1], dim=0) if index == 0 else x
        if self.path == "int4pack":
            weights, both = weight.index_select(0, experts), scales.index_select(0, experts)
            return torch.cat([w4a16.int4pack_mm(rows[r : r + 1], weights[r], both[r]) for r in range(len(rows))])
        if self.path == "bf16":
            return torch.bmm(rows.unsqueeze(1), weight.index_select(0, experts)).squeeze(1)
        per_row = 4 * 2 * weight.shape[1] * weight.shape[2]
        parts = []
        for some, row in zip(*(t.split(max(1, CHUNK_BYTES // per_row)) for t in (experts, rows)), strict=True):
            wide = w4a16.dequantize_elementwise(weight.index_select(0, some), scales.index_select(0, some))
            parts.append(torch.bmm(row.unsqueeze(1), wide).squeeze(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _as_groups(self, x: torch.Tensor, route_weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        tokens, top_k = ids.shape
        with self._a(MLP, part="sort"):
            experts, order = ids.flatten().sort(stable=True)
            every = torch.arange(1, self.preset.experts + 1, device=x.device, dtype=experts.dtype)
            ends = torch.searchsorted(experts, every, out_int32=True)
            rows = x.index_select(0, order // top_k)
        with self._a(GEMM, part=ROUTED[0]):
            first = torch._grouped_mm(rows, self._weights[0].transpose(-2, -1), offs=ends)
        with self._a(MLP, part="act"):
            middle = self._gate(first)
        with self._a(GEMM, part=ROUTED[1]):
            second = torch._grouped_mm(middle, self._weights[1].transpose(-2, -1), offs=ends)
        with self._a(MLP, part="combine"):
            back = torch.empty_like(second).index_copy_(0, order, second).view(tokens, top_k, -1)
            return torch.bmm(route_weights.to(back.dtype).unsqueeze(1), back).squeeze(1)

    def reference(self, x: torch.Tensor, route_weights: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Return the same in float64, expert by expert, from the weights' definition; x float64."""
        out = torch.zeros(x.shape[0], self.preset.hidden, dtype=torch.float64, device=x.device)
        for number in ids.unique().tolist():
            tokens, place = (ids == number).nonzero(as_tuple=True)
            (q13, s13), (q2, s2) = self.draw.expert(self.preset, self.ranks, number, self._device)
            first = x[tokens] @ w4a16.dequantized(q13, s13)
            second = self._gate(first) @ w4a16.dequantized(q2, s2)
            out.index_add_(0, tokens, second * route_weights[tokens, place].to(torch.float64).unsqueeze(1))
        return out


def relative_error(out: torch.Tensor, reference: torch.Tensor) -> float:
    """Return ‖out - reference‖ / ‖reference‖; infinite if out holds what is no number."""
    if not bool(torch.isfinite(out).all()):
        return float("inf")
    wide = reference.to(torch.float64)
    return float((out.to(torch.float64) - wide).norm() / wide.norm().clamp_min(1e-300))

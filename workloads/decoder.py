"""The model of a decode step: what it needs of memory, its layers, and their references."""

import argparse
import time
from collections.abc import Callable

import torch
from k25trace.workloads import w4a16
from k25trace.workloads.annotate import Annotator
from k25trace.workloads.experts import Draw, Experts, expert_bytes, relative_error, scratch_bytes
from k25trace.workloads.mla_attention import CORES, Attention, normal
from k25trace.workloads.moe_routing import route, routing_error
from k25trace.workloads.shapes import ATTENTION, Preset, linears, mla_core
from k25trace.workloads.timing import elapsed_ns, moment
from k25trace.workloads.world import World, all_gather_into
from torch.nn.functional import rms_norm, silu

from k25trace.ranges import (
    ALLGATHER,
    ALLREDUCE,
    EMBEDDING,
    GEMM,
    LAYER,
    MLP,
    MOE,
    MOE_ROUTING,
    NORM,
    SAMPLING,
    SKEW,
)

SPARE_BYTES = 3 << 30
"""GPU memory left to CUDA, NCCL, graphs and activations."""
CPU_SPARE_BYTES = 64 << 20
HEAD_CHUNK = 8192


def layer_bytes(preset: Preset, ranks: int, path: str, requests: int, context: int) -> dict[str, int]:
    """Return the bytes on one rank of a dense layer, of a MoE layer, and of what there is once."""
    one = linears(preset, ranks)
    cache = mla_core(preset, ranks, requests, context).cache_bytes
    attention = sum(one[key].weight_bytes for key in ATTENTION) + cache
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
        self._delay = delay(world, chosen)

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

        Every layer of a kind runs the same code, so the first of each is compared: what attention and MLP add
        to the residual stream, too, each alone. Over a long context attention adds so little that the stream
        would be nearly right without it.
        """
        found: dict[str, float] = {}
        x = self.embed()
        for index in range(min(self.layers, self.preset.dense_layers + 1)):
            mlp = self._mlps[index]
            kind = "moe" if isinstance(mlp, Moe) else "dense"
            out = self.layer(index, x)
            if f"{kind}_layer" not in found:
                wide = x.to(torch.float64)
                attended = self._sum(self._attention[index].reference(self._norm(wide, "attn")))
                middle = wide + attended
                # The MLP is given what it was given in the program: bf16, and the same routing.
                part = self._sum(self._attention[index](self._norm(x, "attn")))
                found[f"{kind}_attention_alone"] = relative_error(part, attended)
                given = x + part
                normed = self._norm(given, "mlp")
                if isinstance(mlp, Moe):
                    found["routing"] = mlp.routing_error(normed)
                    rest = mlp.reference(normed)
                else:
                    rest = mlp.reference(normed.to(torch.float64))
                rest = self._sum(rest)
                found[f"{kind}_mlp_alone"] = relative_error(self._sum(mlp(normed)), rest)
                found[f"{kind}_layer"] = relative_error(out, middle + rest)
                found[f"{kind}_attention"] = relative_error(given, middle)
            x = out
        wide = self._norm(x.to(torch.float64), "final")
        exact = torch.cat([wide @ chunk.to(torch.float64) for chunk in self._head.split(HEAD_CHUNK, dim=1)], dim=1)
        found["logits"] = relative_error(self.logits(x)[self.world.rank], exact)
        return found

    def _sum(self, part: torch.Tensor) -> torch.Tensor:
        return self.world.all_reduce(part)


def delay(world: World, chosen: argparse.Namespace) -> Callable[[], None] | None:
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

"""Multi-head latent attention: the decode step of one layer in absorbed form, and the prefill form.

Absorbed: the query is brought into the latent space (``w_uk``), attends to the cache there as to a single
head of width ``kv_lora + qk_rope``, and is brought back (``w_uv``). All heads and new tokens of a request
are the rows of one query, so the cache is read once and never repeated for heads.
"""

import argparse
from collections.abc import Callable

import torch
from k25trace.workloads import machine, options
from k25trace.workloads.annotate import Annotator, recording
from k25trace.workloads.experts import relative_error
from k25trace.workloads.results import Job, Result, check_error, document, failures, guarded, publish, take
from k25trace.workloads.shapes import Preset, linears, mla_core
from k25trace.workloads.timing import copies_for, measure_ceilings
from k25trace.workloads.world import World, run
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import rms_norm, scaled_dot_product_attention

from k25trace import ranges
from k25trace.ranges import GEMM, MLA, MLA_ATTENTION, NORM

TOLERANCE = 0.03
"""Of bf16 chains of several products against float64."""

Core = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, float, torch.Tensor | None], torch.Tensor]


def core_matmul(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """Attend by two matrix products and a softmax between them; its sums are in float32 inside the kernel."""
    scores = (query * scale) @ key.transpose(-2, -1)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ value


def core_sdpa(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, mask: torch.Tensor | None
) -> torch.Tensor:
    """Attend by torch's `scaled_dot_product_attention`, with the backend that torch chooses."""
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


CORES: dict[str, Core] = {"matmul": core_matmul, "sdpa": core_sdpa}


def normal(rows: int, columns: int, generator: torch.Generator, batch: int | None = None) -> torch.Tensor:
    """Return bf16 weights that keep the variance of what they multiply."""
    size = (rows, columns) if batch is None else (batch, rows, columns)
    return torch.randn(size, device=generator.device, generator=generator, dtype=torch.bfloat16).mul_(rows**-0.5)


def rotate(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Return the rotary embedding of x [T, ..., rope] for cosines and sines [T, rope/2] of its positions."""
    while cosine.dim() < x.dim():
        cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
    even, odd = x[..., ::2], x[..., 1::2]
    return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], dim=-1).flatten(-2)


class Attention:
    """MLA of one layer on one rank, for a fixed batch at a fixed position: the last of its context.

    Parameters
    ----------
    requests, queries
        The batch, and the new tokens of each request (more than one in speculative verification).
    context
        Tokens in the cache, the new ones included.
    """

    def __init__(
        self,
        preset: Preset,
        ranks: int,
        requests: int,
        context: int,
        queries: int,
        shared: torch.Generator,
        own: torch.Generator,
        annotator: Annotator,
        core: Core = core_matmul,
    ) -> None:
        self.preset, self.requests, self.context, self.queries = preset, requests, context, queries
        self._a, self._core = annotator, core
        p, one, device = preset, linears(preset, ranks), own.device
        self.heads = preset.heads // ranks
        # What every rank holds whole is drawn from the shared seed, the rest from the rank's own.
        self.w_qkv_a = normal(one["qkv_a"].k, one["qkv_a"].n, shared)
        self.w_q_b = normal(one["q_b"].k, one["q_b"].n, own)
        self.w_uk = normal(one["w_uk"].k, one["w_uk"].n, own, batch=self.heads)
        self.w_uv = normal(one["w_uv"].k, one["w_uv"].n, own, batch=self.heads)
        self.w_o = normal(one["o_proj"].k, one["o_proj"].n, own).mul_(ranks**-0.5)
        self.cache = torch.randn((requests, context, p.latent), device=device, generator=shared, dtype=torch.bfloat16)
        positions = torch.arange(context - queries, context, device=device, dtype=torch.float64).repeat(requests)
        frequencies = p.rope_theta ** (-torch.arange(0, p.qk_rope, 2, device=device, dtype=torch.float64) / p.qk_rope)
        self._angles = positions.unsqueeze(1) * frequencies
        self._cosine, self._sine = (f(self._angles).to(torch.bfloat16) for f in (torch.cos, torch.sin))
        self._scale = (p.qk_nope + p.qk_rope) ** -0.5
        self._mask = None
        if queries > 1:
            last = torch.arange(context - queries, context, device=device).repeat_interleave(self.heads)
            self._mask = (torch.arange(context, device=device) <= last.unsqueeze(1))[None, None]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of the output [T, hidden] for normed x [T, hidden]; writes the cache."""
        p, tokens = self.preset, len(x)
        with self._a(MLA_ATTENTION):
            with self._a(GEMM, part="qkv_a"):
                a = x @ self.w_qkv_a
            with self._a(NORM, part="qkv_a"):
                q_a, latent, key_rope = a.split([p.q_lora, p.kv_lora, p.qk_rope], dim=-1)
                q_a = rms_norm(q_a, (p.q_lora,), eps=p.norm_epsilon)
                latent = rms_norm(latent, (p.kv_lora,), eps=p.norm_epsilon)
            with self._a(GEMM, part="q_b"):
                query = (q_a @ self.w_q_b).view(tokens, self.heads, -1)
            with self._a(MLA, part="rope"):
                plain, rope = query.split([p.qk_nope, p.qk_rope], dim=-1)
                rope = rotate(rope, self._cosine, self._sine)
                key_rope = rotate(key_rope, self._cosine, self._sine)
            with self._a(MLA, part="cache"):
                new = torch.cat([latent, key_rope], dim=-1).view(self.requests, self.queries, -1)
                self.cache[:, -self.queries :].copy_(new)
            with self._a(GEMM, part="w_uk"):
                absorbed = torch.bmm(plain.transpose(0, 1), self.w_uk).transpose(0, 1)
            with self._a(MLA, part="core"):
                out = self.core(absorbed, rope)
            with self._a(GEMM, part="w_uv"):
                out = torch.bmm(out.transpose(0, 1), self.w_uv).transpose(0, 1)
            with self._a(GEMM, part="o_proj"):
                return out.reshape(tokens, -1) @ self.w_o

    def core(self, absorbed: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
        """Return attention over the cache, [T, heads, kv_lora], for the query's two parts [T, heads, ...]."""
        query = torch.cat([absorbed, rope], dim=-1).view(self.requests, 1, -1, self.preset.latent)
        key = self.cache.unsqueeze(1)
        out = self._core(query, key, key[..., : self.preset.kv_lora], self._scale, self._mask)
        return out.reshape(len(absorbed), self.heads, self.preset.kv_lora)

    def reference(self, x: torch.Tensor) -> torch.Tensor:
        """Return the same in float64 by the textbook: keys and values of each head, no absorption; x float64.

        Reads the cache as it is after a call.
        """
        p, tokens, double = self.preset, len(x), torch.float64
        a = x @ self.w_qkv_a.to(double)
        q_a = rms_norm(a[:, : p.q_lora], (p.q_lora,), eps=p.norm_epsilon)
        latent = rms_norm(a[:, p.q_lora : p.q_lora + p.kv_lora], (p.kv_lora,), eps=p.norm_epsilon)
        cosine, sine = self._angles.cos(), self._angles.sin()
        key_rope = rotate(a[:, p.q_lora + p.kv_lora :], cosine, sine)
        cache = self.cache.to(double)
        cache[:, -self.queries :] = torch.cat([latent, key_rope], -1).view(self.requests, self.queries, -1)
        query = (q_a @ self.w_q_b.to(double)).view(tokens, self.heads, -1)
        query = torch.cat([query[..., : p.qk_nope], rotate(query[..., p.qk_nope :], cosine, sine)], dim=-1)
        out = x.new_empty(tokens, self.heads, p.v_head)
        for request in range(self.requests):
            rows = slice(request * self.queries, (request + 1) * self.queries)
            one = cache[request]
            for head in range(self.heads):
                key = torch.cat([one[:, : p.kv_lora] @ self.w_uk[head].to(double).t(), one[:, p.kv_lora :]], -1)
                scores = query[rows, head] @ key.t() * self._scale
                for late in range(self.queries):
                    scores[late, self.context - self.queries + late + 1 :] = float("-inf")
                out[rows, head] = scores.softmax(-1) @ (one[:, : p.kv_lora] @ self.w_uv[head].to(double))
        return out.reshape(tokens, -1) @ self.w_o.to(double)


def _decode(world: World, annotator: Annotator, chosen: argparse.Namespace, preset: Preset, context: int) -> list[Job]:
    jobs: list[Job] = []
    for requests in chosen.tokens:
        core = mla_core(preset, chosen.tp, requests, context)
        shape = {"M": requests, "heads": preset.heads // chosen.tp, "context": context}
        copies = copies_for(world, core.cache_bytes)
        generator = torch.Generator(world.device)
        layers = [
            Attention(
                preset,
                chosen.tp,
                requests,
                context,
                1,
                generator.manual_seed(chosen.seed + copy),
                generator,
                annotator,
            )
            for copy in range(copies)
        ]
        x = torch.randn(requests, preset.hidden, device=world.device, generator=generator, dtype=torch.bfloat16)
        sizes = (preset.kv_lora, preset.qk_rope)
        parts = [
            torch.randn((requests, layers[0].heads, n), device=world.device, generator=generator, dtype=torch.bfloat16)
            for n in sizes
        ]
        moved = core.cache_bytes + sum(2 * part.numel() for part in parts) + 2 * parts[0].numel()
        for variant, attend in _variants(world):
            result = Result(ranges.name(MLA, part="core"), variant, shape, "bfloat16", bytes=moved, flops=core.flops)

            def ready(layers: list[Attention] = layers, attend: Core = attend) -> None:
                for layer in layers:
                    layer._core = attend

            def check(result: Result, layers: list[Attention] = layers, x: torch.Tensor = x) -> None:
                result.error = relative_error(layers[0](x), layers[0].reference(x.to(torch.float64)))
                result.tolerance = TOLERANCE
                check_error(result)

            ready()
            guarded(result, check)
            jobs.append(
                Job(
                    result,
                    lambda i, layers=layers, parts=parts: layers[i % len(layers)].core(*parts),
                    f"mla_{variant}_m{requests}_c{context}",
                    ready,
                )
            )
    return jobs


def _variants(world: World) -> list[tuple[str, Core]]:
    def forced(backend: SDPBackend) -> Core:
        def attend(*operands: object) -> torch.Tensor:
            with sdpa_kernel([backend]):
                return core_sdpa(*operands)  # type: ignore[arg-type]

        return attend

    backends = [SDPBackend.MATH]
    if world.cuda:
        backends += [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]
    return [
        ("matmul", core_matmul),
        *((f"sdpa_{backend.name.lower()}", forced(backend)) for backend in backends),
    ]


def _prefill(world: World, chosen: argparse.Namespace, preset: Preset, context: int) -> Job:
    """Return causal attention of a whole prompt, keys and values of each head written out."""
    heads, wide = preset.heads // chosen.tp, preset.qk_nope + preset.qk_rope
    generator = torch.Generator(world.device).manual_seed(chosen.seed)
    query, key, value = (
        torch.randn((1, heads, context, n), device=world.device, generator=generator, dtype=torch.bfloat16)
        for n in (wide, wide, preset.v_head)
    )

    def attend() -> torch.Tensor:
        # Fused kernels want one width: values are padded to the keys', as serving engines do.
        padded = torch.nn.functional.pad(value, (0, wide - preset.v_head)) if wide > preset.v_head else value
        return scaled_dot_product_attention(query, key, padded, is_causal=True)[..., : preset.v_head]

    result = Result(
        ranges.name(MLA, part="prefill"),
        "sdpa",
        {"context": context, "heads": heads},
        "bfloat16",
        bytes=2 * (2 * query.numel() + 2 * value.numel()),
        flops=heads * context * (context + 1) * (wide + preset.v_head),
    )
    out, worst = attend(), 0.0
    for head in range(min(heads, 2)):
        scores = (query[0, head].double() @ key[0, head].double().t()) * wide**-0.5
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), float("-inf"))
        worst = max(worst, relative_error(out[0, head], scores.softmax(-1) @ value[0, head].double()))
    result.error, result.tolerance = worst, TOLERANCE
    return Job(check_error(result), lambda _: attend(), f"mla_prefill_c{context}")


def main() -> int:
    """Run the benchmark."""
    parser = options.parser("mla_attention", __doc__)
    parser.add_argument(
        "-M", "--tokens", type=options.tokens, default="1,8,64", metavar="M,...", help="requests of a batch"
    )
    parser.add_argument("--context", type=options.tokens, default="4096", metavar="C,...", help="tokens in the cache")
    parser.add_argument("--tp", type=options.positive, help="ranks that share the heads (default: those of this run)")
    parser.add_argument("--prefill", action="store_true", help="the prefill form, too")
    options.add_timing(parser)
    chosen = parser.parse_args()
    world, annotator = options.begin(chosen)
    chosen.tp = chosen.tp or world.size
    before = machine.look_before(world, chosen.on_dirty)
    preset = options.preset(chosen)
    linears(preset, chosen.tp)
    ceilings = measure_ceilings(world, annotator, options.timing(chosen))
    jobs: list[Job] = []
    for context in chosen.context:
        jobs += _decode(world, annotator, chosen, preset, context)
        if chosen.prefill:
            jobs.append(_prefill(world, chosen, preset, context))
    with recording(world, annotator):
        take(world, annotator, options.timing(chosen), jobs)
    results = [*(job.result for job in jobs), _flash_mla()]
    publish(world, document(world, "mla_attention", chosen, results, before, ceilings), chosen)
    failed = failures(results)
    world.close()
    return failed


def _flash_mla() -> Result:
    """Say that FlashMLA was not measured: its operators' tile scheduler needs its own Python package."""
    return Result(
        ranges.name(MLA, part="core"), "flash_mla", {}, "bfloat16", unavailable="not measured by this version"
    )


if __name__ == "__main__":
    run(main)

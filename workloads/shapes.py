"""The models' dimensions, and what follows from them: shapes, bytes and FLOPs of one decode step on one rank.

Plain arithmetic; torch is not needed. The layout is vLLM's: attention split by heads, MLPs by their
intermediate width, ``fused_qkv_a`` and router replicated, embedding and ``lm_head`` split by vocabulary,
experts not spread over ranks (each rank holds a slice of every expert).
"""

from dataclasses import dataclass

from k25trace.errors import UsageError
from k25trace.ranges import ALLGATHER, ALLREDUCE, GEMM, name

BF16_BYTES = 2
GROUP_SIZE = 32
"""Weights of W4A16 that share one scale."""


@dataclass(frozen=True)
class Preset:
    """The dimensions of one model.

    Parameters
    ----------
    layers, dense_layers
        All decoder layers, and how many of them, from the first, have a dense MLP instead of experts.
    hidden, heads, q_lora, kv_lora, qk_nope, qk_rope, v_head
        Attention (MLA): widths, ranks of the low-rank projections, and widths of a head.
    experts, top_k, shared_experts, expert_width, groups, top_groups, routed_scale
        The mixture of experts; ``groups`` and ``top_groups`` restrict routing to some groups of experts.
    dense_width, vocabulary, norm_epsilon, rope_theta
        The dense layers' MLP, the vocabulary, RMSNorm, and the base of the rotary embedding (not stretched by YaRN).
    source
        Where the values stand.
    """

    name: str
    layers: int
    dense_layers: int
    hidden: int
    heads: int
    q_lora: int
    kv_lora: int
    qk_nope: int
    qk_rope: int
    v_head: int
    experts: int
    top_k: int
    shared_experts: int
    expert_width: int
    groups: int
    top_groups: int
    routed_scale: float
    dense_width: int
    vocabulary: int
    norm_epsilon: float
    rope_theta: float
    source: str

    @property
    def moe_layers(self) -> int:
        """Layers with experts."""
        return self.layers - self.dense_layers

    @property
    def latent(self) -> int:
        """Width of one token in the KV cache: the latent and the rotary part, one for all heads."""
        return self.kv_lora + self.qk_rope

    @property
    def qkv_a(self) -> int:
        """Outputs of the fused first projection of attention."""
        return self.q_lora + self.latent


KIMI_K25 = Preset(
    name="kimi-k2.5",
    layers=61,
    dense_layers=1,
    hidden=7168,
    heads=64,
    q_lora=1536,
    kv_lora=512,
    qk_nope=128,
    qk_rope=64,
    v_head=128,
    experts=384,
    top_k=8,
    shared_experts=1,
    expert_width=2048,
    groups=1,
    top_groups=1,
    routed_scale=2.827,
    dense_width=18432,
    vocabulary=163840,
    norm_epsilon=1e-5,
    rope_theta=50_000.0,
    source="KimiK2Provider of NVIDIA Megatron-Bridge; text_config of Kimi-K2.6 as checked by pegainfer",
)
DEEPSEEK_V3 = Preset(
    name="deepseek-v3",
    layers=61,
    dense_layers=3,
    hidden=7168,
    heads=128,
    q_lora=1536,
    kv_lora=512,
    qk_nope=128,
    qk_rope=64,
    v_head=128,
    experts=256,
    top_k=8,
    shared_experts=1,
    expert_width=2048,
    groups=8,
    top_groups=4,
    routed_scale=2.5,
    dense_width=18432,
    vocabulary=129280,
    norm_epsilon=1e-6,
    rope_theta=10_000.0,
    source="config.json of deepseek-ai/DeepSeek-V3; deepseek_v3 config of vLLM 0.11",
)
GLM_5 = Preset(
    name="glm-5",
    layers=78,
    dense_layers=3,
    hidden=6144,
    heads=64,
    q_lora=2048,
    kv_lora=512,
    qk_nope=192,
    qk_rope=64,
    v_head=256,
    experts=256,
    top_k=8,
    shared_experts=1,
    expert_width=2048,
    groups=1,
    top_groups=1,
    routed_scale=2.5,
    dense_width=12288,
    vocabulary=154880,
    norm_epsilon=1e-5,
    rope_theta=1_000_000.0,
    source="config.json of unsloth/GLM-5 (sparse-attention indexer left out); glm_moe_dsa of NeMo AutoModel",
)
TINY = Preset(
    name="tiny",
    layers=3,
    dense_layers=1,
    hidden=128,
    heads=8,
    q_lora=64,
    kv_lora=64,
    qk_nope=16,
    qk_rope=16,
    v_head=16,
    experts=8,
    top_k=2,
    shared_experts=1,
    expert_width=256,
    groups=1,
    top_groups=1,
    routed_scale=2.0,
    dense_width=256,
    vocabulary=512,
    norm_epsilon=1e-5,
    rope_theta=10_000.0,
    source="no model: small enough for a CPU, divisible by 8 ranks",
)
PRESETS = {preset.name: preset for preset in (KIMI_K25, DEEPSEEK_V3, GLM_5, TINY)}


def divided(preset: Preset, ranks: int) -> None:
    """Refuse a number of ranks over which the model cannot be split."""
    for what, width, unit in (
        ("heads", preset.heads, 1),
        ("expert width", preset.expert_width, GROUP_SIZE),
        ("dense width", preset.dense_width, 1),
        ("vocabulary", preset.vocabulary, 1),
    ):
        if ranks < 1 or width % (ranks * unit):
            raise UsageError(
                f"{preset.name} cannot be split over {ranks} ranks: {what} {width}",
                f"each rank needs a whole number of {what}" + (f" in units of {unit}" if unit > 1 else ""),
            )


@dataclass(frozen=True)
class Linear:
    """One matrix product of a step on one rank: ``batch`` weights of ``k`` x ``n``.

    ``calls`` counts its layers. ``w4`` marks the weights that are INT4 with a bf16 scale per 32 (0.5625 B a
    weight); ``routed`` the experts, of which a step reads only those that tokens are sent to.
    """

    name: str
    calls: int
    k: int
    n: int
    batch: int = 1
    w4: bool = False
    routed: bool = False

    @property
    def range(self) -> str:
        """The name of the NVTX range around it."""
        return name(GEMM, part=self.name)

    @property
    def weights(self) -> int:
        """Weights of one call (of one expert, if routed)."""
        return self.batch * self.k * self.n

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights of one call: 2 B each, or ½ B and a 2 B scale for each 32."""
        if self.w4:
            return self.weights // 2 + self.weights // GROUP_SIZE * BF16_BYTES
        return self.weights * BF16_BYTES

    def flops(self, rows: int) -> int:
        """2 · rows · batch · k · n."""
        return 2 * rows * self.weights

    def activation_bytes(self, rows: int) -> int:
        """Bytes of bf16 inputs and outputs: 2 · rows · batch · (k + n)."""
        return BF16_BYTES * rows * self.batch * (self.k + self.n)


def linears(preset: Preset, ranks: int) -> dict[str, Linear]:
    """Return every linear of a decode step on one of ``ranks`` ranks, by name, in the order of the step."""
    divided(preset, ranks)
    p, heads, width = preset, preset.heads // ranks, preset.expert_width // ranks
    shared, dense, vocabulary = (
        width * p.shared_experts,
        p.dense_width // ranks,
        preset.vocabulary // ranks,
    )
    rows = [
        Linear("qkv_a", p.layers, p.hidden, p.qkv_a),
        Linear("q_b", p.layers, p.q_lora, heads * (p.qk_nope + p.qk_rope)),
        Linear("w_uk", p.layers, p.qk_nope, p.kv_lora, batch=heads),
        Linear("w_uv", p.layers, p.kv_lora, p.v_head, batch=heads),
        Linear("o_proj", p.layers, heads * p.v_head, p.hidden),
        Linear("router", p.moe_layers, p.hidden, p.experts),
        Linear("experts_w13", p.moe_layers, p.hidden, 2 * width, w4=True, routed=True),
        Linear("experts_w2", p.moe_layers, width, p.hidden, w4=True, routed=True),
        Linear("shared_gate_up", p.moe_layers, p.hidden, 2 * shared),
        Linear("shared_down", p.moe_layers, shared, p.hidden),
        Linear("dense_gate_up", p.dense_layers, p.hidden, 2 * dense),
        Linear("dense_down", p.dense_layers, dense, p.hidden),
        Linear("lm_head", 1, p.hidden, vocabulary),
    ]
    return {linear.name: linear for linear in rows}


ATTENTION = ("qkv_a", "q_b", "w_uk", "w_uv", "o_proj")
ROUTED = ("experts_w13", "experts_w2")


def experts_hit(preset: Preset, tokens: int) -> float:
    """Return how many experts of a layer M tokens are sent to if routing is uniform.

    E(1 - (1 - k/E)^M). Real routing is skewed, and hits fewer.
    """
    return preset.experts * (1 - (1 - preset.top_k / preset.experts) ** tokens)


def weight_bytes(preset: Preset, ranks: int, tokens: int) -> dict[str, float]:
    """Return the bytes of weights that a step reads on one rank, by linear; experts as `experts_hit` says."""
    hit = experts_hit(preset, tokens)
    return {
        key: one.calls * one.weight_bytes * (hit if one.routed else 1) for key, one in linears(preset, ranks).items()
    }


@dataclass(frozen=True)
class Core:
    """Absorbed MLA decode attention of one layer on one rank, without its linears."""

    flops: int
    cache_bytes: int


def mla_core(preset: Preset, ranks: int, requests: int, context: int, queries: int = 1) -> Core:
    """Return FLOPs and KV bytes of one layer's attention over a context.

    Per request and query 2 · heads/N · (latent + kv_lora) · context FLOP, and 2 · latent · context B of
    cache, which every rank reads whole: the latent is one head.
    """
    divided(preset, ranks)
    heads = preset.heads // ranks
    return Core(
        flops=2 * heads * (preset.latent + preset.kv_lora) * context * requests * queries,
        cache_bytes=BF16_BYTES * preset.latent * context * requests,
    )


@dataclass(frozen=True)
class Collective:
    """One kind of collective of a step. ``payload_bytes`` is a call's S on one rank (a gather's part)."""

    range: str
    operation: str
    calls: int
    payload_bytes: int


def collectives(preset: Preset, ranks: int, tokens: int) -> list[Collective]:
    """Return the collectives of a decode step of so many tokens: 2 all-reduces a layer, 1 more, a gather."""
    divided(preset, ranks)
    hidden = tokens * preset.hidden * BF16_BYTES
    return [
        Collective(name(ALLREDUCE, part="embedding"), "all_reduce", 1, hidden),
        Collective(name(ALLREDUCE, part="attn"), "all_reduce", preset.layers, hidden),
        Collective(name(ALLREDUCE, part="mlp"), "all_reduce", preset.layers, hidden),
        Collective(
            name(ALLGATHER, part="logits"),
            "all_gather",
            1,
            tokens * (preset.vocabulary // ranks) * BF16_BYTES,
        ),
    ]


def parameters(preset: Preset) -> dict[str, int]:
    """Return all parameters by kind, and ``total`` and ``active`` (a token's), norms and biases left out."""
    one = linears(preset, 1)
    every = {key: linear.calls * linear.weights for key, linear in one.items()}
    routed = sum(every[key] for key in ROUTED)
    counts = {
        "routed": routed * preset.experts,
        "shared": every["shared_gate_up"] + every["shared_down"],
        "attention": sum(every[key] for key in ATTENTION),
        "dense": every["dense_gate_up"] + every["dense_down"],
        "embedding_and_head": 2 * every["lm_head"],
        "router": every["router"],
    }
    total = sum(counts.values())
    return {**counts, "total": total, "active": total - counts["routed"] + routed * preset.top_k}


def bus_factor(operation: str, ranks: int) -> float:
    """Return busbw / algbw as nccl-tests define it; S of gathers and scatters is the whole array there."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if operation in {"all_gather", "reduce_scatter", "all_to_all"}:
        return (ranks - 1) / ranks
    raise UsageError(f"no bus bandwidth is defined for {operation}")

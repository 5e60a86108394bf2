"""Weights of four bits: their layouts, and the kernels that read them.

A weight of K x N is INT4 with a bf16 scale for each 32 rows of a column (compressed-tensors'
``pack-quantized``, symmetric): w = (q - 8) · scale with q in 0..15, which vLLM calls ``uint4b8``. Three
layouts of the same numbers:

- *plain*: int8 [K/2, N]; row r holds q - 8 of row r in its low nibble and of row r + K/2 in its high one;
- *int4pack*: what ``aten::_weight_int4pack_mm`` reads;
- *marlin*: int32 [K/16, 2N] in tiles of 16 x 16, as vLLM's Marlin kernels read it, scales permuted to
  match. The order is that of ``marlin_utils_test.py`` in vLLM.
"""

import contextlib
import functools
import importlib
from pathlib import Path

import torch
from k25trace.workloads.shapes import GROUP_SIZE
from k25trace.workloads.world import CannotRun

UINT4B8 = 1125899907892224
"""vLLM's id of the type."""
ZERO = 8


def random_q(k: int, n: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """Return q of a random weight, uint8 [K, N] in 0..15."""
    return torch.randint(0, 16, (k, n), dtype=torch.uint8, device=device, generator=generator)


def random_scales(k: int, n: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
    """Return bf16 scales [K/32, N] that keep the variance of an activation that passes through."""
    # q - 8 is uniform over -8..7: its standard deviation is about 4.6.
    spread = torch.rand((k // GROUP_SIZE, n), device=device, generator=generator)
    return ((0.5 + spread) / (4.6 * k**0.5)).to(torch.bfloat16)


def dequantized(q: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return the weight [K, N] that q and scales stand for: what every path is checked against."""
    return (q.to(dtype) - ZERO) * scales.to(dtype).repeat_interleave(GROUP_SIZE, dim=0)


# ---- plain


def pack_plain(q: torch.Tensor) -> torch.Tensor:
    """Return the plain layout of q [..., K, N]."""
    # With its top bit turned over, a nibble is q - 8 in two's complement.
    low, high = (q ^ ZERO).chunk(2, dim=-2)
    return (low | (high << 4)).view(torch.int8)


def dequantize_elementwise(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return the bf16 weights [..., K, N] of plain ones, by elementwise kernels alone.

    The unfused path: nibbles to float32 (a cast), times the scale in float32, to bf16 (a cast). Each weight
    is written and read several times before a GEMM sees it.
    """
    *batch, half, n = packed.shape
    wide = torch.empty((*batch, 2 * half, n), dtype=torch.float32, device=packed.device)
    # Shifts of signed bytes keep the sign.
    wide[..., :half, :].copy_((packed << 4) >> 4)
    wide[..., half:, :].copy_(packed >> 4)
    wide.unflatten(-2, (-1, GROUP_SIZE)).mul_(scales.to(torch.float32).unsqueeze(-2))
    return wide.to(torch.bfloat16)


# ---- int4pack


def _inner_k_tiles(k: int) -> int:
    """Return the widest tiling of int4pack's layout that K allows."""
    return next(tiles for tiles in (8, 4, 2) if k % (16 * tiles) == 0)


def pack_int4pack(q: torch.Tensor, scales: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weight and the scales-and-zeros of ``aten::_weight_int4pack_mm`` for q [K, N]."""
    by_column = q.t().contiguous()
    tiles = _inner_k_tiles(q.shape[0])
    if q.is_cuda:
        # Even columns in the high nibble.
        pairs = (by_column[:, ::2] << 4) | by_column[:, 1::2]
        weight = torch.ops.aten._convert_weight_to_int4pack(pairs.contiguous(), tiles)
    else:
        weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(by_column.to(torch.int32), tiles)
    return weight, torch.stack([scales, torch.zeros_like(scales)], dim=-1).contiguous()


def int4pack_mm(x: torch.Tensor, weight: torch.Tensor, scales_and_zeros: torch.Tensor) -> torch.Tensor:
    """Return x [M, K] times an int4pack weight."""
    if x.is_cuda:
        return torch.ops.aten._weight_int4pack_mm(x, weight, GROUP_SIZE, scales_and_zeros)
    return torch.ops.aten._weight_int4pack_mm_for_cpu(x, weight, GROUP_SIZE, scales_and_zeros)


# ---- marlin


@functools.cache
def _tile_order() -> torch.Tensor:
    """Where each of the 1,024 nibbles of four tiles comes from (16 x 64 of a weight)."""
    order: list[int] = []
    for lane in range(32):
        column = lane // 4
        rows = [2 * (lane % 4), 2 * (lane % 4) + 1, 2 * (lane % 4 + 4), 2 * (lane % 4 + 4) + 1]
        one = [16 * row + column + 8 * block for block in (0, 1) for row in rows]
        for tile in range(4):
            order.extend(place + 256 * tile for place in one)
    interleaved = torch.tensor(order).reshape(-1, 8)[:, [0, 2, 4, 6, 1, 3, 5, 7]]
    return interleaved.reshape(-1)


@functools.cache
def _scale_order() -> torch.Tensor:
    return torch.tensor([row + 8 * column for row in range(8) for column in range(8)])


def pack_marlin(q: torch.Tensor) -> torch.Tensor:
    """Return Marlin's layout, int32 [K/16, 2N], of q [K, N]; K must be a multiple of 16, N of 64."""
    k, n = q.shape
    tiles = q.reshape(k // 16, 16, n // 16, 16).permute(0, 2, 1, 3).reshape(-1, 1024)
    nibbles = tiles[:, _tile_order().to(q.device)].reshape(k // 16, -1, 8).to(torch.int64)
    shifts = torch.arange(0, 32, 4, device=q.device)
    words = (nibbles << shifts).sum(dim=-1)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def unpack_marlin(packed: torch.Tensor) -> torch.Tensor:
    """Return q [K, N] of Marlin's layout."""
    rows, columns = packed.shape
    k, n = 16 * rows, columns // 2
    shifts = torch.arange(0, 32, 4, device=packed.device, dtype=torch.int32)
    nibbles = ((packed.unsqueeze(-1) >> shifts) & 15).to(torch.uint8).reshape(-1, 1024)
    tiles = torch.empty_like(nibbles)
    tiles[:, _tile_order().to(packed.device)] = nibbles
    return tiles.reshape(k // 16, n // 16, 16, 16).permute(0, 2, 1, 3).reshape(k, n)


def permute_scales(scales: torch.Tensor) -> torch.Tensor:
    """Return scales [..., K/32, N] in the order in which Marlin reads them."""
    return scales.reshape(-1, 64)[:, _scale_order().to(scales.device)].reshape(scales.shape).contiguous()


def unpermute_scales(scales: torch.Tensor) -> torch.Tensor:
    """Return what `permute_scales` was given."""
    plain = torch.empty_like(scales).reshape(-1, 64)
    plain[:, _scale_order().to(scales.device)] = scales.reshape(-1, 64)
    return plain.reshape(scales.shape)


# ---- vLLM's operators

_WANTED = ("moe_wna16_marlin_gemm", "moe_align_block_size")


def load_vllm_ops(path: Path | None) -> None:
    """Make ``torch.ops._moe_C`` available: from a file, or from an installed vLLM.

    Raises
    ------
    CannotRun
        No file, a file for another torch or CUDA, or one without Marlin.
    """
    hint = "--vllm-ops PATH: vllm/_moe_C_stable_libtorch.abi3.so of the vLLM wheel for this torch"
    if path is not None:
        if not path.is_file():
            raise CannotRun(f"{path}: no such file", hint)
        try:
            torch.ops.load_library(str(path))
        except OSError as error:
            # torch puts the loader's own words into the cause.
            reason = str(error.__cause__ or error).splitlines()[0]
            raise CannotRun(
                f"{path} does not load into torch {torch.__version__}: {reason}",
                "it has to be built for the same torch and CUDA; " + hint,
            ) from None
    else:
        for module in ("vllm._moe_C", "vllm._moe_C_stable_libtorch"):
            with contextlib.suppress(ImportError):
                importlib.import_module(module)
                break
        else:
            raise CannotRun("vLLM's operators are not here: vllm is not installed", hint)
    missing = [name for name in _WANTED if not hasattr(torch.ops._moe_C, name)]
    if missing:
        raise CannotRun(f"{path or 'vllm'} has no {', '.join(missing)}", hint)


def marlin_block_size(tokens: int, top_k: int, experts: int) -> int:
    """Return the rows of one block of Marlin MoE: vLLM's rule."""
    return next((size for size in (8, 16, 32, 48, 64) if tokens * top_k / experts / size < 0.9), 64)


class MarlinMoe:
    """vLLM's ``moe_wna16_marlin_gemm`` for one number of tokens, with the buffers it needs.

    Buffers are shared by calls on one stream.
    """

    def __init__(self, tokens: int, top_k: int, experts: int, device: torch.device) -> None:
        self._ops = torch.ops._moe_C
        self.tokens, self.top_k, self.experts = tokens, top_k, experts
        self.block = marlin_block_size(tokens, top_k, experts)
        rows = tokens * top_k
        padded = rows + experts * (self.block - 1)
        if rows < experts:
            padded = min(rows * self.block, padded)
        blocks = -(-padded // self.block)
        self._sorted = torch.empty(padded, dtype=torch.int32, device=device)
        self._blocks = torch.empty(blocks, dtype=torch.int32, device=device)
        self._padded = torch.empty(1, dtype=torch.int32, device=device)
        processors = torch.cuda.get_device_properties(device).multi_processor_count
        self._workspace = torch.zeros(4 * processors, dtype=torch.int32, device=device)

    def align(self, ids: torch.Tensor) -> None:
        """Sort the routed rows by expert and pad each expert's to whole blocks; ids int32 [M, top_k]."""
        self._ops.moe_align_block_size(ids, self.experts, self.block, self._sorted, self._blocks, self._padded, None)

    def gemm(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        scales: torch.Tensor,
        route_weights: torch.Tensor,
        *,
        second: bool,
    ) -> torch.Tensor:
        """Return routed rows times their experts' weights; the second times the route weights, too."""
        rows, k, n = x.shape[0], 16 * weight.shape[1], weight.shape[2] // 2
        return self._ops.moe_wna16_marlin_gemm(
            x,
            None,
            weight,
            None,
            scales,
            *(None,) * 5,
            self._workspace,
            self._sorted,
            self._blocks,
            self._padded,
            route_weights,
            self.block,
            1 if second else self.top_k,
            second,
            UINT4B8,
            rows,
            n,
            k,
            True,
            False,
            True,
            False,
            -1,
            -1,
            -1,
        )

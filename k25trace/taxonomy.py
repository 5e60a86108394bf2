"""The categories of kernels: their names, their order, and which of them are communication.

The order is the *taxonomy order* that the wall partition uses to hand out indivisible nanoseconds
(docs/concepts/time-accounting.md). No other module spells a category that it does not look up here.
"""

CATEGORIES: tuple[str, ...] = (
    "gemm.marlin",
    "gemm.dense",
    "gemm.grouped",
    "cast",
    "quant",
    "attention.mla",
    "attention.other",
    "moe.routing",
    "comm.allreduce",
    "comm.allgather",
    "comm.other",
    "norm",
    "activation",
    "rope",
    "kvcache",
    "sampling",
    "memory",
    "reduction",
    "elementwise",
    "other",
)

UNCLASSIFIED = "unclassified"
"""What no rule matches: shown as a row of its own, never folded into another category."""

ALL_CATEGORIES: tuple[str, ...] = (*CATEGORIES, UNCLASSIFIED)

NCCL_FAMILY_PREFIX = "nccl_"
"""Families of NCCL's own kernels; every rule for such a kernel names one, and no other rule does."""


def is_communication(category: str) -> bool:
    """Return whether kernels of this category are communication (design term: ``comm.*``)."""
    return category.startswith("comm.")


def is_nccl(family: str) -> bool:
    """Return whether kernels of this family are NCCL's own."""
    return family.startswith(NCCL_FAMILY_PREFIX)

"""What a timeline shows: lanes of GPU operations and ranges, taken from the frames that the figures are made of.

Kernels, their categories, their paths and the window come from the functions that `k25trace.analysis` calls, so that
the bars of a GPU's streams add up to its kernel time. Draws nothing.
"""

from k25trace.scene.lanes import (
    COMMUNICATION,
    COPIES,
    GAPS,
    HOST,
    KIND_NAMES,
    MARK_SCHEMA,
    ON_GPU,
    OPAQUE,
    START_END,
    STEPS,
    STREAM,
    WAITS,
)
from k25trace.scene.whole import Scene, scene

__all__ = [
    "COMMUNICATION",
    "COPIES",
    "GAPS",
    "HOST",
    "KIND_NAMES",
    "MARK_SCHEMA",
    "ON_GPU",
    "OPAQUE",
    "START_END",
    "STEPS",
    "STREAM",
    "WAITS",
    "Scene",
    "scene",
]

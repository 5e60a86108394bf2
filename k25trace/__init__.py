"""Attribution and accounting of Nsight Systems traces of LLM workloads.

The names below are the public API. They are loaded when first used, so that ``import k25trace`` stays light on
a machine that has torch but not polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from k25trace.analysis import Analysis, attribute
    from k25trace.attribution import Attribution
    from k25trace.classify import load_rules
    from k25trace.errors import K25TraceError
    from k25trace.trace import Trace, open_trace

__version__ = "0.1.0.dev0"

__all__ = ["Analysis", "Attribution", "K25TraceError", "Trace", "attribute", "load_rules", "open_trace"]

_HOMES = {
    "Analysis": "k25trace.analysis",
    "Attribution": "k25trace.attribution",
    "K25TraceError": "k25trace.errors",
    "Trace": "k25trace.trace",
    "attribute": "k25trace.analysis",
    "load_rules": "k25trace.classify",
    "open_trace": "k25trace.trace",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module holds
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

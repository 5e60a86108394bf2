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
    from k25trace.collectives import Collectives, match_collectives
    from k25trace.errors import K25TraceError
    from k25trace.gaps import Gaps, find_gaps
    from k25trace.learning import learn_template
    from k25trace.steps import Steps, find_steps
    from k25trace.templates import Template, read_template
    from k25trace.trace import Trace, open_trace

__version__ = "0.1.0.dev0"

__all__ = [
    "Analysis",
    "Attribution",
    "Collectives",
    "Gaps",
    "K25TraceError",
    "Steps",
    "Template",
    "Trace",
    "attribute",
    "find_gaps",
    "find_steps",
    "learn_template",
    "load_rules",
    "match_collectives",
    "open_trace",
    "read_template",
]

_HOMES = {
    "Analysis": "k25trace.analysis",
    "Attribution": "k25trace.attribution",
    "Collectives": "k25trace.collectives",
    "Gaps": "k25trace.gaps",
    "K25TraceError": "k25trace.errors",
    "Steps": "k25trace.steps",
    "Template": "k25trace.templates",
    "Trace": "k25trace.trace",
    "attribute": "k25trace.analysis",
    "find_gaps": "k25trace.gaps",
    "find_steps": "k25trace.steps",
    "learn_template": "k25trace.learning",
    "load_rules": "k25trace.classify",
    "match_collectives": "k25trace.collectives",
    "open_trace": "k25trace.trace",
    "read_template": "k25trace.templates",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the module holds
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

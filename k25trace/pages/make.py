"""From reports to pages: what the verbs ``timeline`` and ``report`` do between reading options and writing a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from k25trace.analysis import analysed
from k25trace.attribution import Attribution
from k25trace.classify import load_rules
from k25trace.errors import CannotAnswer, UsageError
from k25trace.pages import timeline
from k25trace.pages.marks import marks, step_bounds
from k25trace.pages.report import Named
from k25trace.pages.why import NOT_ASKED, Why, why
from k25trace.paths import path_text
from k25trace.report.choices import Format, Request
from k25trace.results import Analysis
from k25trace.scene import Scene, scene
from k25trace.selection import Bounds
from k25trace.steps import find_steps
from k25trace.trace import Trace, open_trace, open_traces, refuse_twice


def asked(
    *,
    range_glob: str | None = None,
    domains: Sequence[str] | None = None,
    rules: Sequence[Path] = (),
    step: int | None = None,
) -> Request:
    """Return what was asked for, as the head of a page repeats it."""
    # Pages hold what the JSON holds, ranges included.
    return Request(
        output_format=Format.json,
        range_glob=range_glob,
        domains=tuple(domains or ()),
        rules=tuple(map(str, rules)),
        step=step,
    )


MOST_ASKED = 2_000_000
"""Kernels above which steps, collectives and gaps are not computed for a timeline: they would take minutes."""


@dataclass(frozen=True)
class Shown:
    """What a timeline shows: the scene, the figures of the same kernels, the answers, and what is missing and why."""

    scene: Scene
    analysis: Analysis
    answers: Why
    missing: list[str]


def make_timeline(
    reports: Sequence[Path],
    *,
    window: str | None = None,
    step: int | None = None,
    gpus: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    rules: Sequence[Path] = (),
) -> str:
    """Return the page that shows what ran when (see `shown`)."""
    found = shown(reports, window=window, step=step, gpus=gpus, domains=domains, rules=rules)
    request = asked(domains=domains, rules=rules, step=step)
    return timeline.render(found.scene, found.analysis, request, found.missing)


def shown(
    reports: Sequence[Path],
    *,
    window: str | None = None,
    step: int | None = None,
    gpus: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    rules: Sequence[Path] = (),
) -> Shown:
    """Return what a timeline of reports shows.

    Parameters
    ----------
    window
        ``A:B`` in the report's clock; None: from the first kernel to the last.
    step
        Only the step with that number, from its first start to its last end over GPUs; None: all.
    gpus
        Keys of the GPUs that are drawn, and that the figures are about; None: all.

    Raises
    ------
    CannotAnswer
        A report holds no kernels, or no such GPU or step.
    UnreadableReport
        A file cannot be read.
    UsageError
        A step of several reports, whose clocks differ, or a step and a window.
    """
    if step is not None and (window is not None or len(reports) > 1):
        raise UsageError("--step N is a window of one report", "leave out --window, and name one report")
    ruleset = load_rules(rules)
    bounds = Bounds.parse(window) if window else None
    traces = open_traces(reports)
    if step is not None:
        bounds = step_bounds(find_steps(traces, domains=domains, rules=ruleset), step)
    every = _attributions(traces, domains)
    known = [gpu.key for each in every if each.trace.survey.height for gpu in each.trace.gpus]
    absent = sorted(set(gpus or []) - set(known))
    if absent and known:
        raise CannotAnswer(f"no GPU {', '.join(absent)} in these reports", f"GPUs: {', '.join(known)}")
    analysis = analysed(every, bounds, ruleset, gpus=gpus or None)
    attributions = [each for each in every if each.trace.survey.height]
    answers = NOT_ASKED
    if int(analysis.gpus["kernel_count"].sum()) <= MOST_ASKED:
        answers = why(attributions, ruleset, bounds=bounds)
    drawn, missing = marks(answers)
    found = scene(attributions, ruleset, bounds=bounds, gpus=gpus, marks=drawn)
    return Shown(found, analysis, answers, missing)


def _attributions(traces: Sequence[Trace], domains: Sequence[str] | None) -> list[Attribution]:
    for trace in traces:
        trace.load()
    return [Attribution(trace, domains) for trace in traces]


def analyses(
    reports: Sequence[Path],
    *,
    window: str | None = None,
    range_glob: str | None = None,
    domains: Sequence[str] | None = None,
    rules: Sequence[Path] = (),
) -> list[Named]:
    """Return the analysis of each report, each by itself (see `k25trace.attribute`), and the answers about it."""
    refuse_twice(reports)
    ruleset = load_rules(rules)
    bounds = Bounds.parse(window) if window else None
    found: list[Named] = []
    for number, path in enumerate(reports):
        trace = open_trace(path, number)
        attributions = _attributions([trace], domains)
        analysis = analysed(attributions, bounds, ruleset, range_glob=range_glob)
        answers = why(attributions, ruleset, bounds=bounds, range_glob=range_glob)
        found.append(Named(path_text(Path(path.name)), analysis, answers))
    return found

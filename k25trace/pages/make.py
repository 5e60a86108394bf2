"""From reports to pages: what the verbs ``timeline`` and ``report`` do between reading options and writing a file."""

from collections.abc import Sequence
from pathlib import Path

from k25trace.analysis import attribute
from k25trace.classify import load_rules
from k25trace.errors import CannotAnswer
from k25trace.pages import timeline
from k25trace.pages.report import Named
from k25trace.pages.why import NOT_ASKED, Why, why
from k25trace.paths import path_text
from k25trace.report.choices import Format, Request
from k25trace.results import Analysis
from k25trace.scene import Scene, scene
from k25trace.selection import Bounds
from k25trace.trace import open_trace


def asked(
    *, range_glob: str | None = None, domains: Sequence[str] | None = None, rules: Sequence[Path] = ()
) -> Request:
    """Return what was asked for, as the head of a page repeats it."""
    # Pages hold what the JSON holds, ranges included.
    return Request(
        output_format=Format.json, range_glob=range_glob, domains=tuple(domains or ()), rules=tuple(map(str, rules))
    )


def make_timeline(
    reports: Sequence[Path],
    *,
    window: str | None = None,
    gpus: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    rules: Sequence[Path] = (),
) -> str:
    """Return the page that shows what ran when.

    Parameters
    ----------
    window
        ``A:B`` in the report's clock; None: from the first kernel to the last.
    gpus
        Keys of the GPUs that are drawn; None: all.

    Raises
    ------
    CannotAnswer
        A report holds no kernels, or no such GPU.
    UnreadableReport
        A file cannot be read.
    """
    found, analysis, _ = shown(reports, window=window, gpus=gpus, domains=domains, rules=rules)
    return timeline.render(found, analysis, asked(domains=domains, rules=rules))


def shown(
    reports: Sequence[Path],
    *,
    window: str | None = None,
    gpus: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
    rules: Sequence[Path] = (),
    most_asked: int = 0,
) -> tuple[Scene, Analysis, Why]:
    """Return what a timeline of reports shows, their analysis, and the answers about them; see `make_timeline`.

    Parameters
    ----------
    most_asked
        Kernels above which steps, collectives and gaps are not computed.
    """
    ruleset = load_rules(rules)
    bounds = Bounds.parse(window) if window else None
    traces = [open_trace(path, number) for number, path in enumerate(reports)]
    analysis = attribute(traces, window=bounds, domains=domains, rules=ruleset)
    known = analysis.gpus["gpu"].to_list()
    missing = sorted(set(gpus or []) - set(known))
    if missing:
        raise CannotAnswer(f"no GPU {', '.join(missing)} in these reports", f"GPUs: {', '.join(known)}")
    with_kernels = [trace for trace in traces if trace.survey.height]
    answers = NOT_ASKED
    if int(analysis.gpus["kernel_count"].sum()) <= most_asked:
        answers = why(with_kernels, ruleset, bounds=bounds, domains=domains)
    return scene(with_kernels, ruleset, bounds=bounds, gpus=gpus, domains=domains), analysis, answers


def analyses(
    reports: Sequence[Path],
    *,
    window: str | None = None,
    range_glob: str | None = None,
    domains: Sequence[str] | None = None,
    rules: Sequence[Path] = (),
) -> list[Named]:
    """Return the analysis of each report, each by itself (see `k25trace.attribute`), and the answers about it."""
    ruleset = load_rules(rules)
    bounds = Bounds.parse(window) if window else None
    found: list[Named] = []
    for number, path in enumerate(reports):
        trace = open_trace(path, number)
        analysis = attribute(trace, window=bounds, range_glob=range_glob, domains=domains, rules=ruleset)
        answers = why([trace], ruleset, bounds=bounds, range_glob=range_glob, domains=domains)
        found.append(Named(path_text(Path(path.name)), analysis, answers))
    return found

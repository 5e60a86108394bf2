"""From a report to a file in Perfetto's or Chrome's format."""

from collections.abc import Sequence
from pathlib import Path

from k25trace.classify import load_rules
from k25trace.empty import no_kernels, why_empty
from k25trace.perfetto import chrome_json, protobuf
from k25trace.perfetto.events import Events
from k25trace.report.files import replacing
from k25trace.selection import Bounds
from k25trace.trace import open_trace


def make_perfetto(
    report: Path,
    *,
    perfetto: Path | None = None,
    chrome: Path | None = None,
    window: str | None = None,
    rules: Sequence[Path] = (),
    force: bool = False,
) -> None:
    """Write the trace of a report in one or both of the formats; files appear whole or not at all.

    Parameters
    ----------
    perfetto, chrome
        Where to; None: not in that format.
    window
        ``A:B`` in the report's clock: only what touches it. None: all.

    Raises
    ------
    CannotAnswer
        The report holds no kernels, or none in that window.
    K25TraceError
        The extra ``perfetto`` is not installed, or a file cannot be written.
    """
    trace = open_trace(report)
    trace.load()
    if not trace.survey.height:
        raise no_kernels([trace], [why_empty(trace)])
    events = Events(trace, load_rules(rules), Bounds.parse(window) if window else None)
    for path, write in ((perfetto, protobuf.write), (chrome, chrome_json.write)):
        if path is not None:
            with replacing(path, force=force, never=[report, *rules]) as temporary, temporary.open("wb") as out:
                write(events, out)

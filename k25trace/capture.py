"""Capture a program with nsys and look at what came of it: a `CapturePlan` becomes a `CaptureResult`.

nsys exits 0 in many ways of failing, so nothing here believes its exit code. It works in a folder beside
the target; only what is whole gets its final name. Everything before the check of the report needs the
standard library alone.
"""

import importlib.util
import os
import re
import shlex
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from k25trace import __version__, manifest
from k25trace.captureplan import EXPORT, MANIFEST, RECORDING, REPORT, SUFFIXES, CapturePlan, argv, refuse_early
from k25trace.checks import Check, any_missing, missing, passed, unknown
from k25trace.child import Ended, run_live, time_plain
from k25trace.errors import CaptureFailed, K25TraceError
from k25trace.export import Kind, export, flaw_of, replace
from k25trace.gpustate import driver_version, gpu_state
from k25trace.nsys import (
    Nsys,
    find_importer,
    import_argv,
    profile_options,
    run,
)

Say = Callable[[str], None]
Whose = Literal["program", "nsys", "unknown"]

_ANALYSIS = ("polars", "adbc_driver_manager", "adbc_driver_sqlite")
_SIGNALLED = 128
_TROUBLE = (
    re.compile(r"Importation succeeded with non-fatal errors"),
    re.compile(r"Unknown (?:runtime|driver) API function index: \d+"),
    re.compile(r"Errors occurred while processing the raw events"),
)
"""What nsys says on the terminal when it has lost events, and exits with 0."""


@dataclass(frozen=True)
class CaptureResult:
    """What came of a capture.

    Attributes
    ----------
    checks
        The check list: of the capture, then of the report.
    code
        Exit code of nsys, which is the program's where `whose` says so; negative: killed by that signal.
    whose
        Whose code it is: ``program``, ``nsys`` (it failed before the program ended) or ``unknown`` (the
        program goes on).
    report, export
        The files, where they are there.
    overhead
        How long the program took with and without nsys, or None.
    """

    checks: list[Check]
    code: int
    whose: Whose
    report: Path | None
    export: Path | None
    overhead: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int:
        """The program's own code if not 0; otherwise 0, or 1 if a check is ``missing`` or nsys failed."""
        if self.code > 0:
            return self.code
        return 1 if self.code < 0 or any_missing(self.checks) else 0


def capture(plan_: CapturePlan, nsys: Nsys, say: Say) -> CaptureResult:
    """Run the program under nsys, then see what there is; a manifest is left beside the report.

    Parameters
    ----------
    plan_
        What to capture.
    nsys
        Which nsys, as `ready_nsys` returned it.
    say
        Takes one line for the user, while it goes on.

    Raises
    ------
    CaptureFailed
        The program or target cannot be used; nothing was run.
    OutputExists
        The target is there and ``force`` is not given; nothing was run.
    """
    refuse_early(plan_)
    command = argv(plan_, nsys, profile_options(nsys))
    staging = _staging(plan_)
    try:
        before = gpu_state()
        started, began = datetime.now(UTC), time.time()
        ended = run_live(command, environment=plan_.environment, say=say, find_program=plan_.duration_s is not None)
        after = gpu_state()
        found = _Found.of(plan_, nsys, ended, began)
        whose = _whose(found, ended)
        checks = [_report_check(plan_, found, ended, whose)]
        report, database = None, None
        if found.report is not None:
            report = _keep(plan_, found.report, REPORT)
            checks.append(_keep_export(plan_, nsys, staging, report))
            database = plan_.file(EXPORT) if checks[-1].status == "ok" else None
        elif found.recording is not None:
            _keep(plan_, found.recording, RECORDING)
        if database is not None:
            checks += [_with_words(check, ended.said) for check in _checks_of(database)]
        overhead = _overhead(plan_, ended, say) if plan_.overhead_runs and whose == "program" else None
        result = CaptureResult(checks, ended.code, whose, report, database, overhead)
        facts = {"started": started, "before": before, "after": after, "command": command, "nsys": nsys}
        _leave_manifest(plan_, staging, result, ended, facts)
        return result
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _staging(plan_: CapturePlan) -> Path:
    staging = plan_.staging
    try:
        staging.mkdir()
    except FileExistsError:
        raise CaptureFailed(
            f"{staging}: another capture to this name is going on, or one was killed",
            f"if none is going on: rm -r {shlex.quote(str(staging))}",
        ) from None
    except OSError as error:
        raise CaptureFailed(f"{plan_.output}: cannot be written: {error.strerror}") from None
    return staging


@dataclass(frozen=True)
class _Found:
    """What nsys left: in the folder it was given, or elsewhere."""

    report: Path | None = None
    recording: Path | None = None
    elsewhere: Path | None = None
    import_failed: str = ""

    @staticmethod
    def of(plan_: CapturePlan, nsys: Nsys, ended: Ended, began: float) -> "_Found":
        report, recording = (plan_.staging / (plan_.output.name + suffix) for suffix in (REPORT, RECORDING))
        if _holds_something(report):
            return _Found(report=report)
        others = _new_files(plan_, ended, began)
        strays = [path for path in others if path.suffix == RECORDING]
        raw = recording if _holds_something(recording) else next(iter(strays), None)
        away = next((path for path in others if path.suffix == REPORT), None)
        if raw is None or away is not None:
            return _Found(elsewhere=away)
        importer = find_importer(nsys)
        if importer is None:
            return _Found(recording=raw, import_failed="no importer (QdstrmImporter) is found beside nsys or on PATH")
        try:
            done = run(import_argv(importer, raw, report))
        except OSError as error:
            return _Found(recording=raw, import_failed=f"{importer} cannot be started: {error.strerror}")
        if _holds_something(report):
            return _Found(report=report)
        said = " ".join((done.stderr or done.stdout).split())[-160:] or f"exit code {done.returncode}"
        return _Found(recording=raw, import_failed=f"{importer.name} failed: {said}")


def _holds_something(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _new_files(plan_: CapturePlan, ended: Ended, began: float) -> list[Path]:
    """Return new reports and recordings that nsys names, or that have our name in the wrong folder.

    Others in the temporary folder may belong to another nsys, which is still writing them.
    """
    lines = [line.strip() for line in ended.said.replace("\r", "\n").splitlines()]
    named = [Path(line) for line in lines if line.endswith((REPORT, RECORDING))]
    quoted = [Path(text) for text in re.findall(rf"'([^'\n]+(?:{REPORT}|{RECORDING}))'", ended.said)]
    ours = [plan_.output.name + suffix for suffix in (REPORT, RECORDING)]
    folders = (plan_.output.parent, Path.cwd(), Path(tempfile.gettempdir()))
    found = [
        *named,
        *quoted,
        *plan_.staging.iterdir(),
        *(folder / name for folder in folders for name in ours),
    ]
    return [
        path
        for path in dict.fromkeys(map(Path.absolute, found))
        if path.suffix in {REPORT, RECORDING} and _holds_something(path) and path.stat().st_mtime >= began - 1
    ]


def _whose(found: _Found, ended: Ended) -> Whose:
    """Whose exit code it is: nsys passes on the program's, and has only 1 of its own."""
    if ended.code < 0:
        return "nsys"
    if ended.program is not None and _is_running(ended.program):
        return "unknown"
    finished = "Generated:" in ended.said or any((found.report, found.recording, found.elsewhere))
    return "program" if finished or ended.code != 1 else "nsys"


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _report_check(plan_: CapturePlan, found: _Found, ended: Ended, whose: Whose) -> Check:
    name, wanted = "report", plan_.file(REPORT)
    if found.report is not None:
        return passed(name, f"{wanted} ({found.report.stat().st_size:,} bytes)")
    if found.recording is not None:
        kept = plan_.file(RECORDING)
        return missing(
            name,
            f"only a raw recording ({RECORDING}) was left, at {kept}: {found.import_failed}",
            "where a whole Nsight Systems of this version is, run: QdstrmImporter"
            f" --input-file {shlex.quote(str(kept))}",
        )
    if found.elsewhere is not None:
        return missing(
            name,
            f"nsys wrote it to {found.elsewhere} instead of {wanted}, and exited {ended.code}",
            f"mv {shlex.quote(str(found.elsewhere))} {shlex.quote(str(wanted))}",
        )
    if whose == "nsys":
        how = f"was killed by signal {-ended.code}" if ended.code < 0 else f"failed with exit code {ended.code}"
        return missing(name, f"no report: nsys {how}: {_last_words(ended.said)}", _advice(ended.said))
    seen = f"no report at {wanted}: nsys exited {ended.code} and wrote none (no such file)"
    if plan_.capture_range == "none":
        return missing(name, seen, "is there room on the disk? nsys says: " + _last_words(ended.said))
    return missing(name, f"{seen}: the capture range never opened", _range_advice(plan_.capture_range))


def _range_advice(opened_by: str) -> str:
    if opened_by == "cudaProfilerApi":
        return (
            "the program has to call cudaProfilerStart"
            " (torch.cuda.cudart().cudaProfilerStart()) while it runs; without"
            " such a call use --capture-range none"
        )
    name = opened_by.partition("=")[2]
    return (
        f"no registered NVTX range {name} of that domain was opened: name its domain"
        f" ({name}@DOMAIN), and use the Python"
        " package nvtx, which registers its strings, or --capture-range none"
    )


def _last_words(said: str) -> str:
    lines = [" ".join(line.split()) for line in said.replace("\r", "\n").splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith(("usage:", "Try ", "[", "Generating", "Generated"))]
    return (told[0] if told else "nothing")[:200]


def _advice(said: str) -> str:
    if "ermission denied" in said:
        return "allow it to that user, or run elsewhere: k25trace doctor"
    if "llegal" in said or "nrecognised" in said or "ambiguous" in said:
        return "this nsys does not know an option: see `k25trace capture --dry-run` and `nsys profile --help`"
    if "Local Endpoint is not available" in said:
        return "the agent of nsys did not answer in time, as happens on a busy machine: capture again"
    return "k25trace doctor"


def _keep(plan_: CapturePlan, made: Path, suffix: str) -> Path:
    """Give a result its name, and remove what an older capture of that name left beside it."""
    target = plan_.file(suffix)
    replace(made, target)
    for old in SUFFIXES if suffix == REPORT else ():
        if old != suffix:
            plan_.file(old).unlink(missing_ok=True)
    return target


def _keep_export(plan_: CapturePlan, nsys: Nsys, staging: Path, report: Path) -> Check:
    name, target = "export", plan_.file(EXPORT)
    made = staging / target.name
    if flaw_of(made) is None:
        replace(made, target)
        return passed(name, str(target))
    try:
        export(report, target, Kind.sqlite, nsys, force=True)
    except K25TraceError as error:
        return missing(
            name,
            f"not exported: {error.message}",
            f"k25trace export {shlex.quote(str(report))}, here or elsewhere",
        )
    return passed(name, f"{target} (by nsys export: nsys profile had left none)")


def _checks_of(database: Path) -> list[Check]:
    absent = [module for module in _ANALYSIS if importlib.util.find_spec(module) is None]
    if absent:
        where = f"k25trace doctor {shlex.quote(str(database))}, where it is installed"
        return [unknown("contents", f"not looked at: {absent[0]} is not installed here", where)]
    from k25trace.checkup import check_report  # noqa: PLC0415 - polars may be absent, and takes its time

    try:
        return check_report(database)
    except K25TraceError as error:
        return [missing("contents", error.message, error.hint or "k25trace export the report again")]


def _with_words(check: Check, said: str) -> Check:
    """Add to the line about nsys' own words what it said on the terminal, where the report has none of it."""
    if check.name != "diagnostics" or check.status != "cannot say":
        return check
    told = [text for pattern in _TROUBLE if (found := pattern.search(said)) for text in [" ".join(found[0].split())]]
    if not told:
        return check
    return unknown(
        check.name,
        f"nsys said while it made the report: {'; '.join(dict.fromkeys(told))}",
        "what came after may be missing: look at the lines above, above all `API calls`, and take a newer nsys",
    )


# ---- overhead


def _overhead(plan_: CapturePlan, ended: Ended, say: Say) -> dict[str, Any] | None:
    """Run the program without nsys; return all times and the slowdown, or None if it fails."""
    plain: list[int] = []
    for number in range(plan_.overhead_runs):
        say(f"run {number + 1} of {plan_.overhead_runs} without nsys")
        code, elapsed = time_plain(plan_.program, plan_.environment)
        if code != ended.code:
            say(f"overhead unknown: without nsys the program exited with code {code}, with it {ended.code}")
            return None
        plain.append(elapsed)
    return overhead(ended.elapsed_ns, plain)


def overhead(profiled_ns: int, plain_ns: Sequence[int]) -> dict[str, Any]:
    """Return the slowdown of a run under nsys: ÷ the median without, ÷ the slowest, ÷ the fastest.

    Whole runs, start of nsys included, the making of the report not: the shorter the program, the more it
    is the start.
    """
    return {
        "profiled_ns": profiled_ns,
        "plain_ns": list(plain_ns),
        "slowdown": profiled_ns / statistics.median(plain_ns),
        "slowdown_least": profiled_ns / max(plain_ns),
        "slowdown_most": profiled_ns / min(plain_ns),
    }


# ---- manifest


def _leave_manifest(
    plan_: CapturePlan, staging: Path, result: CaptureResult, ended: Ended, facts: Mapping[str, Any]
) -> None:
    nsys: Nsys = facts["nsys"]
    content = {
        "schema": manifest.SCHEMA,
        "k25trace_version": __version__,
        "started": facts["started"].isoformat(timespec="milliseconds"),
        "elapsed_ns": ended.elapsed_ns,
        "program": {"argv": manifest.shown(plan_.program)},
        "nsys": {"version": nsys.version_text, "argv": manifest.shown(facts["command"])},
        "exit": {
            "code": result.code,
            "whose": result.whose,
            "signals": list(ended.signals),
            "k25trace_code": result.exit_code,
        },
        "preset": plan_.preset,
        "capture_range": plan_.capture_range,
        "environment": manifest.allowed_environment({**os.environ, **plan_.environment}),
        "machine": manifest.machine() | {"nvidia_driver": driver_version()},
        "gpus": {"before": facts["before"], "after": facts["after"]},
        "overhead": result.overhead,
        "files": manifest.file_facts(plan_.file(suffix) for suffix in (REPORT, EXPORT, RECORDING)),
        "checks": [check.row() for check in result.checks],
    }
    made = staging / (plan_.output.name + MANIFEST)
    manifest.write_manifest(made, content)
    # A capture that left nothing leaves the manifest of the report that is still there alone.
    if content["files"] == [] or result.report or plan_.file(RECORDING).exists():
        replace(made, plan_.file(MANIFEST))


def closing_lines(plan_: CapturePlan, result: CaptureResult) -> Iterable[str]:
    """Yield what to tell the user after the check list."""
    if result.whose == "unknown":
        yield "the program goes on running; its exit code is not known"
    elif result.whose == "program" and result.code > 0:
        signal_ = (
            f" (killed by signal {result.code - _SIGNALLED}; it may have lost NVTX ranges)"
            if result.code > _SIGNALLED
            else ""
        )
        kept = f"; what was recorded is in {result.report}" if result.report else ""
        yield f"the program exited with code {result.code}{signal_}{kept}"
    if result.report is None and plan_.file(REPORT).exists():
        yield f"{plan_.file(REPORT)} is of an earlier capture"
    if result.overhead:
        times = result.overhead
        yield (
            f"slowdown under nsys {times['slowdown']:.2f}x ({times['slowdown_least']:.2f}x to"
            f" {times['slowdown_most']:.2f}x over {len(times['plain_ns'])} runs without):"
            " whole runs, start included"
        )

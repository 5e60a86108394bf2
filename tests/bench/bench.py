"""Measure k25trace beside what a user would run instead: whole processes, wall time and peak memory.

    python tests/bench/bench.py --kernels 1000000,10000000

Makes synthetic traces of 8 processes on 8 GPUs (kept in .bench/), and in one run, in turn, on the same files:

* `k25trace attribute TRACE --format json` and the plain table;
* `nsys stats` with the two reports that come nearest (kernels, NVTX projection), where an nsys is found;
* the floor: a full scan of the same tables by the sqlite3 shell (or Python's sqlite3 where there is none);
* `k25trace --help`.

Wall time is that of the process from start to end; peak memory is its largest resident set, its children's
included (the larger of them, as the kernel counts it, and never below this program's own 20 MiB, from
which they are forked). Files are in the page cache: each is read once before.
The table shows medians; the JSON holds every measurement. This is no test: nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".bench"
MAKE_TRACE = REPOSITORY / "tests" / "tools" / "make_trace.py"
NSYS_REPORTS = ["cuda_gpu_kern_sum", "nvtx_gpu_proj_sum"]
OURS = "attribute --format json"
TABLE = "attribute (table)"
WHY = ("steps", "collectives", "gaps")
NSYS = "nsys stats"
FLOOR = "full scan (floor)"
HELP = "--help"
# Every value that an attribution needs, read once. max() where a sum of ids could overflow.
FLOOR_SQL = """
SELECT count(*), sum(end - start), max(correlationId), max(globalPid), max(deviceId), max(streamId),
       max(demangledName), max(graphNodeId) FROM CUPTI_ACTIVITY_KIND_KERNEL;
SELECT count(*), sum(end - start), max(correlationId), max(globalTid), max(nameId)
       FROM CUPTI_ACTIVITY_KIND_RUNTIME;
SELECT count(*), sum(end - start), max(globalTid), max(domainId), max(textId), max(text) FROM NVTX_EVENTS;
"""
SCAN_IN_PYTHON = """
import sqlite3, sys
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
for query in sys.argv[2].split(";"):
    if query.strip():
        print(*db.execute(query).fetchone(), sep="|")
"""


def measure(argv: list[str], timeout: float) -> dict:
    """Run a process to its end: seconds, peak memory in bytes, exit code; output goes to a file."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        child = subprocess.Popen(argv, stdout=out, stderr=err, cwd=REPOSITORY, start_new_session=True)
        if timeout:
            signal.signal(signal.SIGALRM, lambda *_: os.killpg(child.pid, signal.SIGKILL))
            signal.setitimer(signal.ITIMER_REAL, timeout)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - begin
        signal.setitimer(signal.ITIMER_REAL, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        result = {
            "wall_s": wall,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
            "exit_code": child.returncode,
            "output_bytes": out.tell() or os.fstat(out.fileno()).st_size,
        }
        if child.returncode:
            err.seek(0)
            result["stderr"] = err.read()[-2000:].decode(errors="replace")
            result["timed_out"] = bool(timeout) and wall >= timeout
        return result


def trace(kernels: int, args: argparse.Namespace) -> Path:
    """The trace of that size, made if it is not there."""
    CACHE.mkdir(exist_ok=True)
    name = f"k{kernels}_g{args.gpus}_s{args.seed}_node"
    path = CACHE / f"{name}.sqlite"
    if not path.exists():
        print(f"making {path.name} ...", file=sys.stderr)
        part = CACHE / f"{name}.part.sqlite"
        command = [sys.executable, str(MAKE_TRACE), "--kernels", str(kernels), "--gpus", str(args.gpus)]
        command += ["--seed", str(args.seed), "--graph-mode", "node", "--quiet"]
        command += ["--out", str(part), "--truth", str(CACHE / f"{name}.truth.json")]
        subprocess.run(command, check=True)
        part.rename(path)
    with path.open("rb") as f:  # into the page cache
        while f.read(1 << 20):
            pass
    return path


def rows(path: Path) -> dict[str, int]:
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    tables = ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS", "CUDA_GRAPH_EVENTS"]
    counts = {t: db.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in tables}
    db.close()
    return counts


def find_nsys(given: str | None) -> str | None:
    own = REPOSITORY / ".nsys" / "target-linux-x64" / "nsys"
    return given or shutil.which("nsys") or (str(own) if own.exists() else None)


def commands(path: Path, args: argparse.Namespace, nsys: str | None) -> dict[str, list[str]]:
    product = [sys.executable, "-m", "k25trace"]
    shell = shutil.which("sqlite3")
    scan = (
        [shell, "-readonly", str(path), FLOOR_SQL]
        if shell
        else [sys.executable, "-c", SCAN_IN_PYTHON, str(path), FLOOR_SQL]
    )
    found = {
        HELP: [*product, "--help"],
        FLOOR: scan,
        OURS: [*product, "attribute", str(path), "--format", "json"],
        TABLE: [*product, "attribute", str(path)],
        **{verb: [*product, verb, str(path)] for verb in WHY},
    }
    if nsys and path.stat().st_size <= args.nsys_limit:
        reports = [x for r in NSYS_REPORTS for x in ("-r", r)]
        found[NSYS] = [nsys, "stats", "--force-export=false", *reports, "--format", "csv", str(path)]
    return found


def first_line(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return (done.stdout.strip() or "unknown").splitlines()[0]


def machine() -> dict:
    facts = {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "usable_cpus": len(os.sched_getaffinity(0)),
    }
    cpuinfo, meminfo = Path("/proc/cpuinfo"), Path("/proc/meminfo")
    if cpuinfo.exists():
        models = [x.split(":", 1)[1].strip() for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        facts["cpu"] = models[0] if models else platform.machine()
    if meminfo.exists():
        facts["memory_bytes"] = int(meminfo.read_text().split()[1]) * 1024
    return facts


def versions(nsys: str | None) -> dict[str, str]:
    found = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    for name in ("k25trace", "polars", "numpy"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    if shutil.which("sqlite3"):
        found["sqlite3 shell"] = first_line(["sqlite3", "--version"])
    if nsys:
        found["nsys"] = first_line([nsys, "--version"])
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return found | {"commit": commit.stdout.strip() or "unknown"}


def medians(runs: dict[str, list[dict]]) -> dict[str, dict[str, float]]:
    """Of those measurements whose process succeeded."""
    good = {what: [r for r in found if r["exit_code"] == 0] for what, found in runs.items()}
    return {
        what: {k: statistics.median(r[k] for r in found) for k in ("wall_s", "cpu_s", "peak_bytes")}
        for what, found in good.items()
        if found
    }


def ratio(a: dict | None, b: dict | None, key: str) -> str:
    return f"{a[key] / b[key]:.2f}" if a and b else "-"


def show(sizes: dict[int, dict]) -> None:
    print(f"{'kernels':>12}  {'command':<26}{'wall s':>10}{'cpu s':>10}{'peak MiB':>10}{'exit':>6}{'runs':>6}")
    for kernels, size in sizes.items():
        mid = medians(size["runs"])
        for what, found in size["runs"].items():
            code = max((r["exit_code"] for r in found), key=abs)
            wall = cpu = peak = "-"
            if what in mid:
                wall, cpu = f"{mid[what]['wall_s']:.2f}", f"{mid[what]['cpu_s']:.2f}"
                peak = f"{mid[what]['peak_bytes'] / 2**20:.0f}"
            print(f"{kernels:>12,}  {what:<26}{wall:>10}{cpu:>10}{peak:>10}{code:>6}{len(found):>6}")
    print(f"\n{'ratio':<40}{'time':>10}{'memory':>10}")
    for kernels, size in sizes.items():
        mid = medians(size["runs"])
        ours = mid.get(OURS)
        for label, a, b in (
            (f"nsys stats / ours, {kernels:,}", mid.get(NSYS), ours),
            (f"ours / full scan, {kernels:,}", ours, mid.get(FLOOR)),
        ):
            print(f"{label:<40}{ratio(a, b, 'wall_s'):>10}{ratio(a, b, 'peak_bytes'):>10}")
    for small, large in zip(list(sizes), list(sizes)[1:], strict=False):
        for what in (OURS, TABLE, *WHY, NSYS, FLOOR):
            a, b = (medians(sizes[k]["runs"]).get(what) for k in (large, small))
            label = f"{what}, {large:,} / {small:,}"
            print(f"{label:<40}{ratio(a, b, 'wall_s'):>10}{ratio(a, b, 'peak_bytes'):>10}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kernels", default="1000000", help="sizes, separated by commas (default %(default)s)")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3, help="measurements of each command (default %(default)s)")
    parser.add_argument("--nsys", help="default: nsys on the PATH, then .nsys/ of this repository")
    parser.add_argument("--no-nsys", action="store_true", help="leave nsys out")
    parser.add_argument("--nsys-repeat", type=int, default=1, help="of nsys, which takes long (default %(default)s)")
    parser.add_argument(
        "--nsys-limit", type=float, default=float("inf"), metavar="BYTES", help="no nsys on a larger file"
    )
    parser.add_argument("--timeout", type=float, default=3600, metavar="S", help="of one process (default %(default)s)")
    parser.add_argument("--output", type=Path, default=CACHE / "bench.json", help="default: .bench/bench.json")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    nsys = None if args.no_nsys else find_nsys(args.nsys)
    if nsys is None and not args.no_nsys:
        print("no nsys found: its part is left out (.ci/get-nsys.sh puts one into .nsys/)", file=sys.stderr)
    sizes: dict[int, dict] = {}
    load = [os.getloadavg()]  # before and after: wall times of a busy machine say little, CPU times somewhat more
    for kernels in (int(float(x)) for x in args.kernels.split(",")):
        path = trace(kernels, args)
        todo = commands(path, args, nsys)
        runs: dict[str, list[dict]] = {what: [] for what in todo}
        for turn in range(max(args.repeat, args.nsys_repeat)):
            for what, argv in todo.items():
                if turn < (args.nsys_repeat if what == NSYS else args.repeat):
                    runs[what].append(measure(argv, args.timeout))
                    last = runs[what][-1]
                    print(
                        f"{kernels:,} {what}: {last['wall_s']:.2f} s, exit {last['exit_code']}",
                        file=sys.stderr,
                    )
        sizes[kernels] = {"file": path.name, "bytes": path.stat().st_size, "rows": rows(path), "runs": runs}
    load.append(os.getloadavg())
    args.output.parent.mkdir(parents=True, exist_ok=True)
    facts = {
        "schema": "k25trace.bench/1",
        "machine": machine() | {"load_average": load},
        "versions": versions(nsys),
        "sizes": sizes,
    }
    args.output.write_text(json.dumps(facts, indent=1) + "\n")
    show(sizes)
    failed = sorted(
        {what for s in sizes.values() for what, found in s["runs"].items() for r in found if r["exit_code"]}
    )
    if failed:
        print(f"\nfailed: {', '.join(failed)} (see stderr in {args.output})")


if __name__ == "__main__":
    main()

"""Compute the `nsys stats` tables beside the golden traces anew.

    python tests/golden/refresh.py --nsys PATH [--check]

The tables are an independent opinion about the same files. They are committed so that tests need no nsys;
`--check` compares instead of writing, for a machine that has one.
"""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TRACES = [
    "h200x1_toy_graph",
    "h200x2_toy_eager",
    "h200x2_decode_graph",
    "h200x2_decode_lossy",
    "h200x2_vllm_graph",
    "h200x2_vllm_lossy",
]
REPORTS = ["cuda_gpu_kern_sum", "nvtx_kern_sum", "nvtx_gpu_proj_trace", "cuda_kern_exec_sum"]
PLAIN_BYTES = 300_000  # longer ones are committed compressed


def find_nsys(given: str | None) -> str:
    own = HERE.parents[1] / ".nsys" / "target-linux-x64" / "nsys"
    nsys = given or shutil.which("nsys") or (str(own) if own.exists() else None)
    if nsys is None:
        sys.exit("refresh.py: no nsys: give --nsys PATH, or run .ci/get-nsys.sh first")
    return nsys


def stats(nsys: str, trace: Path, reports: list[str]) -> dict[str, bytes]:
    """Tables of one trace by report name, computed on a copy: nsys may write into or beside its input."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / trace.name
        shutil.copyfile(trace, copy)
        command = [
            nsys,
            "stats",
            "--force-export=false",
            "--format",
            "csv",
            "--output",
            str(copy.with_suffix("")),
        ]
        for report in reports:
            command += ["--report", report]
        done = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False)
        tables = {r: copy.with_name(f"{copy.stem}_{r}.csv") for r in reports}
        if done.returncode or not all(t.exists() for t in tables.values()):
            sys.exit(f"refresh.py: nsys stats failed on {trace.name}:\n{done.stdout}{done.stderr}")
        return {r: t.read_bytes() for r, t in tables.items()}


def load(trace: str, report: str) -> bytes | None:
    """The committed table, decompressed, or None."""
    path = HERE / "nsys-stats" / trace / f"{report}.csv"
    if path.exists():
        return path.read_bytes()
    packed = path.with_suffix(".csv.gz")
    return gzip.decompress(packed.read_bytes()) if packed.exists() else None


def store(trace: str, report: str, data: bytes) -> None:
    path = HERE / "nsys-stats" / trace / f"{report}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in (path, path.with_suffix(".csv.gz")):
        old.unlink(missing_ok=True)
    if len(data) > PLAIN_BYTES:
        path.with_suffix(".csv.gz").write_bytes(gzip.compress(data, mtime=0))
    else:
        path.write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--nsys", help="default: nsys on the PATH, then .nsys/ of this repository")
    parser.add_argument("--check", action="store_true", help="compare with what is committed, write nothing")
    args = parser.parse_args()
    nsys = os.fspath(find_nsys(args.nsys))
    differing = []
    for trace in TRACES:
        for report, data in stats(nsys, HERE / f"{trace}.sqlite", REPORTS).items():
            if not args.check:
                store(trace, report, data)
            elif data != load(trace, report):
                differing.append(f"{trace}/{report}")
    if differing:
        sys.exit("refresh.py: differs from what is committed: " + ", ".join(differing))


if __name__ == "__main__":
    main()

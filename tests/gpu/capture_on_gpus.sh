#!/usr/bin/env bash
# Captures a torchrun program with a real nsys on the GPUs that are here, as one should and then with each mistake, and
# compares the check lists with what they ought to say. Results go to $OUT: summary.json, transcript.txt,
# manifests.json, machine.json and databases.txz (scrubbed). A few minutes.
#
#   tests/gpu/capture_on_gpus.sh stage     # put what .carry holds where a later call finds it
#   OUT=DIR tests/gpu/capture_on_gpus.sh   # run
#
# Needs python3 with torch, typer and rich. From .carry (or staged before): an archive nsys*.txz, which
# `.ci/get-nsys.sh DIR nsys.txz` makes, and wheels of polars, polars-runtime-32, adbc-driver-manager, adbc-driver-sqlite, nvidia-ml-py,
# nvtx 0.2.11 and nvtx 0.2.14. nsys and polars are large; where they cannot be carried at once, stage one and carry the
# other. Without polars everything is captured all the same: `k25trace doctor` then looks at databases.txz elsewhere.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

repository=$PWD
staged=${K25TRACE_STAGED:-/tmp/k25trace-carried}
mkdir -p "$staged"
find .carry -type f \( -name '*.whl' -o -name '*.txz' \) -exec cp -f {} "$staged/" \; 2>/dev/null
if [ "${1:-}" = stage ]; then
    ls -l "$staged"
    exit 0
fi

out=$(realpath -m "${OUT:?OUT names the folder for results}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out" "$work/site" "$work/nvtx-0.2.11" "$work/nvtx-0.2.14" "$work/runs"

archives=("$staged"/nsys*.txz)
tar -C "$work" -xf "${archives[0]}" || exit 1
for wheel in "$staged"/*.whl; do
    case ${wheel##*/} in
    nvtx-0.2.11-*) folder=$work/nvtx-0.2.11 ;;
    nvtx-0.2.14-*) folder=$work/nvtx-0.2.14 ;;
    *) folder=$work/site ;;
    esac
    python3 -m zipfile -e "$wheel" "$folder" || exit 1
done

export K25TRACE_NSYS=$work/nsys/target-linux-x64/nsys
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$work/nvtx-0.2.11:$work/site:$repository NO_COLOR=1
gpus=$(python3 -c 'import torch; print(torch.cuda.device_count())')
[ "$gpus" -ge 1 ] || { echo "no GPU here" >&2; exit 1; }
ranks=$((gpus > 2 ? 2 : gpus))
probe=tests/gpu/decode_probe.py
k25trace=(python3 -m k25trace)
torchrun() { printf '%s\n' python3 -m torch.distributed.run --nproc-per-node "$1" "${@:2}"; }

run() { # NAME COMMAND...: one capture, its transcript and its exit code
    local name=$1 began=$SECONDS code
    shift
    {
        printf '\n===== %s\n$ %s\n' "$name" "${*//$work/WORK}"
        timeout --signal=INT --kill-after=40 150 "$@" </dev/null 2>&1 | tr '\r' '\n' | grep -av '^\[[0-9]*/[0-9]* *\] \[' |
            grep -av '^\[[0-9]/[0-9]\]'
        code=${PIPESTATUS[0]}
        printf 'exit code %s after %s s\n' "$code" $((SECONDS - began))
    } >>"$out/transcript.txt"
    code=$(tail -n 1 "$out/transcript.txt" | awk '{print $3}')
    printf '%s %s\n' "$name" "$code" >>"$work/codes"
    echo "$name: exit code $code after $((SECONDS - began)) s"
}

capture() { # NAME RANKS CAPTURE_OPTIONS... -- PROBE_OPTIONS...
    local name=$1 ranks=$2 options=() program
    shift 2
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    mapfile -t program < <(torchrun "$ranks" "$probe" "$@")
    run "$name" "${k25trace[@]}" capture -o "$work/runs/$name" --preset torchrun "${options[@]}" -- "${program[@]}"
}

"${k25trace[@]}" doctor --format json >"$out/machine.json"

capture good "$ranks" --measure-overhead 2 --
if [ "$ranks" -gt 1 ]; then
    CUDA_VISIBLE_DEVICES=0 capture good-one-gpu 1 --
    mapfile -t launcher < <(torchrun "$ranks" --no-python)
    run per-rank "${launcher[@]}" "${k25trace[@]}" capture --per-rank -o "$work/runs/per" --preset torchrun -- \
        python3 "$probe"
fi
capture graph-mode "$ranks" --graphs graph --
capture graph-before-range "$ranks" -- --graph before
capture no-capture-range "$ranks" --capture-range none -- --no-range
capture range-never-opened "$ranks" -- --no-range
PYTHONPATH=$work/nvtx-0.2.14:$work/site:$repository capture nvtx-0.2.14 "$ranks" --

mkdir -p "$work/databases"
for database in "$work"/runs/*.sqlite; do
    "${k25trace[@]}" scrub "$database" -o "$work/databases/h200x$ranks-${database##*/}" >>"$out/transcript.txt" 2>&1
done
tar -C "$work" -I 'xz -T0 -6' -cf "$out/databases.txz" databases

python3 - "$work" "$out" "$ranks" <<'PYTHON'
import json
import sys
from pathlib import Path

work, out, ranks = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
# Name → lines of the check list that must be missing; every other line must not be. None: any, reported as it is.
EXPECTED = {
    "good": set(), "good-one-gpu": set(), "per.rank0": set(), "per.rank1": set(), "graph-mode": {"graph replays"},
    "graph-before-range": {"graph captures"}, "no-capture-range": None, "range-never-opened": {"report"},
    "nvtx-0.2.14": {"NVTX package"},
}
codes = dict(line.split() for line in (work / "codes").read_text().splitlines())
manifests, summary = {}, []
for name, wanted in EXPECTED.items():
    path = work / "runs" / f"{name}.k25.json"
    if name not in codes and not path.exists():
        continue
    manifest = json.loads(path.read_text()) if path.exists() else None
    manifests[name] = manifest
    by_status = {}
    for check in manifest["checks"] if manifest else []:
        by_status.setdefault(check["status"], []).append(check["name"])
    missing = set(by_status.get("missing", []))
    as_wanted = manifest is not None and (wanted is None or (missing == wanted if not wanted else wanted <= missing))
    summary.append({
        "capture": name, "exit_code": codes.get(name), "expected_missing": None if wanted is None else sorted(wanted),
        "as_expected": as_wanted, **{status: by_status.get(status, []) for status in ("missing", "cannot say", "ok")},
        "seen": {c["name"]: c["seen"] for c in manifest["checks"]} if manifest else {},
        "overhead": manifest and manifest["overhead"],
    })
(out / "manifests.json").write_text(json.dumps(manifests, indent=1) + "\n")
(out / "summary.json").write_text(json.dumps({"ranks": ranks, "captures": summary}, indent=1) + "\n")
for row in summary:
    print("as expected " if row["as_expected"] else "NOT EXPECTED", row["capture"], "missing:", row["missing"],
          "cannot say:", row["cannot say"])
sys.exit(0 if all(row["as_expected"] for row in summary) else 1)
PYTHON

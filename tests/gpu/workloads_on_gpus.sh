#!/usr/bin/env bash
# Run every workload on the GPUs of this machine (1 or more; made for 2), some of it under Nsight Systems.
#
#   OUT=DIR tests/gpu/workloads_on_gpus.sh        from the root of the repository, about 7 minutes on 2 H200
#
# Nothing is installed or fetched. Beside torch, numpy and rich, what it uses lies in .carry/ (all optional):
#   nsys*.txz             Nsight Systems, with target-linux-x64/nsys in it; or NSYS=/path/to/nsys. Without: no traces.
#   *.so.xz, *.so.*.xz    vLLM's _moe_C_stable_libtorch.abi3.so, compressed; or VLLM_OPS=/path. Without: no Marlin.
#   marlin-jit*.txz       the content of CUDA_CACHE_PATH after an earlier run, which saves its compilation (80 s)
#   nvtx-*.whl            Python's nvtx, 0.2.10 or 0.2.11
#
# Into $OUT: decode_*.sqlite and gemm.sqlite, bench.tar.gz (every JSON and log) and summary.txt.
# DEVICE=cpu PYTHON=... runs the same commands at tiny sizes on a CPU, to try the script itself.
set -uo pipefail
out=${OUT:?set OUT to the folder for the results}
root=$PWD
device=${DEVICE:-cuda} python=${PYTHON:-python3} budget=${BUDGET_S:-520}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/site" "$work/bench" "$out"
summary=$out/summary.txt
: >"$summary"
note() { printf '%4d s  %s\n' "$SECONDS" "$*" | tee -a "$summary"; }

# The package as it is installed: workloads and queries inside of it.
cp -r k25trace "$work/site/k25trace"
cp -r workloads "$work/site/k25trace/workloads"
cp -r queries "$work/site/k25trace/queries"

nsys=${NSYS:-} ops=${VLLM_OPS:-}
for archive in .carry/nsys*.txz; do
    [ -e "$archive" ] && [ -z "$nsys" ] && tar -C "$work" -xf "$archive" &&
        nsys=$(find "$work" -path '*target-linux-x64/nsys' -not -type d | head -n 1)
done
for archive in .carry/*.so.xz .carry/*.so.*.xz; do
    [ -e "$archive" ] && [ -z "$ops" ] && ops=$work/_moe_C_stable_libtorch.abi3.so &&
        "$python" -c 'import lzma, sys; open(sys.argv[2], "wb").write(lzma.open(sys.argv[1]).read())' "$archive" "$ops"
done
mkdir -p "$work/jit"
for archive in .carry/marlin-jit*.txz; do
    [ -e "$archive" ] && tar -C "$work/jit" -xf "$archive"
done
# The archive may hold the cache folder itself.
cache=$(find "$work/jit" -name index -printf '%h\n' | head -n 1)
for wheel in .carry/nvtx-*.whl; do
    [ -e "$wheel" ] && "$python" -m pip install --quiet --no-index --no-deps --target "$work/site" "$wheel"
done
export PYTHONPATH=$work/site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 COLUMNS=170
export CUDA_CACHE_PATH=${cache:-$work/jit} CUDA_CACHE_MAXSIZE=4294967296
# NVLink multicast stays off, wherever this runs.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}

cd "$work" || exit 1 # so that the repository's own folders are not imported
if [ "$device" = cpu ]; then
    gpus=${RANKS:-2}
    model=(--device cpu --preset tiny) small=(-M 2 --context 32) few=(-n 2 -w 1 --calls 2)
    batch=(-M 1,2) tp=(--tp 2) contexts=(--context 32) marlin=int4pack sizes=(-b 1K -e 4K -n 2 -w 1)
    decode_layers=3 cast_layers=3 one_layers=3 bursts=1,2
else
    gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
    model=(--device cuda --preset kimi-k2.5) small=(-M 4 --context 4096) few=(-n 20 -w 3 --calls 20)
    batch=(-M 1,8,64) tp=(--tp 8) contexts=(--context 4096) marlin=marlin sizes=(-b 8K -e 32M -n 20 -w 5)
    decode_layers=4 cast_layers=4 one_layers=3 bursts=1,4,16,64,256
fi
with_ops=()
[ -n "$ops" ] && [ "$device" = cuda ] && with_ops=(--vllm-ops "$ops")
[ "$device" = cuda ] && [ -z "$ops" ] && marlin=int4pack

step() { # NAME SECONDS COMMAND...: run it unless the time is up, keep its log, say how it went
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    if [ $((SECONDS + limit / 3)) -gt "$budget" ]; then
        note "$name: left out, $budget s are nearly over"
        return 1
    fi
    timeout --kill-after=5 "$limit" "$@" >"$work/bench/$name.log" 2>&1
    local code=$?
    note "$name: exit $code after $((SECONDS - began)) s"
    [ $code -eq 0 ] || { tail -n 12 "$work/bench/$name.log" | tee -a "$summary"; }
    grep -E 'tokens/s|^warning' "$work/bench/$name.log" | tee -a "$summary"
    return $code
}
ranks() { # N MODULE ARGUMENTS...: under torchrun
    local n=$1 module=$2
    shift 2
    echo "$python" -m torch.distributed.run --standalone --nproc-per-node "$n" -m "k25trace.workloads.$module" "${model[@]}" "$@"
}
profiled() { # NAME COMMAND...: under nsys, the recording opened by the program itself
    local name=$1 range=(--capture-range=cudaProfilerApi --capture-range-end=stop)
    shift
    [ "$device" = cpu ] && range=()
    echo "$nsys" profile --trace=cuda,nvtx --cuda-graph-trace=node --sample=none --cpuctxsw=none "${range[@]}" \
        --force-overwrite=true --export=sqlite --output="$work/$name" "$@"
}
traced() { # NAME SECONDS COMMAND...: with a trace if there is an nsys
    local name=$1 limit=$2
    shift 2
    if [ -z "$nsys" ]; then
        step "$name" "$limit" "$@"
        return
    fi
    # shellcheck disable=SC2046 # words without blanks
    step "$name" "$limit" $(profiled "$name" "$@")
    [ -e "$work/$name.sqlite" ] && cp "$work/$name.sqlite" "$out/"
}

note "$gpus x $device, nsys: ${nsys:+yes}, Marlin: ${ops:+yes}, JIT cache: ${cache:+yes}"
steps=(--eager-steps 4 --graph-steps 4)
pair=$((gpus < 2 ? 1 : 2))
# shellcheck disable=SC2046 # words without blanks
{
    if [ "$pair" -eq 2 ]; then
        traced decode_2gpu_marlin 200 $(ranks 2 decode --path $marlin --layers $decode_layers "${small[@]}" "${steps[@]}" "${with_ops[@]}" --json "$work/bench/decode_2gpu_marlin.json")
        traced decode_2gpu_cast 120 $(ranks 2 decode --path cast --layers $cast_layers "${small[@]}" "${steps[@]}" --json "$work/bench/decode_2gpu_cast.json")
    fi
    traced decode_1gpu_marlin 150 $(ranks 1 decode --path $marlin --layers $one_layers "${small[@]}" "${steps[@]}" "${with_ops[@]}" --json "$work/bench/decode_1gpu_marlin.json")
    if [ "$pair" -eq 2 ]; then
        step allreduce 90 $(ranks 2 allreduce "${sizes[@]}" -G 1 -M $bursts --with-gemm --operations all_reduce,all_gather,reduce_scatter --json "$work/bench/allreduce.json")
        # Apart: symmetric memory is experimental, and not every machine's GPUs can map each other's.
        step allreduce_one_shot 60 $(ranks 2 allreduce "${sizes[@]}" --no-burst --timeout 40 --operations one_shot --json "$work/bench/allreduce_one_shot.json")
    fi
    traced gemm 120 $(ranks 1 gemm "${batch[@]}" "${tp[@]}" "${few[@]}" --only qkv_a,o_proj,experts_w13,experts_w2,lm_head --ranks 1 "${with_ops[@]}" --json "$work/bench/gemm_profiled.json")
    step moe_routing 60 $(ranks 1 moe_routing "${batch[@]}" "${few[@]}" "${with_ops[@]}" --json "$work/bench/moe_routing.json")
    step mla_attention 60 $(ranks 1 mla_attention "${batch[@]}" "${tp[@]}" "${contexts[@]}" "${few[@]}" --prefill --json "$work/bench/mla_attention.json")
    step gemm_all_ranks 120 $(ranks "$pair" gemm "${batch[@]}" "${tp[@]}" "${few[@]}" "${with_ops[@]}" --json "$work/bench/gemm_all_ranks.json")
    if [ "$pair" -eq 2 ]; then
        step decode_2gpu_unprofiled 90 $(ranks 2 decode --path $marlin --layers $decode_layers "${small[@]}" "${steps[@]}" "${with_ops[@]}" --json "$work/bench/decode_2gpu_unprofiled.json")
        step allreduce_sweep 120 "$python" -m k25trace.workloads.allreduce "${model[@]}" --nproc 2 -M 1,8,64 --no-sizes -n 20 -w 3 \
            --sweep NCCL_PROTO=,LL,Simple --sweep NCCL_P2P_DISABLE=,1 --json "$work/bench/allreduce_sweep.json"
    fi
}
cd "$root" || exit 1
tar -C "$work" -czf "$out/bench.tar.gz" bench
if [ -z "${cache:-}" ] && [ "$device" = cuda ] && [ -n "$(ls -A "$CUDA_CACHE_PATH" 2>/dev/null)" ]; then
    tar -C "$work/jit" -cJf "$out/marlin-jit.txz" .
fi
note "done: $(du -ch "$out"/* | tail -n 1 | cut -f 1) in $(find "$out" -type f | wc -l) files"

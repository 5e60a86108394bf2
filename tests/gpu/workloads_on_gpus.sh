#!/usr/bin/env bash
# Run every workload on the GPUs of this machine (all of them, or GPUS of them), much of it through `k25trace capture`.
#
#   OUT=DIR tests/gpu/workloads_on_gpus.sh        from the root of the repository, about 8 minutes on 2 H200
#   ONLY='decode_2gpu_late gemm' OUT=DIR ...      some of the steps; decode_8gpu_... on 8 GPUs
#
# Nothing is installed or fetched. Beside torch, numpy and rich, what it uses lies in .carry/ (all optional):
#   nsys*.txz             Nsight Systems, with target-linux-x64/nsys in it; or NSYS=/path/to/nsys. Without: no traces.
#   *.so.xz, *.so.*.xz    vLLM's _moe_C_stable_libtorch.abi3.so, compressed; or VLLM_OPS=/path. Without: no Marlin.
#   marlin-jit*.txz       the content of CUDA_CACHE_PATH after an earlier run, which saves its compilation (80 s)
#   nvtx-*.whl            Python's nvtx, 0.2.10 or 0.2.11
#
# Into $OUT: traces.txz (SQLite, not scrubbed), bench.tar.gz (every JSON, manifest and log) and summary.txt.
# The decode runs are made to be compared: *_late is *_marlin with its graph captured before the recording, *_second
# is the same model with other weights and tokens, *_skew has a late rank.
# DEVICE=cpu RANKS=N PYTHON=... runs the same commands at tiny sizes on a CPU, to try the script itself.
set -uo pipefail
out=${OUT:?set OUT to the folder for the results}
root=$PWD
device=${DEVICE:-cuda} python=${PYTHON:-python3} budget=${BUDGET_S:-520} only=${ONLY:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/site" "$work/bench" "$work/traces" "$out"
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
    decode_layers=3 cast_layers=3 one_layers=3 skew_layers=2 bursts=1,2 two_sizes=(-b 1K -e 4K -n 2 -w 1 -M 1)
    batch_traced=(-M 2) few_traced=(-n 2 -w 1 --calls 2)
else
    gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
    model=(--device cuda --preset kimi-k2.5) small=(-M 4 --context 4096) few=(-n 20 -w 3 --calls 20)
    batch=(-M 1,8,64) tp=(--tp 8) contexts=(--context 4096) marlin=marlin sizes=(-b 8K -e 32M -n 20 -w 5)
    decode_layers=4 cast_layers=3 one_layers=3 skew_layers=2 bursts=1,4,16,64,256
    two_sizes=(-b 8K -e 8M -f 32 -n 3 -w 1 -M 4) batch_traced=(-M 8) few_traced=(-n 4 -w 1 --calls 8)
fi
with_ops=()
[ -n "$ops" ] && [ "$device" = cuda ] && with_ops=(--vllm-ops "$ops")
[ "$device" = cuda ] && [ -z "$ops" ] && marlin=int4pack

step() { # NAME SECONDS COMMAND...: run it unless the time is up, keep its log, say how it went
    local name=$1 limit=$2 began=$SECONDS
    shift 2
    [ -n "$only" ] && [[ " $only " != *" $name "* ]] && return 0
    if [ $((SECONDS + limit / 3)) -gt "$budget" ]; then
        note "$name: left out, $budget s are nearly over"
        return 1
    fi
    timeout --signal=INT --kill-after=20 "$limit" "$@" </dev/null 2>&1 | tr '\r' '\n' |
        grep -avE '^\[[0-9]/[0-9] *\] *\[' >"$work/bench/$name.log"
    local code=${PIPESTATUS[0]}
    note "$name: exit $code after $((SECONDS - began)) s"
    [ $code -eq 0 ] || { tail -n 12 "$work/bench/$name.log" | tee -a "$summary"; }
    grep -aE 'tokens/s|^warning|^missing|^cannot say|Unknown .* API' "$work/bench/$name.log" | tee -a "$summary"
    return $code
}
ranks() { # N MODULE ARGUMENTS...: under torchrun
    local n=$1 module=$2
    shift 2
    echo "$python" -m torch.distributed.run --standalone --nproc-per-node "$n" -m "k25trace.workloads.$module" "${model[@]}" "$@"
}
profiled() { # NAME COMMAND...: captured, the recording opened by the program itself
    local name=$1 range=(--preset torchrun)
    shift
    [ "$device" = cpu ] && range=(--capture-range none)
    echo "$python" -m k25trace capture -o "$work/traces/$name" "${range[@]}" --nsys "$nsys" -- "$@"
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
    [ -e "$work/traces/$name.k25.json" ] && mv "$work/traces/$name.k25.json" "$work/bench/"
    rm -f "$work/traces/$name.nsys-rep"
}

note "$gpus x $device, nsys: ${nsys:+yes}, Marlin: ${ops:+yes}, JIT cache: ${cache:+yes}"
world=${GPUS:-$gpus}
decode() { # NAME GPUS SECONDS ARGUMENTS...: traced
    local name=$1 n=$2 limit=$3
    shift 3
    # shellcheck disable=SC2046 # words without blanks
    traced "$name" "$limit" $(ranks "$n" decode "${small[@]}" "$@" --json "$work/bench/$name.json")
}
with_marlin=(--path "$marlin" "${with_ops[@]}")
# shellcheck disable=SC2046 # words without blanks
{
    if [ "$world" -ge 2 ]; then
        decode decode_${world}gpu_marlin "$world" 150 "${with_marlin[@]}" --layers $decode_layers --eager-steps 5 --graph-steps 20
        decode decode_${world}gpu_late "$world" 90 "${with_marlin[@]}" --layers $decode_layers --eager-steps 0 --graph-steps 20 --graph-capture before
        decode decode_${world}gpu_second "$world" 90 "${with_marlin[@]}" --layers $decode_layers --eager-steps 2 --graph-steps 12 --seed 1
        decode decode_${world}gpu_skew "$world" 90 "${with_marlin[@]}" --layers $skew_layers --eager-steps 4 --graph-steps 8 --skew 1:300
        decode decode_${world}gpu_cast "$world" 90 --path cast --layers $cast_layers --eager-steps 4 --graph-steps 6
    fi
    decode decode_1gpu_marlin 1 90 "${with_marlin[@]}" --layers $one_layers --eager-steps 4 --graph-steps 8
    traced gemm 90 $(ranks 1 gemm "${batch_traced[@]}" "${tp[@]}" "${few_traced[@]}" --only qkv_a,o_proj,experts_w13,experts_w2,lm_head,experts --paths marlin,cast --ranks 1 "${with_ops[@]}" --json "$work/bench/gemm.json")
    traced moe_routing 60 $(ranks 1 moe_routing "${batch_traced[@]}" "${few_traced[@]}" "${with_ops[@]}" --json "$work/bench/moe_routing.json")
    traced mla_attention 60 $(ranks 1 mla_attention "${batch_traced[@]}" "${tp[@]}" "${contexts[@]}" "${few_traced[@]}" --prefill --json "$work/bench/mla_attention.json")
    if [ "$world" -ge 2 ]; then
        # With NCCL's support for graphs beside eager calls, each captured call has nodes of its own for it, and a burst of
        # them is as fast as the host launches it; the sweep has both.
        NCCL_GRAPH_MIXING_SUPPORT=0 traced allreduce 90 $(ranks "$world" allreduce "${two_sizes[@]}" -G 1 --burst burst --operations all_reduce,all_gather,reduce_scatter --json "$work/bench/allreduce.json")
        # Apart: symmetric memory is experimental, and not every machine's GPUs can map each other's.
        step allreduce_one_shot 60 $(ranks "$world" allreduce "${sizes[@]}" -G 1 --no-burst --timeout 40 --operations one_shot --json "$work/bench/allreduce_one_shot.json")
        step allreduce_sizes 90 $(ranks "$world" allreduce "${sizes[@]}" -G 1 -M $bursts --with-gemm --operations all_reduce,all_gather,reduce_scatter --json "$work/bench/allreduce_sizes.json")
        step decode_${world}gpu_unprofiled 60 $(ranks "$world" decode "${with_marlin[@]}" --layers $decode_layers "${small[@]}" --eager-steps 5 --graph-steps 20 --json "$work/bench/decode_${world}gpu_unprofiled.json")
        step decode_${world}gpu_all_that_fits 120 $(ranks "$world" decode "${with_marlin[@]}" "${small[@]}" --eager-steps 10 --graph-steps 30 --json "$work/bench/decode_${world}gpu_all_that_fits.json")
    fi
    step gemm_all_ranks 90 $(ranks "$world" gemm "${batch[@]}" "${tp[@]}" "${few[@]}" "${with_ops[@]}" --json "$work/bench/gemm_all_ranks.json")
    step moe_routing_sizes 40 $(ranks 1 moe_routing "${batch[@]}" "${few[@]}" "${with_ops[@]}" --json "$work/bench/moe_routing_sizes.json")
    step mla_attention_sizes 40 $(ranks 1 mla_attention "${batch[@]}" "${tp[@]}" "${contexts[@]}" "${few[@]}" --prefill --json "$work/bench/mla_attention_sizes.json")
    if [ "$world" -ge 2 ]; then
        step allreduce_mixing 90 "$python" -m k25trace.workloads.allreduce "${model[@]}" --nproc "$world" -M 1,4,64 "${sizes[@]}" -G 1 \
            --sweep NCCL_GRAPH_MIXING_SUPPORT=,0 --json "$work/bench/allreduce_mixing.json"
        step allreduce_sweep 120 "$python" -m k25trace.workloads.allreduce "${model[@]}" --nproc "$world" -M 1,8,64 --no-sizes -n 20 -w 3 \
            --sweep NCCL_PROTO=,LL,Simple --sweep NCCL_P2P_DISABLE=,1 --json "$work/bench/allreduce_sweep.json"
    fi
}
cd "$root" || exit 1
tar -C "$work" -czf "$out/bench.tar.gz" bench
tar -C "$work" -I 'xz -T0 -6' -cf "$out/traces.txz" traces
if [ -z "${cache:-}" ] && [ "$device" = cuda ] && [ -n "$(ls -A "$CUDA_CACHE_PATH" 2>/dev/null)" ]; then
    tar -C "$work/jit" -cJf "$out/marlin-jit.txz" .
fi
note "done: $(du -ch "$out"/* | tail -n 1 | cut -f 1) in $(find "$out" -type f | wc -l) files"

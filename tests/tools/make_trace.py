#!/usr/bin/env python3
"""Generate a synthetic Nsight Systems SQLite export of tensor-parallel LLM decode, with exact ground truth.

    make_trace.py --kernels 1000000 --gpus 8 --seed 1 --out t.sqlite --truth t.json
    make_trace.py --kernels 60000 --gpus 2 --layers 4 --graph-mode node --skew 1:80000 --out g.sqlite

What it models
  * Tables and columns as `nsys export --type sqlite` writes them: `--schema 2023` is 2023.4.4, schema
    3.7.2, checked against real traces; `--schema 2025` adds what 2025.x adds.  One process and one GPU a
    rank.
  * A step is NVTX `decode_step` (domain vllm) > `forward` > `layer.N` > {mla_attention, allreduce,
    moe_routing, gemm, allreduce}, then an AllGather and `sampling`.  Kernel names and their labels
    (category, family) are rows of the labelled corpus.
  * Streams are FIFO; cross-stream order comes from event waits.  NCCL has its own stream (some of its
    kernels overlap the next compute), shared-expert kernels run on a third, an input copy on a fourth.
    No kernel starts before its launch call started.
  * Collectives are synchronised and all clocks are one: every rank of a collective ends within 300 ns of
    the others, none before the last arrival + the transfer; who comes early has the longer kernel.  Ranks
    are late by --skew, by random skew and by host stalls.
  * NVTX domain NCCL holds `ncclAllReduce` / `ncclAllGather` inside your ranges, eager and during capture.
  * CUDA graphs: the forward is captured once (launch calls without kernels; an event-record node a
    collective) and instantiated twice; node ids are (graph << 32) + n from 0, the same in every process.
    --graph-mode node: kernels with graphNodeId.  graph: a replay leaves no kernel row (2023: only its
    cudaGraphLaunch; 2025: GRAPH_TRACE rows).  late: captured before the recording, so nodes at negative
    times and no capture-time range or call.
  * Known idle time: a sync inside eager steps and at the end of each, host stalls, pauses between steps.
Deliberate traps
  * correlationId counts from the same value in every process; graphNodeIds collide likewise; NVTX domain
    ids differ between ranks;
  * kernels outside every range; kernels in a range that never ends; names in text, in textId, and in
    domains;
  * start/end ranges, also across threads; another thread whose ranges enclose the launches; an unclosed
    one there; marks;
  * --outer: a range around capture and steps; --open-capture: the first replay runs inside a range opened
    during the capture;
  * --hw-id 1 puts globalTid/globalPid above 2**53 and >= 128 makes them negative; --order shuffle breaks
    the order of rows; --device-ids zero makes every process report device 0, so that deviceId alone is no
    GPU.
What it does not model
  * real durations, tensor shapes, launch geometry or call mix (all plausible, none measured); clock error
    between ranks or clipped clocks; dropped events; CUDA callchains; CPU samples; unusable times; several
    contexts a process; prefill; pipeline or expert parallelism.
  * The bulk ENUM tables (two are subsets), comments in the DDL, and mangled names: known ones are real,
    others a stand-in.
  * Stream ids of graph kernels on parallel branches: those of the capture.  What 2023.4 writes into
    CUDA_GRAPH_EVENTS in graph mode: nothing.

Truth (JSON): see "definitions" in the file itself.  Standard library and
numpy only.  Same arguments -> same rows.
"""

from __future__ import annotations

import argparse
import os

from synthetic.build import build


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument(
        "--kernels",
        type=int,
        default=100_000,
        help="kernels that run; in graph mode those of replays leave no row",
    )
    p.add_argument("--gpus", type=int, default=8, help="ranks; one process and one GPU each")
    p.add_argument("--layers", type=int, default=61, help="decoder layers (fewer are used for small traces)")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument(
        "--graph-mode",
        choices=["node", "graph", "late"],
        help="how the report shows CUDA graphs (default node)",
    )
    p.add_argument(
        "--graph-fraction",
        type=float,
        help="share of the steps replayed from a CUDA graph (default 0; 0.5 where --graph-mode is given)",
    )
    p.add_argument("--schema", choices=["2023", "2025"], default="2023")
    p.add_argument(
        "--skew",
        action="append",
        default=[],
        metavar="RANK:NS",
        help="that rank is late by about NS in every step; may be repeated",
    )
    p.add_argument(
        "--random-skew",
        type=float,
        default=8000,
        metavar="NS",
        help="mean of the random lateness of each rank in each step",
    )
    p.add_argument(
        "--custom-allreduce",
        action="store_true",
        help="the first all-reduce of a layer is cross_device_reduce, not NCCL",
    )
    p.add_argument("--outer", action="store_true", help="a range around capture and steps")
    p.add_argument(
        "--open-capture",
        action="store_true",
        help="the first replay runs inside a range opened during the capture",
    )
    p.add_argument(
        "--order", choices=["process", "shuffle"], default="process", help="row order inside a process block"
    )
    p.add_argument("--device-ids", choices=["rank", "zero"], default="rank")
    p.add_argument(
        "--hw-id",
        type=int,
        default=0,
        help="top byte of the GlobalIds; 1 puts them above 2**53, 128 makes them negative",
    )
    p.add_argument("--out", required=True)
    p.add_argument("--truth", help="default: OUT with .truth.json")
    p.add_argument("--quiet", action="store_true")
    a = p.parse_args()
    a.truth = a.truth or os.path.splitext(a.out)[0] + ".truth.json"
    if a.graph_fraction is None:
        a.graph_fraction = 0.5 if a.graph_mode else 0.0
    a.graph_mode = a.graph_mode or "node"
    try:
        a.skew = [tuple(int(float(x)) for x in s.split(":", 1)) for s in a.skew]
    except ValueError:
        p.error("--skew wants RANK:NS")
    if a.kernels < a.gpus or a.gpus < 1 or a.layers < 1 or not 0 <= a.graph_fraction <= 1 or not 0 <= a.hw_id <= 255:
        p.error("need --kernels >= --gpus >= 1, --layers >= 1, 0 <= --graph-fraction <= 1, 0 <= --hw-id <= 255")
    if any(len(s) != 2 or not 0 <= s[0] < a.gpus or s[1] < 0 for s in a.skew) or a.random_skew < 0:
        p.error("--skew wants RANK:NS with 0 <= RANK < --gpus and NS >= 0, --random-skew NS >= 0")
    if a.open_capture and (a.graph_mode == "late" or not a.graph_fraction):
        p.error("--open-capture needs a graph captured in the recording")
    build(a)


if __name__ == "__main__":
    main()

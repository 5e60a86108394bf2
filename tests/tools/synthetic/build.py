"""Simulate all ranks, write the rows and the truth."""
# ruff: noqa: B006, B023, PLW2901 - one long function over the ranks; its helpers are called where they are made

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict

import numpy as np

from synthetic.intervals import merge, partition, union_ns
from synthetic.kernels import (
    AIDX,
    APIS,
    AUX,
    CAT,
    COMPUTE,
    COPY,
    D2H,
    DRIVER_API,
    EXPOSED,
    FAM,
    FAMILIES,
    H2D,
    IS_COMM,
    IS_NCCL,
    KEYS,
    KIDX,
    NCCL,
    NK,
    ROWS,
    SET,
    TAXONOMY,
    K,
)
from synthetic.program import Program, jitter, simulate
from synthetic.schema import ENUMS, Strings, Writer, obj, signed
from synthetic.truth import DEFINITIONS, acc, add_inclusive, collectives_truth, gaps_truth, sums


def per_rank(a):
    """Kernels of each rank: the steps are the same on all, what is left over runs before and after them."""
    layers = a.layers
    per = [a.kernels // a.gpus + (g < a.kernels % a.gpus) for g in range(a.gpus)]
    size = Program("eager", 1, a.custom_allreduce).n_kernels
    per_layer = Program("eager", 2, a.custom_allreduce).n_kernels - size
    while layers > 1 and (size + (layers - 1) * per_layer) * 4 > min(per):
        layers -= 1
    nk = size + (layers - 1) * per_layer
    return layers, nk, min(per) // nk, [p - min(per) // nk * nk for p in per]


def build(a):
    t_begin = time.time()
    R = a.gpus
    layers, nk, steps, rest = per_rank(a)
    prog = {
        False: Program("eager", layers, a.custom_allreduce),
        True: Program("replay", layers, a.custom_allreduce),
    }
    capture = Program("capture", layers, a.custom_allreduce)
    assert prog[False].n_kernels == prog[True].n_kernels == nk
    assert capture.n_nodes == prog[True].n_nodes == len(capture.node_host)
    sim = np.random.default_rng([a.seed, 1])
    is_graph = np.zeros(steps, bool)
    if a.graph_fraction > 0 and steps:
        n = min(
            max(round(a.graph_fraction * steps), 1),
            steps if a.graph_fraction >= 1 or steps == 1 else steps - 1,
        )
        is_graph[sim.permutation(steps)[:n]] = True
        if a.open_capture and not is_graph[0]:
            is_graph[np.flatnonzero(is_graph)[0]], is_graph[0] = False, True
    any_graph = bool(is_graph.any())
    instance = np.where(sim.random(steps) < 0.3, 3, 2)
    visible_replay = a.graph_mode != "graph"

    # ------------------------------------------------ times of all ranks
    late = sim.exponential(max(a.random_skew, 1e-9), (steps, R))
    for r, ns in a.skew:
        late[:, r] += ns * (0.9 + 0.2 * sim.random(steps))
    late = np.rint(late).astype(np.int64)
    sims, length = {}, np.zeros(steps, np.int64)
    for flag in (False, True):
        idx = np.flatnonzero(is_graph == flag)
        if len(idx):
            h0, h1, d0, d1, n = simulate(prog[flag], len(idx), R, sim, late[idx])
            length[idx] = n
            sims[flag] = (
                idx,
                *[np.ascontiguousarray(x.transpose(2, 1, 0)) for x in (h0, h1, d0, d1)],
            )  # [rank, step, op]
            del h0, h1, d0, d1
    base = 1_000_000_000 + int(sim.integers(0, 50_000_000))
    pro = []  # prologue: kernels outside every range
    n_epi = [min(x, 3) if steps else 0 for x in rest]
    for g in range(R):
        rng = np.random.default_rng([a.seed, 2, g])
        n = rest[g] - n_epi[g]
        cost = jitter(rng, 2600, n, 0.2)
        adv = cost + jitter(rng, 1500, n, 0.3)
        h0 = base + 3000 * g + np.cumsum(adv) - adv
        d0 = h0 + cost + 1000
        pro.append(
            (
                h0,
                h0 + cost,
                d0,
                d0 + np.minimum(jitter(rng, 1500, n, 0.07), adv - 1),
                int(h0[-1] + adv[-1]) if n else base,
            )
        )
    now = max(p[4] for p in pro) + 40_000
    engine0 = now - 20_000
    cap = None
    if any_graph:
        h0, h1, _, _, n = simulate(capture, 1, R, sim, np.zeros((1, R)))
        at = -300_000_000 - int(n[0]) if a.graph_mode == "late" else now
        cap = (h0[:, 0, :].T + at, h1[:, 0, :].T + at, at)
        if a.graph_mode != "late":
            now += int(n[0]) + 60_000
    window_start = now
    pause = jitter(sim, 260_000, steps, 0.5)
    off = now + 10_000 + np.cumsum(length + pause) - (length + pause)
    steps_end = int(off[-1] + length[-1]) if steps else now
    end_all = steps_end + 60_000

    # ------------------------------------------------ names, paths
    st = Strings()
    for s in (
        "",
        "[Unknown]",
        "python3",
        "VLLM::Worker_TP",
        "nccl-proxy",
        "[pt_main_thread]",
        "Graph Node Creation",
        "CUPTI: Buffer flush",
    ):
        st(s)
    kid = np.array([[st(K[k][1]), st(K[k][0]), st(K[k][2])] for k in KEYS])
    kattr = np.array([K[k][7] for k in KEYS])
    aid = np.array([st(x) for x in APIS])
    paths: dict[tuple, int] = {}

    def path_id(names, via="launch", domain="default"):
        return paths.setdefault((names, via, domain), len(paths))

    none, drain = path_id(None, "launch", None), path_id(("drain",))
    engine = ("engine",) if a.outer else ()

    def dev_paths(p, first, template=False):
        out = []
        for r, c, node in zip(p.owner, p.cap, p.node, strict=True):
            names, dom = Program.path(p.ranges, r)
            names = engine + (("graph_capture", "capture_run") if first and a.open_capture else ()) + names
            if node >= 0 and (template or a.graph_mode == "node"):
                own, cdom = Program.path(p.caps, c)
                own = (("capture_run",) if a.open_capture and not first else ()) + own
                out.append(path_id(names + own, "template" if template else "capture", cdom))
            else:
                out.append(path_id(names, "launch", dom))
        return np.array(out)

    step_paths = {f: (dev_paths(prog[f], False), dev_paths(prog[f], True)) for f in sims}
    template_paths = dev_paths(prog[True], False, True) if a.graph_mode == "late" and any_graph else None

    w = Writer(a.out, a.schema)
    new = a.schema == "2025"
    ambiguous = a.device_ids == "zero" and not new and R > 1
    vm = signed((a.hw_id << 56) | (1 << 48))
    lo, hi, t_max = None, None, end_all
    truth_dev, gpus, excl, tmpl, inclusive, startend = {}, [], [], [], defaultdict(lambda: [0, 0]), []
    nvtx = {"innermost": {}, "inclusive": {}, "unattributed": {"kernels": 0, "ns": 0}}
    kind_count, kind_ns = np.zeros(NK, np.int64), np.zeros(NK, np.int64)
    later = []  # what needs the window, per rank
    hi_never = np.iinfo(np.int64).max
    gpu_rows = []

    for g in range(R):
        rng = np.random.default_rng([a.seed, 3, g])
        dev = 0 if a.device_ids == "zero" else g
        pid = 41000 + 7 * g
        gpid = signed((a.hw_id << 56) | (1 << 48) | (pid << 24))
        tid, tid2, tid3 = gpid + pid, gpid + pid + 3, gpid + pid + 5
        domains = {"NCCL": 1, "vllm": 2} if g % 2 == 0 else {"vllm": 1, "NCCL": 2}
        corr = 1000
        rt, dv, nv, nodes, sync, events = [], [], [], [], [], []
        starts, ends = [], []  # synchronizing calls of the main thread
        h0, h1, d0, d1, _ = pro[g]
        n = len(h0)

        def put_dev(d0, d1, kind, stream, corr, node, step, path, launch, launched, tpl=-1):
            m = len(d0)
            full = lambda x: np.broadcast_to(np.asarray(x, np.int64), m)  # noqa: E731
            dv.append([full(x) for x in (d0, d1, kind, stream, corr, node, step, path, launch, launched, tpl)])

        rt.append((h0, h1, np.full(n, AIDX["cudaLaunchKernel_v7000"]), corr + np.arange(n)))
        put_dev(d0, d1, KIDX["fill"], COMPUTE, corr + np.arange(n), -1, -1, none, h0, h1)
        corr += n + 5

        # ------------------------------------------------ capture
        span_end = lambda s: int(off[s] + length[s])  # noqa: E731
        if cap:
            h0, h1 = cap[0][g], cap[1][g]
            if a.graph_mode != "late":
                close = span_end(0) + 1000 if a.open_capture else int(h1[-1]) + 400
                nv.append((int(h0[0]) - 2500, close + 600, 59, "graph_capture", "text", tid, None, None))
                if a.open_capture:
                    nv.append((int(h1[0]), close, 59, "capture_run", "text", tid, None, None))
                for r, (name, kind, _) in enumerate(capture.ranges):
                    nv.append(
                        (
                            int(h0[capture.push_op[r]]),
                            int(h1[capture.pop_op[r]]),
                            59,
                            name,
                            kind,
                            tid,
                            None,
                            None,
                        )
                    )
                am = capture.is_api
                c = corr + np.arange(int(am.sum()))
                rt.append((h0[am], h1[am], capture.api_kind[am], c))
                side_rows(sync, events, capture.api_kind[am], h0[am], h1[am], c)
                corr += int(am.sum()) + 5
            if visible_replay:
                nh = np.array(capture.node_host)
                x = h0[nh] + (h1[nh] - h0[nh]) * 3 // 4
                nodes += [(int(t), (1 << 32) + i, None) for i, t in enumerate(x)]
                for exe, host in zip((2, 3), capture.inst_host, strict=True):
                    gap = int((h1[host] - h0[host] - 1000) // capture.n_nodes)
                    x = h0[host] + 500 + gap * np.arange(capture.n_nodes)
                    y = x + rng.integers(330, min(1900, gap - 50), capture.n_nodes)
                    for i in range(capture.n_nodes):
                        if not (new and i % 2):  # 2023: always two rows; 2025 here: one or two
                            nodes.append((int(x[i]), (exe << 32) + i, None))
                        nodes.append((int(y[i]), (exe << 32) + i, (1 << 32) + i))

        # ------------------------------------------------ steps
        n_api = np.where(is_graph, prog[True].is_api.sum(), prog[False].is_api.sum())
        coff = corr + np.cumsum(n_api + 3) - (n_api + 3)
        spans = np.zeros(
            (0, 6), np.int64
        )  # replays: step, start, end, correlation id, start and end of the launch call
        hidden = {"kernel_count": 0, "kernel_ns": 0, "busy_ns": 0}
        first_dev, last_dev = np.full(steps, -1), np.full(steps, -1)
        for flag, (idx, h0, h1, d0, d1) in sims.items():
            p, S = prog[flag], len(idx)
            o = off[idx][:, None]
            h0, h1, d0, d1 = h0[g] + o, h1[g] + o, d0[g] + o, d1[g] + o
            am = p.is_api
            cop = coff[idx][:, None] + (np.cumsum(am) - 1)[None, :]
            kinds = np.tile(p.api_kind[am], S)
            rt.append((h0[:, am].ravel(), h1[:, am].ravel(), kinds, cop[:, am].ravel()))
            side_rows(sync, events, kinds, *[x.ravel() for x in (h0[:, am], h1[:, am], cop[:, am])])
            starts.append(h0[:, p.sync_host].ravel())
            ends.append(h1[:, p.sync_host].ravel())
            node = (
                np.where(p.node >= 0, p.node, -1)[None, :]
                + np.where(p.node >= 0, 1, 0)[None, :] * (instance[idx] << 32)[:, None]
            )
            base_path, first_path = step_paths[flag]
            path = np.where((idx == 0)[:, None], first_path[None, :], base_path[None, :])
            seen = np.ones(len(p.dev), bool) if visible_replay else p.node < 0
            flat = lambda x: x[:, seen].ravel()  # noqa: E731
            tpl = template_paths if flag and template_paths is not None else np.full(len(p.dev), -1)
            put_dev(
                flat(d0),
                flat(d1),
                np.tile(p.kind[seen], S),
                np.tile(p.stream[seen], S),
                flat(cop[:, p.launch]),
                flat(node),
                np.repeat(idx, int(seen.sum())),
                flat(path),
                flat(h0[:, p.launch]),
                flat(h1[:, p.launch]),
                np.tile(np.where(p.node >= 0, tpl, -1)[seen], S),
            )
            first_dev[idx], last_dev[idx] = d0[:, seen].min(axis=1), d1[:, seen].max(axis=1)
            if flag:
                inside = p.node >= 0
                spans = np.stack(
                    [
                        idx,
                        d0[:, inside].min(axis=1),
                        d1[:, inside].max(axis=1),
                        cop[:, p.graph_host],
                        h0[:, p.graph_host],
                        h1[:, p.graph_host],
                    ],
                    axis=1,
                )
                if not visible_replay:
                    k = inside & (p.kind < NK)
                    hidden = {
                        "kernel_count": int(k.sum()) * S,
                        "kernel_ns": int((d1 - d0)[:, k].sum()),
                        "busy_ns": union_ns(d0[:, k].ravel(), d1[:, k].ravel()),
                    }
            # ranges, and what nvtx_kern_sum sees of them
            is_k = (p.kind < NK) & seen
            kdur = np.where(is_k, d1 - d0, 0)
            for r, (name, kind, _) in enumerate(p.ranges):
                i0, i1 = p.range_dev[r]
                nv.append((h0[:, p.push_op[r]], h1[:, p.pop_op[r]], 59, name, kind, tid, None, None))
                vis = np.flatnonzero(seen[i0:i1]) + i0
                add_inclusive(
                    nvtx["inclusive"],
                    {"vllm": "vllm:", "nccl": "NCCL:"}.get(kind, "") + name,
                    int(is_k[i0:i1].sum()) * S,
                    int(kdur[:, i0:i1].sum()),
                    S,
                    len(vis) * S,
                    int((d1[:, vis].max(axis=1) - d0[:, vis].min(axis=1)).sum()) if len(vis) else 0,
                    int((h1[:, p.pop_op[r]] - h0[:, p.push_op[r]]).sum()),
                )
            nv.append((h1[:, -1] + 400, None, 34, "token", "text", tid, None, None))
        corr = int(coff[-1] + n_api[-1] + 10) if steps else corr
        if steps:  # another thread of the process calls CUDA too
            q = off + rng.integers(1000, 90_000, steps)
            n = len(q)
            proxy = (
                q,
                q + jitter(rng, 900, n, 0.2),
                np.full(n, AIDX["cudaEventQuery_v3020"]),
                corr + np.arange(n),
            )
            corr += n + 5
        else:
            proxy = None
        # ------------------------------------------------ epilogue: a range that never ends
        n = n_epi[g]
        x = steps_end + 8000 + 6000 * np.arange(n)
        rt.append((x, x + 2500, np.full(n, AIDX["cudaLaunchKernel_v7000"]), corr + np.arange(n)))
        put_dev(
            x + 3600,
            x + 5000 + 100 * np.arange(n),
            KIDX["fill"],
            COMPUTE,
            corr + np.arange(n),
            -1,
            -2,
            drain,
            x,
            x + 2500,
        )
        if n:
            nv.append((steps_end + 5000, None, 59, "drain", "text", tid, None, None))
            add_inclusive(
                nvtx["inclusive"],
                "drain",
                n,
                int((1400 + 100 * np.arange(n)).sum()),
                1,
                n,
                int(x[-1] + 5000 + 100 * (n - 1) - x[0] - 3600),
                0,
            )
        if a.outer:
            nv.append((engine0, steps_end + 2500, 59, "engine", "text", tid, None, None))

        # ------------------------------------------------ device rows
        d0, d1, kind, stream, dc, node, step, path, launch, launched, tpl = (
            np.concatenate(x) for x in zip(*dv, strict=True)
        )
        o = rng.permutation(len(d0)) if a.order == "shuffle" else np.lexsort((kind, d0))
        d0, d1, kind, stream, dc, node, step, path, launch, launched, tpl = (
            x[o] for x in (d0, d1, kind, stream, dc, node, step, path, launch, launched, tpl)
        )
        km = kind < NK
        s, e, k, has, kn = d0[km], d1[km], kind[km], node[km] >= 0, node[km]
        n = len(s)
        at = kattr[k]
        common = {"deviceId": dev, "contextId": 1, "globalPid": gpid}
        if n:
            w.put(
                "CUPTI_ACTIVITY_KIND_KERNEL",
                **common,
                greenContextId=0,
                start=s,
                end=e,
                streamId=stream[km],
                correlationId=dc[km],
                demangledName=kid[k, 0],
                shortName=kid[k, 1],
                mangledName=kid[k, 2],
                launchType=1,
                cacheConfig=1,
                registersPerThread=at[:, 0],
                **{
                    c: at[:, i]
                    for i, c in enumerate(
                        (
                            "gridX",
                            "gridY",
                            "gridZ",
                            "blockX",
                            "blockY",
                            "blockZ",
                            "staticSharedMemory",
                            "dynamicSharedMemory",
                        ),
                        1,
                    )
                },
                localMemoryPerThread=0,
                localMemoryTotal=250871808,
                gridId=np.arange(1, n + 1),
                sharedMemoryExecuted=np.where(at[:, 8] > 49152, 233472, 32768),
                sharedMemoryLimitConfig=(at[:, 8] > 49152).astype(int),
                graphNodeId=obj(has, kn) if has.any() else None,
                graphId=obj(has, kn >> 32) if has.any() else None,
                clusterX=np.where(at[:, 0] >= 168, 2, 1),
                clusterY=1,
                clusterZ=1,
            )
        for what, copy, src, dst, size in ((H2D, 1, 1, 2, 4096), (D2H, 2, 2, 1, 1024)):
            m = kind == what
            if m.any():
                w.put(
                    "CUPTI_ACTIVITY_KIND_MEMCPY",
                    **common,
                    greenContextId=0,
                    start=d0[m],
                    end=d1[m],
                    streamId=stream[m],
                    correlationId=dc[m],
                    bytes=size,
                    copyKind=copy,
                    srcKind=src,
                    dstKind=dst,
                    copyCount=1,
                )
        m = kind == SET
        if m.any():
            w.put(
                "CUPTI_ACTIVITY_KIND_MEMSET",
                **common,
                greenContextId=0,
                start=d0[m],
                end=d1[m],
                streamId=stream[m],
                correlationId=dc[m],
                value=0,
                bytes=2048,
                graphNodeId=obj(node[m] >= 0, node[m]) if (node[m] >= 0).any() else None,
                memKind=2,
            )
        # ------------------------------------------------ host rows
        h0, h1, ak, c = (np.concatenate(x) for x in zip(*rt, strict=True))
        thread = np.full(len(h0), tid)
        if proxy:
            h0, h1, ak, c = (np.concatenate(x) for x in zip((h0, h1, ak, c), proxy, strict=True))
            thread = np.append(thread, np.full(len(proxy[0]), tid2))
        o = rng.permutation(len(h0)) if a.order == "shuffle" else np.argsort(h0, kind="stable")
        if len(h0):
            w.put(
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                start=h0[o],
                end=h1[o],
                eventClass=DRIVER_API[ak[o]],
                globalTid=thread[o],
                correlationId=c[o],
                nameId=aid[ak[o]],
                returnValue=0,
            )
        for s0, s1, sc, kinds_, stream_, event in sync:
            if len(s0):
                # 2023.4 writes 3 for both on a current driver; later exporters follow the enum and keep
                # the old figure beside it
                w.put(
                    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                    **common,
                    start=s0,
                    end=s1,
                    streamId=stream_,
                    correlationId=sc,
                    syncType=np.where(kinds_ == 2, 2, 3) if new else 3,
                    deprecatedSyncType=3,
                    eventId=event,
                    eventSyncId=0,
                )
        for ec in events:
            if len(ec):
                w.put(
                    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
                    **common,
                    greenContextId=None,
                    streamId=COMPUTE,
                    correlationId=ec,
                    eventId=22,
                )
        if new and not visible_replay and len(spans):
            w.put(
                "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
                **common,
                start=spans[:, 1],
                end=spans[:, 2],
                streamId=COMPUTE,
                correlationId=spans[:, 3],
                graphId=1,
                graphExecId=instance[spans[:, 0]],
            )
        if nodes:
            if a.order == "shuffle":
                nodes = [nodes[i] for i in rng.permutation(len(nodes))]
            t, i, orig = map(list, zip(*nodes, strict=True))
            w.put(
                "CUDA_GRAPH_NODE_EVENTS" if new else "CUDA_GRAPH_EVENTS",
                start=t,
                end=t,
                eventClass=77,
                globalTid=tid,
                nameId=st("Graph Node Creation"),
                graphNodeId=i,
                originalGraphNodeId=orig,
            )
        x = np.array([base - 900_000, base - 400_000])  # before all gaps: no gap is the profiler's
        w.put(
            "PROFILER_OVERHEAD",
            start=x,
            end=x + 70_000,
            globalTid=tid2,
            nameId=st("CUPTI: Buffer flush"),
            returnValue=0,
        )
        # ------------------------------------------------ nvtx rows
        for name, i in domains.items():
            nv.append((base - 90_000 + i, None, 75, name, "domain:" + str(i), tid, None, None))
        se = {"capture_window": (np.array([window_start]), np.array([end_all]))}
        nv.append((window_start, end_all, 60, "capture_window", "text", tid, None, 1))
        nv.append(
            (base - 50_000, end_all - 5000, 59, "background_thread", "text", tid3, None, None)
        )  # encloses everything, other thread
        nv.append(
            (base - 60_000, None, 59, "unclosed", "text", tid3, None, None)
        )  # outside the former: it cannot end inside it
        if steps:
            req = np.sort(rng.integers(window_start, steps_end, max(1, steps // 4)))
            se["request"] = (req, np.minimum(req + jitter(rng, 60_000_000, len(req), 0.4), end_all - 10_000))
            nv.append((*se["request"], 60, "request", "textid", tid2, tid, 2))
        put_nvtx(w, st, nv, a, rng, domains)
        w.db.execute("INSERT INTO PROCESSES VALUES (?,?,?)", (gpid, pid, "python3"))
        for nm, t_ in (("VLLM::Worker_TP", tid), ("nccl-proxy", tid2), ("[pt_main_thread]", tid3)):
            w.db.execute("INSERT INTO ThreadNames VALUES (?,?,?)", (st(nm), 10, t_))
        uuid = f"{g:08x}-0000-4000-8000-{a.seed & 0xFFFFFFFFFFFF:012x}"
        gpu_rows.append(
            {
                "vmId": vm,
                "id": g,
                "name": "NVIDIA H200",
                "busLocation": f"0000:{6 + g:02x}:00.0",
                "isDiscrete": 1,
                "l2CacheSize": 62914560,
                "totalMemory": 150109880320,
                "memoryBandwidth": 4814304000000,
                "clockRate": 1980000000,
                "smCount": 132,
                "uuid": uuid,
                "luid": 0,
                "chipName": "GH100",
                "cuDevice": g,
                "ctxswDevPath": "",
                "ctrlDevPath": "",
                "revision": 161,
                "nodeMask": 0,
                "constantMemory": 65536,
                "maxIPC": 0,
                "maxRegistersPerBlock": 65536,
                "maxShmemPerBlock": 49152,
                "maxShmemPerBlockOptin": 232448,
                "maxShmemPerSm": 233472,
                "maxRegistersPerSm": 65536,
                "threadsPerWarp": 32,
                "asyncEngines": 3,
                "maxWarpsPerSm": 64,
                "maxBlocksPerSm": 32,
                "maxThreadsPerBlock": 1024,
                "maxBlockDimX": 1024,
                "maxBlockDimY": 1024,
                "maxBlockDimZ": 64,
                "maxGridDimX": 2147483647,
                "maxGridDimY": 65535,
                "maxGridDimZ": 65535,
                "computeMajor": 9,
                "computeMinor": 0,
                "smMajor": 9,
                "smMinor": 0,
            }
        )
        w.put(
            "TARGET_INFO_CUDA_CONTEXT_INFO",
            nullStreamId=[7],
            hwId=a.hw_id,
            vmId=1,
            processId=pid,
            deviceId=dev,
            contextId=1,
            parentContextId=0,
            isGreenContext=0,
        )
        w.put(
            "TARGET_INFO_CUDA_STREAM",
            streamId=[6, 7, 13, NCCL, COPY, AUX],
            hwId=a.hw_id,
            vmId=1,
            processId=pid,
            contextId=1,
            priority=[0, 0, (1 << 32) - 5, 0, 0, (1 << 32) - 3],
            flag=[1, 3, 1, 2, 2, 2],
        )
        if new:
            w.put("TARGET_INFO_CUDA_DEVICE", gpuId=[g], cudaId=dev, pid=pid, uuid=uuid, numMultiprocessors=132)

        # ------------------------------------------------ truth that needs no window
        dur, comm, nccl = e - s, IS_COMM[k], IS_NCCL[k]
        kp, kl = path[km], launch[km]
        cnt, ns = np.bincount(k, minlength=NK), sums(k, NK, dur)
        kind_count += cnt
        kind_ns += ns
        parts = {int(i): merge(s[CAT[k] == i], e[CAT[k] == i]) for i in np.unique(CAT[k])}
        for row, m in (("memcpy", (kind == H2D) | (kind == D2H)), ("memset", kind == SET)):
            if m.any():
                parts[ROWS.index(row)] = merge(d0[m], d1[m])
        busy = merge(s, e)  # its gaps are no-kernel time; those of the wall are idle
        busy_ns = int((busy[1] - busy[0]).sum())
        quiet, not_nccl = union_ns(s[~comm], e[~comm]), union_ns(s[~nccl], e[~nccl])
        comm_ns, nccl_ns = union_ns(s[comm], e[comm]), union_ns(s[nccl], e[nccl])
        gpu = {
            "rank": g,
            "gpu": g,
            "key": f"0:pid{pid}/0" if ambiguous else f"0:{g}",
            "device": dev,
            "pid": pid,
            "globalPid": gpid,
            "uuid": uuid,
            "kernel_count": n,
            "kernel_ns": int(dur.sum()),
            "busy_ns": busy_ns,
            "communication_ns": comm_ns,
            "exposed_communication_ns": busy_ns - quiet,
            "hidden_communication_ns": comm_ns - (busy_ns - quiet),
            "nccl_ns": nccl_ns,
            "exposed_nccl_ns": busy_ns - not_nccl,
            "memcpy_count": int(((kind == H2D) | (kind == D2H)).sum()),
            "memset_count": int((kind == SET).sum()),
            "graph_launch_count": int(is_graph.sum()),
            "opaque_graph_count": 0 if visible_replay else int(is_graph.sum()),
            "categories": {},
            "families": {},
        }
        for i in np.unique(CAT[k]):
            m = i == CAT
            x, y = parts[int(i)]
            gpu["categories"][TAXONOMY[i]] = {
                "kernel_count": int(cnt[m].sum()),
                "kernel_ns": int(ns[m].sum()),
                "busy_ns": int((y - x).sum()),
            }
        for i in np.unique(FAM[k]):
            gpu["families"][FAMILIES[i]] = {
                "kernel_count": int(cnt[i == FAM].sum()),
                "kernel_ns": int(ns[i == FAM].sum()),
            }
        gpus.append(gpu)
        truth_dev[f"{gpid}:{dev}"] = {
            "globalPid": gpid,
            "deviceId": dev,
            "kernels": n,
            "kernel_sum_ns": int(dur.sum()),
            "kernel_busy_ns": busy_ns,
            "gpu_busy_ns": union_ns(d0, d1),
            "compute_busy_ns": not_nccl,
            "nccl_sum_ns": int(dur[nccl].sum()),
            "nccl_busy_ns": nccl_ns,
            "nccl_exposed_ns": busy_ns - not_nccl,
            "nccl_overlapped_ns": nccl_ns - (busy_ns - not_nccl),
            "first_ns": int(s.min()) if n else 0,
            "last_ns": int(e.max()) if n else 0,
            "by_category": {
                c: {"kernels": v["kernel_count"], "ns": v["kernel_ns"]} for c, v in gpu["categories"].items()
            },
        }

        # owners
        def owners(index, out, names=list(paths)):
            both = index * NK + k
            pc, pn = np.bincount(both, minlength=len(paths) * NK), sums(both, len(paths) * NK, dur)
            for i, (names_, via, domain) in enumerate(paths):
                row = slice(i * NK, (i + 1) * NK)
                if pc[row].any():
                    cats = defaultdict(lambda: [0, 0])
                    for j in np.flatnonzero(pc[row]):
                        x = cats[TAXONOMY[CAT[j]]]
                        x[0] += int(pc[row][j])
                        x[1] += int(pn[row][j])
                    out.append(
                        {
                            "rank": g,
                            "pid": pid,
                            "via": via,
                            "path": None if names_ is None else list(names_),
                            "domain": domain,
                            "kernel_count": int(pc[row].sum()),
                            "kernel_ns": int(pn[row].sum()),
                            "categories": dict(cats),
                        }
                    )

        owners(kp, excl)
        if template_paths is not None:
            owners(np.where(tpl[km] >= 0, tpl[km], kp), tmpl)
        for r in excl:
            if r["rank"] != g:
                continue
            if r["path"] is None:
                nvtx["unattributed"]["kernels"] += r["kernel_count"]
                nvtx["unattributed"]["ns"] += r["kernel_ns"]
                continue
            acc(
                nvtx["innermost"],
                ("vllm:" if r["domain"] == "vllm" else "") + r["path"][-1],
                r["kernel_count"],
                r["kernel_ns"],
            )
            for name in set(r["path"]):
                x = inclusive[pid, name]
                x[0] += r["kernel_count"]
                x[1] += r["kernel_ns"]
        if steps:  # the ranges around whole steps, by launch
            for name, m, a0, a1 in ((("engine", step >= 0, engine0, steps_end + 2500),) if a.outer else ()) + (
                (
                    ("graph_capture", step == 0, int(cap[0][g][0]) - 2500, span_end(0) + 1600),
                    ("capture_run", step == 0, int(cap[1][g][0]), span_end(0) + 1000),
                )
                if a.open_capture and any_graph
                else ()
            ):
                mk = m & km
                add_inclusive(
                    nvtx["inclusive"],
                    name,
                    int(mk.sum()),
                    int((d1 - d0)[mk].sum()),
                    1,
                    int(m.sum()),
                    int(d1[m].max() - d0[m].min()),
                    a1 - a0,
                )
        for name, (x, y) in se.items():
            x, y = merge(x, y)
            i = np.searchsorted(x, kl, "right") - 1
            m = (i >= 0) & (kl < y[np.maximum(i, 0)])
            startend.append(
                {
                    "rank": g,
                    "pid": pid,
                    "name": name,
                    "kernel_count": int(m.sum()),
                    "kernel_ns": int(dur[m].sum()),
                }
            )
        # steps
        mid = np.searchsorted(off, busy[0], "right") - 1
        inside = (mid >= 0) & (busy[0] < (off + length)[np.maximum(mid, 0)]) if steps else np.zeros(len(mid), bool)
        step_busy = sums(mid[inside], steps, (busy[1] - busy[0])[inside])
        gpu["steps"] = {
            "count": steps,
            "span_ns": int((last_dev - first_dev).sum()),
            "busy_ns": int(step_busy.sum()),
            "start_ns": first_dev[:2000].tolist(),
            "end_ns": last_dev[:2000].tolist(),
            "busy": step_busy[:2000].tolist(),
        }
        if not visible_replay and any_graph:
            gpu["hidden"] = {
                **hidden,
                "replay_count": len(spans),
                "span_ns": int((spans[:, 2] - spans[:, 1]).sum()),
                "start_ns": spans[:2000, 1].tolist(),
                "end_ns": spans[:2000, 2].tolist(),
            }
        x, y = (np.sort(np.concatenate(v)) if v else np.zeros(0, np.int64) for v in (starts, ends))
        opaque = np.zeros((0, 4), np.int64)  # start, end, start and end of the launch call
        if not visible_replay and len(spans):
            opaque = spans[:, [1, 2, 4, 5]]
            if not new:  # what a reader of the file can know: when it may run
                begin = spans[:, 5]
                op, call = np.sort(d0), np.append(y, hi_never)
                i, q = np.searchsorted(op, begin, "left"), np.searchsorted(x, begin, "left")
                opaque = np.stack([begin, np.minimum(np.append(op, hi_never)[i], call[q]), spans[:, 4], begin], axis=1)
        replay = np.where(node >= 0, dc, -1)
        later.append(
            (
                gpu,
                parts,
                opaque,
                spans,
                (x, y),
                [
                    np.concatenate(v)
                    for v in (
                        (d0, opaque[:, 0]),
                        (d1, opaque[:, 1]),
                        (launch, opaque[:, 2]),
                        (launched, opaque[:, 3]),
                        (replay, np.full(len(opaque), -1)),
                    )
                ],
            )
        )
        if n:
            lo = int(s.min()) if lo is None else min(lo, int(s.min()))
            hi = int(e.max()) if hi is None else max(hi, int(e.max()))
        t_max = max(t_max, int(d1.max()) if len(d1) else 0)
        if not a.quiet:
            print(
                f"rank {g}: {n} kernels, {steps} steps ({int(is_graph.sum())} graph), {time.time() - t_begin:.1f} s",
                file=sys.stderr,
            )

    # ---------------------------------------------------- truth that needs the window
    lo, hi = lo or 0, hi or 0
    for gpu, parts, opaque, spans, syncs, ops in later:
        seen, row = dict(parts), ROWS.index("opaque graph")
        if len(opaque):
            opaque[:, 1] = np.minimum(opaque[:, 1], hi)
            real = opaque[:, 1] > opaque[:, 0]
            seen[row] = merge(opaque[real, 0], opaque[real, 1])
        gpu["wall"], g0, g1 = partition(seen, lo, hi)
        gpu["window_ns"], gpu["no_kernel_ns"], gpu["idle_ns"] = (
            hi - lo,
            hi - lo - gpu["busy_ns"],
            gpu["wall"].get("idle", 0),
        )
        assert sum(gpu["wall"].values()) == hi - lo
        assert int((g1 - g0).sum()) == gpu["idle_ns"]
        for i, c in enumerate(TAXONOMY):
            if c in gpu["categories"]:
                gpu["categories"][c]["wall_ns"] = gpu["wall"].get(EXPOSED[i], 0)
        if "hidden" in gpu:
            gpu["hidden"]["wall_if_replays_were_known"] = partition(
                {**parts, row: merge(spans[:, 1], spans[:, 2])}, lo, hi
            )[0]
        gpu["gaps"] = gaps_truth(g0, g1, lo, hi, ops, *syncs)

    # ---------------------------------------------------- small tables
    for row in gpu_rows[::-1]:  # the real table is in no order either
        w.put("TARGET_INFO_GPU", **{c: [v] for c, v in row.items()})
    for t, rows in ENUMS.items():
        w.db.executemany(f"INSERT INTO {t} VALUES (?,?,?)", rows)
    w.db.execute("INSERT INTO ANALYSIS_DETAILS VALUES (?,?,?,?)", (vm, t_max, 12_000_000_000, 12_000_000_000 + t_max))
    w.db.execute(
        "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?,?,?)",
        (1_764_000_000_000_000_000, "2025-11-24T16:00:00", "2025-11-24T16:00:00"),
    )
    ver = ("2025.3.1.90", "2025.3", "3.17.0") if new else ("2023.4.4.54", "2023.4", "3.7.2")
    w.db.executemany(
        "INSERT INTO META_DATA_EXPORT VALUES (?,?)",
        [
            ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"),
            ("EXPORT_PRODUCT_VERSION", ver[0]),
            ("EXPORT_PRODUCT_DATE", ver[1]),
            ("EXPORT_SCHEMA_VERSION", ver[2]),
            *[
                ("EXPORT_SCHEMA_VERSION_" + p, v)
                for p, v in zip(("MAJOR", "MINOR", "MICRO"), ver[2].split("."), strict=True)
            ],
            ("EXPORT_PLATFORM", "linux-desktop"),
            ("EXPORT_ARCH", "x64"),
            ("EXPORT_HOST", "synthetic"),
            ("EXPORT_PARAM_LAZY", "true"),
            ("SYNTHETIC_GENERATOR", "make_trace.py 2"),
        ],
    )
    w.db.executemany(
        "INSERT INTO META_DATA_CAPTURE VALUES (?,?)",
        [
            ("CAPTURE_EVENT_TYPE", "NvtxEvents"),
            ("CAPTURE_EVENT_TYPE", "Cuda"),
            ("PROCESS_0:COMMAND", "python3 -m vllm.entrypoints.openai.api_server"),
            ("PROCESS_0:CUDA_GRAPH_TRACE_OPTIONS:MODE", "Node" if visible_replay else "Graph"),
            ("INCLUDE_CHILDREN", "true"),
        ],
    )
    w.close(st)

    rows = {
        "kernel": w.rows["CUPTI_ACTIVITY_KIND_KERNEL"],
        **{k.lower(): w.rows["CUPTI_ACTIVITY_KIND_" + k] for k in ("MEMCPY", "MEMSET", "RUNTIME")},
        "sync": w.rows["CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"],
        "nvtx": w.rows["NVTX_EVENTS"],
        "graph_nodes": w.rows["CUDA_GRAPH_EVENTS"] + w.rows["CUDA_GRAPH_NODE_EVENTS"],
        "graph_trace": w.rows["CUPTI_ACTIVITY_KIND_GRAPH_TRACE"],
    }
    everything = defaultdict(lambda: [0, 0])
    for gpu in gpus:
        for c, v in gpu["categories"].items():
            everything[c][0] += v["kernel_count"]
            everything[c][1] += v["kernel_ns"]
    by_dem, by_short, kernels = {}, {}, []
    for i, key in enumerate(KEYS):
        if kind_count[i]:
            acc(by_dem, K[key][1], kind_count[i], kind_ns[i])
            acc(by_short, K[key][0], kind_count[i], kind_ns[i])
            kernels.append(
                {
                    "name": K[key][1],
                    "short": K[key][0],
                    "category": K[key][3],
                    "family": K[key][4],
                    "kernel_count": int(kind_count[i]),
                    "kernel_ns": int(kind_ns[i]),
                }
            )
    truth = {
        "generator": "make_trace.py 2",
        "definitions": DEFINITIONS,
        "args": {k: v for k, v in vars(a).items() if k not in ("out", "truth", "quiet")},
        "knowable": {
            "replay_kernels": visible_replay,
            "capture_paths": a.graph_mode == "node",
            "replay_intervals": visible_replay or new,
            "warnings": {
                k: v
                for k, v in {
                    "ranges-without-end": R + sum(n > 0 for n in n_epi),
                    "ambiguous-device": R if ambiguous else 0,
                    "assumed-device": R if not new and not ambiguous and R > 1 else 0,
                    "opaque-graphs": 0 if visible_replay else R * int(is_graph.sum()),
                    "capture-ranges-missing": R
                    * int(is_graph.sum())
                    * int(((prog[True].kind < NK) & (prog[True].node >= 0)).sum())
                    if a.graph_mode == "late"
                    else 0,
                }.items()
                if v
            },
        },
        "layers": layers,
        "kernels_per_step": nk,
        "step_count": steps,
        "step_modes": "".join("eg"[int(x)] for x in is_graph[:2000]),
        "rows": rows,
        "sqlite_bytes": os.path.getsize(a.out),
        "span_ns": t_max,
        "window": {"start_ns": lo, "end_ns": hi},
        "taxonomy": TAXONOMY,
        "kernels": kernels,
        "categories": {c: {"kernel_count": v[0], "kernel_ns": v[1]} for c, v in everything.items()},
        "gpus": gpus,
        "exclusive": excl,
        **({"template_exclusive": tmpl} if tmpl else {}),
        "inclusive": [
            {"pid": p, "name": n, "kernel_count": c, "kernel_ns": ns} for (p, n), (c, ns) in sorted(inclusive.items())
        ],
        "startend": startend,
        "collectives": collectives_truth(a, prog, sims, off, visible_replay, R),
        "devices": truth_dev,
        "nvtx": nvtx,
        "by_demangled": by_dem,
        "by_short": by_short,
    }
    with open(a.truth, "w") as f:
        f.write(
            "{\n"
            + ",\n".join(f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in truth.items())
            + "\n}\n"
        )
    if not a.quiet:
        print(
            f"{a.out}: {os.path.getsize(a.out) / 1e6:.1f} MB, truth {os.path.getsize(a.truth) / 1e6:.1f} MB, "
            f"{time.time() - t_begin:.1f} s",
            file=sys.stderr,
        )


def side_rows(sync, events, kinds, h0, h1, corr):
    """Rows of the synchronization and event tables that go with these calls."""
    for name, kind, stream, event in (
        ("cudaStreamWaitEvent_v3020", 2, NCCL, 22),
        ("cudaStreamSynchronize_v3020", 3, COMPUTE, (1 << 32) - 1),
    ):
        m = kinds == AIDX[name]
        n = int(m.sum())
        sync.append((h0[m] + 100, np.maximum(h1[m] - 100, h0[m] + 101), corr[m], np.full(n, kind), stream, event))
    events.append(corr[kinds == AIDX["cudaEventRecord_v3020"]])


def put_nvtx(w, st, blocks, a, rng, domains):
    cols = defaultdict(list)
    texts: dict[str, int] = {}
    for s, e, et, name, kind, tid, etid, rid in blocks:
        s = np.atleast_1d(np.asarray(s, np.int64))
        n = len(s)
        create = kind.startswith("domain:")
        cols["start"].append(s)
        cols["end"].append(np.full(n, np.iinfo(np.int64).min) if e is None else np.atleast_1d(np.asarray(e, np.int64)))
        cols["eventType"].append(np.full(n, et))
        cols["name"].append(
            np.full(n, st(name) if kind in ("textid", "vllm", "nccl") else -1 - texts.setdefault(name, len(texts)))
        )
        cols["globalTid"].append(np.full(n, tid))
        cols["endGlobalTid"].append(np.full(n, 0 if etid is None else etid))
        cols["domainId"].append(
            np.full(
                n,
                int(kind[7:])
                if create
                else domains["vllm"]
                if kind == "vllm"
                else domains["NCCL"]
                if kind == "nccl"
                else 0,
            )
        )
        cols["rangeId"].append(np.full(n, -1 if rid is None else rid))
        cols["color"].append(np.full(n, -1 if create or kind == "nccl" else 255))
    c = {k: np.concatenate(v) for k, v in cols.items()}
    o = rng.permutation(len(c["start"])) if a.order == "shuffle" else np.argsort(c["start"], kind="stable")
    c = {k: v[o] for k, v in c.items()}
    is_text = c["name"] < 0
    text = np.full(len(o), None, dtype=object)
    text[is_text] = np.array(list(texts), dtype=object)[-1 - c["name"][is_text]]
    w.put(
        "NVTX_EVENTS",
        start=c["start"],
        end=obj(c["end"] != np.iinfo(np.int64).min, c["end"]),
        eventType=c["eventType"],
        rangeId=obj(c["rangeId"] >= 0, np.arange(len(o))),
        color=obj(c["color"] >= 0, c["color"]),
        text=text,
        globalTid=c["globalTid"],
        endGlobalTid=obj(c["endGlobalTid"] != 0, c["endGlobalTid"]),
        textId=obj(~is_text, c["name"]),
        domainId=c["domainId"],
    )

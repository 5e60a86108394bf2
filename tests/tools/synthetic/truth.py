"""What is known about a trace because it was made: definitions and sums."""

from __future__ import annotations

import numpy as np

from synthetic.kernels import IS_COMM, KEYS, NK, K

DEFINITIONS = {
    "time": (
        "ns, half-open [start, end), one clock for all ranks; every figure is of the rows in the "
        "file unless it says hidden"
    ),
    "devices": "globalPid:deviceId -> plain sums of one GPU (kept from version 1)",
    "gpus": (
        "design.md sections 4, 5 and 8, per GPU; gpu = TARGET_INFO_GPU.id, key as section 5 gives "
        "it; nccl_ns / exposed_nccl_ns: families nccl_*, other = all other kernels; no_kernel_ns "
        "= window - busy; idle_ns = wall row idle"
    ),
    "wall": (
        "rows in taxonomy order; owners: kernels that are no communication, else opaque graph, "
        "else exposed communication, else memcpy / memset, else idle; elementary interval = "
        "maximal interval with one set of owners, after merging and clipping to the window"
    ),
    "opaque": (
        "graph mode: 2025 the GRAPH_TRACE rows; 2023 from the end of the launch call to the "
        "earliest of next recorded operation of the process, end of its next synchronizing call, "
        "end of the window"
    ),
    "exclusive": (
        "push/pop owners by launch start, innermost; NVTX domain NCCL never owns and is in no "
        "path; replayed kernels: launch path + capture path, less ranges open when the enclosing "
        "cudaStreamBeginCapture started and less instances already in the launch path; via = "
        "capture then"
    ),
    "template_exclusive": (
        "late mode: what a template learned from another report would give for the replayed kernels (via = template)"
    ),
    "inclusive": "per (pid, name): a kernel counts once per name in its path",
    "startend": (
        "per (pid, name): kernels whose launch starts inside the union of the start/end ranges of "
        "that name in the process"
    ),
    "nvtx": (
        "by launch alone, all ranks: innermost (owner, 'vllm:' before names of that domain; here "
        "replays count for the last name of their whole path), inclusive (every push/pop range "
        "around the launch, NCCL's too, as nvtx_kern_sum counts), unattributed"
    ),
    "collectives": (
        "n-th collective kernel of a step across ranks, by start; arrival = start; last = max "
        "start; wait = max(0, min(end, last) - start); transfer = duration - wait; late_count: "
        "collectives in which start == last; rows are listed for the first steps only, totals are "
        "of all"
    ),
    "steps": (
        "n-th decode_step of a process; start/end: GPU operations (kernels, copies, sets) "
        "launched inside; busy: union of its kernels"
    ),
    "gaps": (
        "maximal intervals of the wall row idle. before / after = the operation (kernel, copy, "
        "set, opaque replay) that ends / begins there, of several the one launched last / first. "
        "First that fits: short (< 1000 ns); edge (touches a border of the window); "
        "graph-internal (both of one replay); sync (a synchronizing call of after's thread was in "
        "progress when the gap began); dependency (after's launch call had returned by then); "
        "launch-bound (it was in progress then); host-bound. blocked_ns: until the synchronizing "
        "call ended; host_ns: from then (or the begin) to the launch; latency_ns: the rest"
    ),
    "hidden": (
        "graph mode: what ran inside replays and is not in the file; span = first start to last "
        "end of the replay's operations"
    ),
}


def acc(d, key, count, ns):
    e = d.setdefault(key, {"kernels": 0, "ns": 0})
    e["kernels"] += int(count)
    e["ns"] += int(ns)


def sums(index, n, values):
    """Exact Σ values per index (float64 is exact below 2**53)."""
    return np.rint(np.bincount(index, weights=values, minlength=n)).astype(np.int64)


def add_inclusive(d, name, kernels, ns, instances, ops, proj, span):
    e = d.setdefault(name, {"kernels": 0, "ns": 0, "instances": 0, "gpu_ops": 0, "proj_ns": 0, "range_ns": 0})
    for key, v in zip(list(e), (kernels, ns, instances, ops, proj, span), strict=True):
        e[key] += v


CAUSES = ["short", "edge", "graph-internal", "sync", "dependency", "launch-bound", "host-bound"]


def gaps_truth(g0, g1, lo, hi, ops, sync0, sync1):
    s, e, l0, l1, replay = ops
    if len(s) == 0 or len(g0) == 0:
        return {"count": len(g0), "ns": int((g1 - g0).sum()), "by_cause": {}, "by_cause_at_least_10us": {}}
    length = g1 - g0
    o = np.lexsort((l0, s))
    after = o[np.minimum(np.searchsorted(s[o], g1, "left"), len(o) - 1)]
    o = np.lexsort((l0, e))
    before = o[np.maximum(np.searchsorted(e[o], g0, "right") - 1, 0)]
    i = np.searchsorted(sync0, g0, "right") - 1
    end = sync1[np.maximum(i, 0)] if len(sync1) else np.zeros(len(g0), np.int64)
    cause = np.select(
        [
            length < 1000,
            (g0 == lo) | (g1 == hi),
            (replay[after] >= 0) & (replay[after] == replay[before]),
            (i >= 0) & (end > g0),
            l1[after] <= g0,
            l0[after] <= g0,
        ],
        range(6),
        6,
    )
    end, launch = np.where(cause == 3, np.minimum(end, g1), g0), np.minimum(l0[after], g1)
    blocked, host = end - g0, np.where((cause == 3) | (cause == 6), np.maximum(launch - end, 0), 0)
    out = {"count": len(g0), "ns": int(length.sum()), "by_cause": {}, "by_cause_at_least_10us": {}}
    for key, least in (("by_cause", 1), ("by_cause_at_least_10us", 10_000)):
        for c, name in enumerate(CAUSES):
            m = (cause == c) & (length >= least)
            if m.any():
                b, h, n = int(blocked[m].sum()), int(host[m].sum()), int(length[m].sum())
                out[key][name] = {
                    "count": int(m.sum()),
                    "ns": n,
                    "blocked_ns": b,
                    "host_ns": h,
                    "latency_ns": n - b - h,
                }
    return out


def collectives_truth(a, prog, sims, off, visible_replay, ranks):
    names = [KEYS[i] for i in range(NK) if IS_COMM[i]]
    step, ordinal, name, s, e = [], [], [], [], []
    for flag, (idx, _, _, d0, d1) in sims.items():
        p = prog[flag]
        c = np.array([i for i in p.coll if visible_replay or p.node[i] < 0])
        o = off[idx][None, :, None]
        s.append((d0[:, :, c] + o).reshape(ranks, -1).T)
        e.append((d1[:, :, c] + o).reshape(ranks, -1).T)
        step.append(np.repeat(idx, len(c)))
        ordinal.append(np.tile(np.arange(len(c)), len(idx)))
        name.append(np.tile([names.index(KEYS[k]) for k in p.kind[c]], len(idx)))
    if not s:
        return {"count": 0, "ranks": [], "rows": {}}
    step, ordinal, name, s, e = (np.concatenate(x) for x in (step, ordinal, name, s, e))
    order = np.lexsort((ordinal, step))
    step, ordinal, name, s, e = (x[order] for x in (step, ordinal, name, s, e))
    last = s.max(axis=1, keepdims=True)
    wait = np.maximum(0, np.minimum(e, last) - s)
    transfer = e - s - wait
    skew = last[:, 0] - s.min(axis=1)
    out = {
        "count": len(s),
        "skew_ns": int(skew.sum()),
        "max_skew_ns": int(skew.max()),
        "ranks": [],
        "by_kernel": {},
    }
    for r in range(ranks):
        out["ranks"].append(
            {
                "rank": r,
                "count": len(s),
                "wait_ns": int(wait[:, r].sum()),
                "transfer_ns": int(transfer[:, r].sum()),
                "late_count": int((s[:, r] == last[:, 0]).sum()),
            }
        )
    for i, key in enumerate(names):
        m = name == i
        if m.any():
            out["by_kernel"][K[key][1]] = {
                "count": int(m.sum()),
                "category": K[key][3],
                "family": K[key][4],
                "wait_ns": wait[m].sum(axis=0).tolist(),
                "transfer_ns": transfer[m].sum(axis=0).tolist(),
            }
    m = (step < 2000) & (np.arange(len(s)) * ranks < 300_000)
    m &= step <= (step[m].max() if m.all() else step[m].max() - 1)  # whole steps only
    out["rows"] = {
        "kernel_names": [K[k][1] for k in names],
        "step": step[m].tolist(),
        "ordinal": ordinal[m].tolist(),
        "kernel": name[m].tolist(),
        "start_ns": s[m].tolist(),
        "end_ns": e[m].tolist(),
        "wait_ns": wait[m].tolist(),
        "transfer_ns": transfer[m].tolist(),
    }
    return out

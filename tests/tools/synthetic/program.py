"""What one step does on host and device, and when."""

from __future__ import annotations

import numpy as np

from synthetic.kernels import (
    AIDX,
    API_NS,
    AUX,
    COMPUTE,
    COPY,
    D2H,
    DEV_NS,
    H2D,
    KIDX,
    MLA,
    NCCL,
    NK,
    SET,
    SHORT_GAP,
    K,
)


class Program:
    """The host and device operations of one step (eager or replay) or of one capture, in issue order.

    A range is (name, kind, parent); kind is text, textid (registered), vllm or nccl (registered, in that
    domain).
    """

    def __init__(self, mode, layers, custom):
        self.mode, self.custom, self.in_graph = mode, custom, False
        self.prog, self.host_api = [], []
        self.ranges, self.push_op, self.pop_op, self.range_dev, self._stack = [], [], [], [], []
        self.caps, self._caps = [], []  # ranges of the capture, as the replay knows them
        self.dev = []  # (kind, stream, launching host op, range, capture range, node)
        self.node_host, self.n_nodes = [], 0
        self.coll, self.sync_host, self.graph_host = [], [], -1
        self._joins = []
        if mode == "capture":
            self.api("cudaStreamBeginCapture_v10000")
            self.forward(layers)
            self.api("cudaStreamEndCapture_v10000")
            self.inst_host = [self.api("cudaGraphInstantiateWithFlags_v11040") for _ in range(2)]
        else:
            self.step(layers)
        self.is_api = np.array([a >= 0 for a in self.host_api])
        self.api_kind = np.array(self.host_api)
        d = np.array(self.dev, dtype=np.int64).reshape(-1, 6)
        self.kind, self.stream, self.launch, self.owner, self.cap, self.node = d.T.copy()
        self.n_kernels = int((self.kind < NK).sum())

    # host side
    def _host(self, what, api=-1):
        self.host_api.append(api)
        self.prog.append((what, len(self.host_api) - 1))
        return len(self.host_api) - 1

    def api(self, name):
        return self._host("sync" if "Synchronize" in name else "api", AIDX[name])

    def push(self, name, kind):
        if self.in_graph:
            self.caps.append((name, kind, self._caps[-1] if self._caps else -1))
            self._caps.append(len(self.caps) - 1)
            return
        self.ranges.append((name, kind, self._stack[-1] if self._stack else -1))
        self.range_dev.append([len(self.dev), -1])
        self._stack.append(len(self.ranges) - 1)
        self.push_op.append(self._host("range"))
        self.pop_op.append(-1)

    def pop(self):
        if self.in_graph:
            self._caps.pop()
            return
        r = self._stack.pop()
        self.range_dev[r][1] = len(self.dev)
        self.pop_op[r] = self._host("range")

    # device side
    def _dev(self, kind, stream, api):
        node = -1
        if self.in_graph or self.mode == "capture":
            node, self.n_nodes = self.n_nodes, self.n_nodes + 1
        host = self.graph_host if self.in_graph else self.api(api)
        if self.mode == "capture":
            self.node_host.append(host)
            return
        self.dev.append((kind, stream, host, self._stack[-1], self._caps[-1] if self._caps else -1, node))
        self.prog.append(("dev", len(self.dev) - 1))

    def wait(self, waiter, other):
        """`waiter` stream waits for what `other` holds now."""
        if not self.in_graph:
            self.api("cudaEventRecord_v3020")
            self.api("cudaStreamWaitEvent_v3020")
        if self.mode != "capture":
            self.prog.append(("wait", waiter, other))

    def kern(self, key):
        self._dev(KIDX[key], K[key][8], K[key][5])
        if K[key][8] == COMPUTE and self._joins:
            self._joins[0] -= 1
            self._flush(0)

    def _flush(self, least):
        while self._joins and self._joins[0] <= least:
            self._joins.pop(0)
            self.wait(COMPUTE, NCCL)

    def collective(self, key, overlap=0):
        """A collective; the compute stream waits for it only after `overlap` more kernels."""

        def issue():
            self._dev(KIDX[key], K[key][8], K[key][5])
            if self.mode != "capture":
                self.coll.append(len(self.dev) - 1)

        if K[key][8] == COMPUTE:
            issue()
            return
        if not self.in_graph:
            self.api("cudaStreamIsCapturing_v10000")
        self.push("ncclAllReduce" if key == "ar" else "ncclAllGather", "nccl")
        if not self.in_graph:
            self.api("cudaStreamGetCaptureInfo_v3_v12030")
        self.wait(NCCL, COMPUTE)
        issue()
        if self.mode == "capture":
            self.node_host.append(self.api("cudaGraphAddEventRecordNode_v11010"))
        if self.mode == "capture" or self.in_graph:
            self.n_nodes += 1  # an event-record node: it never becomes a row of the device
        self.pop()
        self._joins.append(overlap)
        self._flush(0)

    # the program
    def forward(self, layers):
        self.push("forward", "text")
        self.kern("embed")
        for i in range(layers):
            self.push(f"layer.{i}", "text")
            self.push("mla_attention", "textid")
            [self.kern(k) for k in MLA]
            self.pop()
            self.push("allreduce", "textid")
            self.collective("custom_ar" if self.custom else "ar")
            self.pop()
            if self.mode == "eager" and i == layers - 1:
                self.prog.append(("stall",))
            self.push("moe_routing", "textid")
            [self.kern(k) for k in ("rms2", "router", "topk")]
            self._dev(SET, COMPUTE, "cudaMemsetAsync_v3020")
            [self.kern(k) for k in ("align", "sort")]
            if self.mode == "eager" and i == 0:  # `.item()`: the host needs the routing
                self._dev(D2H, COMPUTE, "cudaMemcpyAsync_v3020")
                self.sync_host.append(self.api("cudaStreamSynchronize_v3020"))
            self.pop()
            self.push("gemm", "textid")
            self.wait(AUX, COMPUTE)
            [self.kern(k) for k in ("shared13", "marlin13", "silu", "shared2", "marlin2")]
            self.wait(COMPUTE, AUX)
            self.kern("moe_sum")
            self.pop()
            self.push("allreduce", "textid")
            self.collective("ar", (0, 2, 0, 3)[i % 4])
            self.pop()
            self.kern("add")  # directly in the layer, in none of its children
            self.pop()
        self.kern("rms")
        self.kern("lm_head")
        self._flush(99)
        self.pop()

    def step(self, layers):
        self.push("decode_step", "vllm")
        self._dev(H2D, COPY, "cudaMemcpyAsync_v3020")
        self._dev(SET, COMPUTE, "cudaMemsetAsync_v3020")
        self.kern("prep")
        self.wait(COMPUTE, COPY)
        if self.mode == "replay":
            self.prog.append(("stall",))
            self.push("cuda_graph_replay", "text")
            self.graph_host = self.api("cudaGraphLaunch_v10000")
            self.in_graph = True
            self.forward(layers)
            self.in_graph = False
            self.pop()
        else:
            self.forward(layers)
        self.collective("ag")
        self.push("sampling", "text")
        self.kern("softmax")
        self.kern("sample")
        self.pop()
        self._dev(D2H, COMPUTE, "cudaMemcpyAsync_v3020")
        self.sync_host.append(self.api("cudaStreamSynchronize_v3020"))
        self.pop()

    @staticmethod
    def path(ranges, r):
        """Names from outermost to innermost of range r, NCCL's own left out, and the innermost's domain."""
        names, domain = [], None
        while r >= 0:
            name, kind, r = ranges[r]
            if kind != "nccl":
                names.append(name)
                domain = domain or ("vllm" if kind == "vllm" else "default")
        return tuple(names[::-1]), domain


def jitter(rng, base, shape, sigma):
    z = rng.standard_normal(shape, dtype=np.float32)
    return np.maximum(1, np.rint(base * np.exp(sigma * z))).astype(np.int64)


def simulate(p: Program, steps, ranks, rng, late):
    """Times of `steps` steps on all ranks, relative to each step's own start.

    Host [ops, steps, ranks], device start and end, and the length of each step. One pass over the operations,
    each over all steps and ranks at once.
    """
    shape = (steps, ranks)
    h0, h1 = (np.empty((len(p.host_api), *shape), np.int64) for _ in range(2))
    d0, d1 = (np.empty((len(p.dev), *shape), np.int64) for _ in range(2))
    now = late.astype(np.int64)
    tail = {s: np.zeros(shape, np.int64) for s in (COMPUTE, NCCL, COPY, AUX)}
    coll = set(p.coll)
    graph_nodes = int((p.node >= 0).sum())
    ready_graph = None
    for op in p.prog:
        what = op[0]
        if what == "dev":
            i = op[1]
            kind, stream, host = int(p.kind[i]), int(p.stream[i]), int(p.launch[i])
            if p.node[i] >= 0:
                ready, gap = ready_graph, rng.integers(96, 224, shape)
            else:
                ready, gap = h1[host] + rng.integers(900, 2600, shape), rng.integers(250, 1200, shape)
            start = np.maximum(ready, tail[stream] + gap)
            if i in coll:  # transfer begins with the last arrival, and all end together
                transfer = jitter(rng, DEV_NS[kind], (steps, 1), 0.1) + 3000
                end = start.max(axis=1, keepdims=True) + transfer + rng.integers(0, 301, shape)
            else:
                end = start + jitter(rng, DEV_NS[kind], shape, 0.07)
            d0[i], d1[i], tail[stream] = start, end, end
        elif what == "wait":
            tail[op[1]] = np.maximum(tail[op[1]], tail[op[2]])
        elif what == "stall":  # the host is busy elsewhere (garbage collection, a slow callback)
            now = now + np.where(rng.random(shape) < 0.08, rng.integers(100_000, 500_000, shape), 0)
        else:
            i = op[1]
            h0[i] = now
            if what == "sync":
                done = np.maximum.reduce(list(tail.values()))
                now = np.maximum(now + 1200, done + rng.integers(1500, 6000, shape))
            elif what == "range":
                now = now + jitter(rng, 180, shape, 0.2)
            else:
                a = p.host_api[i]
                base = int(API_NS[a])
                if i == p.graph_host:
                    base += 60 * graph_nodes
                elif p.mode == "capture" and i in p.inst_host:
                    base = 20_000 + 4200 * p.n_nodes
                now = now + jitter(rng, base, shape, 0.2 if base < 50_000 else 0.02)
            h1[i] = now
            if i == p.graph_host and what == "api":
                ready_graph = h0[i] + (h1[i] - h0[i]) * 4 // 10 + 3000
            now = now + jitter(rng, 60 if what == "range" else 150 if p.host_api[i] in SHORT_GAP else 900, shape, 0.35)
    return h0, h1, d0, d1, now.max(axis=1)

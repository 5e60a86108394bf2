"""A small decode step on every rank, eager and from a CUDA graph, recorded once for all ranks.

    torchrun --nproc-per-node 2 decode_probe.py [--graph before|inside] [--no-range] [--steps N]

Every rank multiplies its part of each layer and all-reduces, as tensor parallelism does. `--graph` says
whether the graph is captured before or inside the recording; `--no-range` never starts and stops the CUDA
profiler.
"""

from __future__ import annotations

import argparse
import os

import nvtx
import torch
import torch.distributed as dist

BATCH, HIDDEN, INNER = 8, 4096, 2048
DOMAIN = "k25"


class Decoder:
    """Layers of two matrix products, two all-reduces and a norm."""

    def __init__(self, layers: int, ranks: int, device: torch.device) -> None:
        self.ranks = ranks
        options = {"device": device, "dtype": torch.bfloat16}
        self.weights = [
            (torch.randn(HIDDEN, INNER, **options) * 0.01, torch.randn(INNER, HIDDEN, **options) * 0.01)
            for _ in range(layers)
        ]

    def step(self, x: torch.Tensor) -> torch.Tensor:
        for number, (up, down) in enumerate(self.weights):
            with nvtx.annotate(f"layer{number}", domain=DOMAIN):
                with nvtx.annotate("attention", domain=DOMAIN):
                    y = x.float().mul(0.5).to(x.dtype)
                    self.reduce(y)
                with nvtx.annotate("mlp", domain=DOMAIN):
                    z = torch.nn.functional.silu(y @ up) @ down
                    self.reduce(z)
                x = torch.nn.functional.rms_norm(x + z, (HIDDEN,))
        return x

    def reduce(self, x: torch.Tensor) -> None:
        if self.ranks > 1:
            dist.all_reduce(x)


def at_once(ranks: int) -> None:
    """Let every rank get here with nothing left on its GPU: all share one recording."""
    torch.cuda.synchronize()
    if ranks > 1:
        dist.barrier()
        torch.cuda.synchronize()


def captured(decoder: Decoder, x: torch.Tensor) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with nvtx.annotate("capture", domain=DOMAIN), torch.cuda.graph(graph):
        decoder.step(x)
    torch.cuda.synchronize()
    return graph


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--graph", choices=["before", "inside"], default="inside")
    parser.add_argument("--no-range", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--layers", type=int, default=4)
    args = parser.parse_args()

    rank, ranks = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    # One process sees one GPU where a launcher gives each its own.
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    if ranks > 1:
        dist.init_process_group("nccl")
    decoder = Decoder(args.layers, ranks, device)
    x = torch.randn(BATCH, HIDDEN, device=device, dtype=torch.bfloat16)
    for _ in range(3):
        decoder.step(x)
    graph = captured(decoder, x) if args.graph == "before" else None

    at_once(ranks)
    if not args.no_range:
        torch.cuda.cudart().cudaProfilerStart()
    nvtx.mark(f"rank={rank}", domain=DOMAIN)
    if graph is None:
        graph = captured(decoder, x)
    for _ in range(args.steps):
        with nvtx.annotate("eager_step", domain=DOMAIN):
            decoder.step(x)
    for _ in range(args.steps):
        with nvtx.annotate("graph_step", domain=DOMAIN):
            graph.replay()
    at_once(ranks)
    if not args.no_range:
        torch.cuda.cudart().cudaProfilerStop()

    print(f"rank {rank} of {ranks}: done", flush=True)
    del graph  # destroy_process_group waits for graphs that captured collectives
    torch.cuda.synchronize()
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

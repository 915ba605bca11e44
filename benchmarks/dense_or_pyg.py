"""From which density on does visiting every pair beat passing messages along edges?

Times forward and backward of both backends on the same random masks, in turn, and prints the ratio pyg / dense of the
shortest times, which other processes disturb least: above 1 the dense backend is the faster one. ``DENSE_ABOVE`` in
sbmt/attention/dispatch.py is read off this table.

    OMP_NUM_THREADS=1 python benchmarks/dense_or_pyg.py --json dense_or_pyg.json
"""

import argparse
import json
import platform
from pathlib import Path
from time import perf_counter

import torch

from sbmt import EdgeList, edge_attention

DENSITIES = [1 / 256, 1 / 128, 1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0]
MOST_CELLS = 1 << 26  # of a dense mask
MOST_MESSAGES = 1 << 28  # edges · d, the numbers that message passing materialises several times over


def seconds(backend: str, tensors: list[torch.Tensor], edges: EdgeList, gate: torch.Tensor) -> float:
    """Time of one forward and backward pass, gate included."""
    on_gpu = tensors[0].is_cuda
    if on_gpu:
        torch.cuda.synchronize()
    start = perf_counter()
    out = edge_attention(*tensors, edges, gate, backend=backend)
    torch.autograd.grad(out.sum(), [*tensors, gate])
    if on_gpu:
        torch.cuda.synchronize()
    return perf_counter() - start


def ratio(n_graphs: int, length: int, density: float, d_head: int, budget: float, device: str) -> dict[str, float]:
    """Shortest time of pyg over shortest time of dense, in interleaved runs until ``budget`` seconds are spent."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(n_graphs, 1, length, length, generator=generator) < density
    edges = EdgeList.from_dense(mask).to(device)
    tensors = [
        torch.randn(n_graphs, 1, length, d_head, generator=generator).to(device).requires_grad_() for _ in range(3)
    ]
    gate = torch.ones(edges.n_edges, device=device, requires_grad=True)
    times: dict[str, list[float]] = {"pyg": [], "dense": []}
    began = perf_counter()
    while len(times["dense"]) < 4 or (perf_counter() - began < budget and len(times["dense"]) < 200):
        for backend, taken in times.items():
            taken.append(seconds(backend, tensors, edges, gate))
    return {
        "n_graphs": n_graphs,
        "length": length,
        "density": density,
        "d_head": d_head,
        "pyg_over_dense": min(times["pyg"]) / min(times["dense"]),
        "dense_seconds": min(times["dense"]),
        "runs": len(times["dense"]),
    }


def main() -> None:
    """Prints one row per size and one column per density."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[64, 256, 1024, 4096])
    parser.add_argument("--graphs", type=int, nargs="+", default=[1, 8, 64], help="examples times heads")
    parser.add_argument("--d-head", type=int, default=32)
    parser.add_argument("--budget", type=float, default=1.0, help="seconds per cell of the table")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write the measurements here")
    chosen = parser.parse_args()

    print(f"pyg / dense, forward and backward, d_head {chosen.d_head}, {chosen.device}")
    print(f"{'graphs':>6} {'length':>6} " + " ".join(f"{f'1/{1 / p:.0f}':>6}" for p in DENSITIES))
    rows = []
    for length in chosen.lengths:
        for n_graphs in chosen.graphs:
            cells = n_graphs * length**2
            if cells > MOST_CELLS:
                continue
            shown = []
            for density in DENSITIES:
                if cells * density * chosen.d_head > MOST_MESSAGES:
                    shown.append(f"{'-':>6}")
                    continue
                rows.append(ratio(n_graphs, length, density, chosen.d_head, chosen.budget, chosen.device))
                shown.append(f"{rows[-1]['pyg_over_dense']:6.2f}")
            print(f"{n_graphs:6d} {length:6d} " + " ".join(shown), flush=True)
    if chosen.json:
        versions = {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.processor()}
        versions["threads"] = str(torch.get_num_threads())
        chosen.json.write_text(json.dumps({"versions": versions, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()

"""How the time of the `exact` sampler follows the number of edges, at a fixed expected degree.

    python benchmarks/sampler_scaling.py --json results.json

Draws masks of n = 4096 … 65536 tokens with 16 expected keys per query, with and without a few queries that attend
every key for certain. Prints the least of five interleaved times of each size, and the slope of log time over log
edges by least squares: 1 is linear in the edges, 2 would be linear in the pairs. The rows of certainty have n edges
each, so with them the number of edges counts both.
"""

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterator

import numpy as np
import torch

from sbmt import BlockModel, sample_edges


def block_model(n: int, degree: float, n_clusters: int, n_stars: int = 0) -> BlockModel:
    """Mixed memberships whose mean rate is ``degree / n``; ``n_stars`` queries reach every key with probability 1."""
    generator = torch.Generator().manual_seed(n)
    query, key = (torch.rand(1, 1, n, n_clusters, generator=generator) ** 4 for _ in range(2))
    block = torch.rand(1, n_clusters, n_clusters, generator=generator)
    query[..., 0] = 0.0  # cluster 0 belongs to the stars
    mean_rate = (query.sum(2) @ block[0] @ key.sum(2).mT).item() / n**2
    block *= degree / n / mean_rate
    block[:, 0] = 1.0
    stars = torch.randperm(n, generator=generator)[:n_stars]
    query[:, :, stars] = torch.nn.functional.one_hot(torch.tensor(0), n_clusters).float()
    key[..., -1] = 1.0  # so that no key is out of a star's reach
    return BlockModel(query, block, key)


def slope(edges: list[float], seconds: list[float]) -> float:
    """Least squares of log seconds over log edges."""
    return float(np.polyfit(np.log(edges), np.log(seconds), 1)[0])


def measure(sizes: list[int], options: argparse.Namespace, n_stars: int) -> Iterator[dict[str, float]]:
    """One row per size: n, edges drawn, least seconds over the rounds."""
    models = {n: block_model(n, options.degree, options.clusters, n_stars) for n in sizes}
    edges, seconds = {}, {n: float("inf") for n in sizes}
    for seed in range(options.rounds):
        for n, model in models.items():  # interleaved, so that a slow moment of the machine hits all sizes
            print(f"\rstars {n_stars}, round {seed + 1}/{options.rounds}, n = {n}    ", end="", file=sys.stderr)
            generator = torch.Generator().manual_seed(seed)
            start = time.perf_counter()
            edges[n] = sample_edges(model, options.sampler, generator=generator).n_edges
            seconds[n] = min(seconds[n], time.perf_counter() - start)
    print(file=sys.stderr)
    return ({"n": n, "edges": edges[n], "seconds": seconds[n]} for n in sizes)


def main() -> None:
    """Measures, prints, and writes JSON where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sampler", default="exact", help="exact (default) or fastrg")
    parser.add_argument("--degree", type=float, default=16.0, help="expected keys per query (default 16)")
    parser.add_argument("--clusters", type=int, default=128, help="number of clusters k (default 128)")
    parser.add_argument("--stars", type=int, default=3, help="queries of probability 1 in the second table (default 3)")
    parser.add_argument("--least", type=int, default=4096, help="smallest n (default 4096)")
    parser.add_argument("--most", type=int, default=65536, help="largest n, by doubling (default 65536)")
    parser.add_argument("--rounds", type=int, default=5, help="times per size, of which the least counts (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1, the least noisy)")
    parser.add_argument("--json", help="also write the numbers to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    sizes = [options.least << i for i in range((options.most // options.least).bit_length())]
    tables = []
    for n_stars in (0, options.stars):
        rows = list(measure(sizes, options, n_stars))
        edges, seconds = ([row[name] for row in rows] for name in ("edges", "seconds"))
        tables.append({"stars": n_stars, "slope": slope(edges, seconds), "rows": rows})
        print(
            f"\n{options.sampler}: degree {options.degree:g}, k = {options.clusters}, {n_stars} rows of probability 1"
        )
        print(f"{'n':>8} {'edges':>10} {'seconds':>10} {'µs/edge':>8}")
        for row in rows:
            print(f"{row['n']:8d} {row['edges']:10d} {row['seconds']:10.4f} {1e6 * row['seconds'] / row['edges']:8.3f}")
        print(f"slope of log time over log edges: {tables[-1]['slope']:.3f}")
    if options.json:
        machine = {"torch": torch.__version__, "processor": platform.processor()}
        with open(options.json, "w") as file:
            json.dump({"options": vars(options), "machine": machine, "tables": tables}, file, indent=1)


if __name__ == "__main__":
    main()

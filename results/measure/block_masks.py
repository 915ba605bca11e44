"""How many blocks FlexAttention visits of sampled masks, with tokens in order of clusters and without.

``python results/measure/block_masks.py`` writes ``results/block_masks.json`` in a minute.
"""

from itertools import product
from typing import Any

import torch

from results.measure.common import run, write
from sbmt import EdgeList, sample_edges
from sbmt.experiments.benchmarks.cases import Setting, build, fitted_setting
from sbmt.experiments.benchmarks.timing import machine_manifest

LENGTHS, BLOCK_SIZES, KEYS = (1024, 4096, 16_384), (32, 64, 128), 16.0


def visited(edges: EdgeList, block_size: int, order: Any = None) -> float:
    """The share of all blocks that hold an edge."""
    blocks = edges.to_block_mask(block_size, order)
    assert blocks.full_kv_num_blocks is not None
    return int(blocks.kv_num_blocks.sum() + blocks.full_kv_num_blocks.sum()) / blocks.kv_indices.numel()


@torch.no_grad()
def main() -> None:
    """Measures crossed partitions as trained and a single partition, and writes."""
    torch.manual_seed(0)
    rows = []
    for n, kind in product(LENGTHS, ("fitted", "structured")):
        setting = fitted_setting(n, KEYS) if kind == "fitted" else Setting(n, KEYS / n, kind)
        block_model = build(setting).block_model()
        edges, order = sample_edges(block_model), block_model.cluster_order()
        for size in BLOCK_SIZES:
            row = {"n": n, "kind": kind, "block_size": size, "density": float(edges.density().mean())}
            rows.append(row | {"as_given": visited(edges, size), "sorted": visited(edges, size, order)})
    write("block_masks", {"keys_per_query": KEYS, "rows": rows}, machine_manifest())


if __name__ == "__main__":
    run(main, "block_masks")

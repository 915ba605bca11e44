"""How many blocks FlexAttention visits of sampled masks, with tokens in order of clusters and without.

``python results/measure/block_masks.py`` writes ``results/block_masks.json`` in a minute.
"""

from pathlib import Path
from typing import Any

import torch

from sbmt import EdgeList, sample_edges
from sbmt.command import run_command
from sbmt.experiments.benchmarks.cases import Setting, build, fitted_setting
from sbmt.experiments.benchmarks.manifest import machine_manifest
from sbmt.experiments.files import write_json

RESULT = Path(__file__).resolve().parents[1] / "block_masks.json"
LENGTHS, BLOCK_SIZES, KEYS = (1024, 4096, 16_384), (32, 64, 128), 16.0


def measure() -> dict[str, Any]:
    """The share of blocks that hold an edge, for crossed partitions as trained and for a single partition."""
    rows = []
    for n in LENGTHS:
        for kind, setting in (("fitted", fitted_setting(n, KEYS)), ("structured", Setting(n, KEYS / n, "structured"))):
            case = build(setting)
            with torch.no_grad():
                block_model = case.block_model()
                edges = sample_edges(block_model)
            for block_size in BLOCK_SIZES:
                shares = [visited(edges, block_size, order) for order in (None, block_model.cluster_order())]
                here: dict[str, Any] = {"n": n, "kind": kind, "block_size": block_size}
                rows.append(
                    here | {"density": float(edges.density().mean()), "as_given": shares[0], "sorted": shares[1]}
                )
    return {"keys_per_query": KEYS, "rows": rows}


def visited(edges: EdgeList, block_size: int, order: tuple[torch.Tensor, torch.Tensor] | None) -> float:
    """The share of all blocks that hold an edge."""
    blocks = edges.to_block_mask(block_size, order)
    assert blocks.full_kv_num_blocks is not None
    return int(blocks.kv_num_blocks.sum() + blocks.full_kv_num_blocks.sum()) / blocks.kv_indices.numel()


def main() -> None:
    """Measures and writes."""
    torch.manual_seed(0)
    write_json(RESULT, measure() | {"manifest": machine_manifest()})


if __name__ == "__main__":
    run_command(main, "block_masks")

"""Registers of the GPU kernels, which are built without a GPU; writes ``results/gpu_builds.json``.

``python results/measure/gpu_builds.py`` needs Triton and takes a minute. The kernels are built for compute capability
9.0, that of an H200, for heads of width 64 in bfloat16 and 128 clusters, or for four groups of crossed partitions into
16 parts; the launches are those of the tests. Numbers depend on Triton's version, and say nothing about time.
"""

from pathlib import Path
from typing import Any

import torch

from sbmt.command import run_command
from sbmt.experiments.files import write_json
from sbmt.experiments.training.run import manifest
from tests.kernels.gpu.builds import build
from tests.kernels.gpu.launches import crossed_launches, draw_launches, row_launches, tile_launches

ROOT = Path(__file__).resolve().parents[2]

D, N_CLUSTERS, CAPABILITY = 64, 128, 90
TITLES = {
    "attend_tiles": ["tiles, forward"],
    "differentiate_queries": ["tiles, backward by queries"],
    "differentiate_keys": ["tiles, backward by keys"],
    "skip": ["rows, drawing to count", "rows, drawing to write"],
    "attend": ["rows, forward"],
    "attend_backward": ["rows, backward"],
    "sum_along": [
        "rows, gradients of keys",
        "rows, gradients of values",
        "rows, gradients of queries' memberships",
        "rows, gradients of keys' memberships",
    ],
    "choose": ["crossed, choosing parts"],
    "scatter": ["crossed, counting points", "crossed, scattering points"],
    "rates_along": ["crossed, rates of edges"],
    "to_queries": ["crossed, gradients of queries' rates"],
    "to_keys": ["crossed, gradients of keys' memberships"],
}
"""The kernels that do most of the work, by name; a kernel with several titles is launched once for each."""


def build_kernels() -> list[dict[str, Any]]:
    """Registers and spilled bytes of each of the kernels."""
    titles = {name: iter(mine) for name, mine in TITLES.items()}
    tiles, rows = (launches(torch.bfloat16, D, N_CLUSTERS) for launches in (tile_launches, row_launches))
    found = []
    for launch in [*tiles, *draw_launches(N_CLUSTERS), *rows, *crossed_launches(torch.float32)]:
        if launch.name in titles:
            built = build(launch, CAPABILITY)
            one = {"kernel": next(titles[launch.name]), "registers": built.registers, "spilled": built.spilled}
            found.append(one)
    return found


def main() -> None:
    """Builds and writes."""
    import triton

    found = {"d": D, "n_clusters": N_CLUSTERS, "triton": triton.__version__, "kernels": build_kernels()}
    write_json(ROOT / "results" / "gpu_builds.json", found | {"manifest": manifest()})
    print(*found["kernels"], sep="\n")


if __name__ == "__main__":
    run_command(main, "gpu_builds")

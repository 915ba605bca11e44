"""Counts what the GPU kernels need, without a GPU; writes ``results/gpu_needs.json``.

``python results/measure_gpu_needs.py`` takes Triton and a minute. Instructions are those of the longest loop of each
kernel, as the assembler writes them for compute capability 9.0. Memory is what tensors take at most during one training
step whose kernels are left out: everything is allocated, nothing computed. Counts depend on Triton's version, memory on
PyTorch's; nothing here is a time.
"""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # for those who have the source tree but no installed package

from sbmt import BlockModel, sbm_attention  # noqa: E402
from sbmt.command import run_command  # noqa: E402
from sbmt.experiments.benchmarks.gpu_builds import Launch, build  # noqa: E402
from sbmt.experiments.files import write_json  # noqa: E402

D, CLUSTERS = 64, (32, 64, 128)
SUMS = ("of keys", "of values", "of queries' memberships", "of keys' memberships")  # gradients, as they are launched
N, RATES, DENSITIES = 65_536, 128, (0.001, 0.005, 0.01, 0.02)  # what memory is counted for, one head


@dataclass(frozen=True)
class Need:
    """What a kernel needs for one pair of a tile, one edge of a row, or one key that is visited to draw edges.

    Attributes:
        kernel: Its name; of a sum also whose gradient it is, of drawing what it does.
        way: ``tiled`` or ``sparse``.
        is_training: Whether it runs on the way back only.
        n_clusters: k, where it matters.
        registers: Of a thread.
        spilled: Bytes of a thread's registers that are kept in memory.
        shared: Bytes of shared memory of a program.
        instructions: Of all threads together.
        products: Additions and multiplications on matrix units.
    """

    kernel: str
    way: str
    is_training: bool
    n_clusters: int
    registers: int
    spilled: int
    shared: int
    instructions: float
    products: float


def need(launch: Launch, name: str, way: str, n_clusters: int) -> Need:
    """Builds one kernel and counts."""
    built, about, warps = build(launch, 90), launch.arguments, launch.options["num_warps"]
    units = about["ROWS"] * about["KEYS"] if way == "tiled" else about.get("EDGES") or about["VISITS"]
    products = built.products() * warps // 4 / units
    instructions = round(sum(built.loop.values()) * warps * 32 / units, 1)
    is_training = name.partition(" ")[0] not in ("attend_tiles", "attend", "skip")
    resources = built.registers, built.spilled, built.shared
    return Need(name, way, is_training, n_clusters, *resources, instructions, products)


def count_instructions() -> list[dict[str, Any]]:
    """Of tiles for each number of clusters, and of what a training step does along rows."""
    from sbmt.experiments.benchmarks.gpu_launches import draw_launches, row_launches, tile_launches
    from sbmt.kernels.gpu.tiles import launch as tile_launch

    found = []
    with patch.object(tile_launch, "has_warp_groups", return_value=True):
        for k in CLUSTERS:
            tiles = [one for one in tile_launches(torch.bfloat16, D, k) if "KEYS" in one.arguments]
            found += [need(launch, launch.name, "tiled", k) for launch in tiles]
    for k in CLUSTERS:
        for launch, what in zip(draw_launches(k), ("to count", "to write"), strict=True):
            found.append(need(launch, f"{launch.name} {what}", "sparse", k))
        whose = iter(SUMS)
        for launch in row_launches(torch.bfloat16, D, k):
            if launch.name in ("attend", "attend_backward", "sum_along"):
                name = f"{launch.name} {next(whose)}" if launch.name == "sum_along" else launch.name
                found.append(need(launch, name, "sparse", k))
    return [asdict(one) for one in found]


def leave_out_kernels(density: float) -> None:
    """Launches do nothing from here on, but that every query gets its share of edges."""
    from triton.runtime.interpreter import InterpretedFunction

    def leave_out(self: Any, *args: Any, grid: Any, warmup: Any, **kwargs: Any) -> None:
        if kwargs.get("IS_COUNT"):
            dict(zip(self.arg_names, args, strict=False))["out"].fill_(round(density * N))

    InterpretedFunction.run = leave_out


def peak(sampler: str, density: float) -> int:
    """Bytes of tensors at most during a training step of one head, beyond its inputs."""
    leave_out_kernels(density)
    tokens = [torch.zeros(1, 1, N, D, dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    memberships = [torch.full((1, 1, N, RATES), 0.1) for _ in range(2)]
    block = torch.full((1, RATES, RATES), density / (0.1 * RATES) ** 2)
    model = BlockModel(*(t.requires_grad_() for t in (memberships[0], block, memberships[1])))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        out = sbm_attention(*tokens, model, sampler=sampler, backend="gpu", generator=torch.Generator().manual_seed(0))
        (out.values.sum() + out.density.sum()).backward()
    changes = [e.nbytes() for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    return int(np.cumsum(changes).max())


def measure_memory() -> dict[str, Any]:
    """Of tiles, whatever the density, and of rows."""
    rows = {str(density): peak("exact", density) for density in DENSITIES}
    return {"n": N, "tiled": peak("bernoulli", DENSITIES[0]), "sparse": rows}


def main() -> None:
    """Counts and writes."""
    from sbmt.experiments.training.runs import manifest

    if "--memory" in sys.argv:  # in a process of its own, since kernels are either built or interpreted
        print(json.dumps(measure_memory()))
        return
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, __file__, "--memory"]
    said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    import triton

    about = {"d": D, "triton": triton.__version__, "torch": torch.__version__}
    memory = json.loads(said.splitlines()[-1])
    found = about | {"kernels": count_instructions(), "memory": memory, "manifest": manifest()}
    write_json(ROOT / "results" / "gpu_needs.json", found)
    print(json.dumps(memory, indent=1))


if __name__ == "__main__":
    run_command(main, "measure_gpu_needs")

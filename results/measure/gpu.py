"""Counts the work of a fitted layer on a GPU, without one; writes ``results/gpu/counted.json``.

``python results/measure/gpu.py`` runs a layer of the preset *fitted* (c = 16, 8 heads of width 64, bfloat16, one
sequence), with every Triton kernel replaced by a stub that records its launch. The script counts launches, device
synchronisations, and the bytes of the tensors that operations read or write, each once. It counts launches for other
settings, too. It also builds every kernel for compute capabilities 8.0 and 9.0, and in causal order with padding, to
report registers and spills.
"""

from typing import Any

import torch

from results.measure.common import run, write
from results.measure.kernels import build
from results.measure.launches import HEADS, WIDTH, run_once

LENGTHS, EDGES, EXTRA = (4096, 16384, 65536), 17, 8  # edges a query: c and itself; extra keys
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "padding": {"has_masks": True},
    "causal": {"causal": True},
    "causal with padding": {"causal": True, "has_masks": True},
    "window": {"window": 8},
    "without self-loops": {"self_loops": False},
    "bfloat16 parameters": {"dtype": torch.bfloat16},
    "all of these": {"causal": True, "has_masks": True, "window": 8, "dtype": torch.bfloat16},
}
PAPER = "recommended"  # the preset with the paper's masks, whose kernels "faithful" shares
MACHINES, LAUNCH = {"A100": 2.0e12, "H100": 3.35e12}, 5e-6  # bytes of memory per second; seconds without a CUDA graph


def count_case(**settings: Any) -> dict[str, int]:
    """Counts the kernel launches of a step's forward and backward pass, and its device synchronisations."""
    counter = run_once(512, True, **settings)  # with enough tokens to draw by edges, too
    passes = {"forward": counter.forward, "backward": counter.launches - counter.forward}
    return passes | {"questions": counter.questions}


def count(n: int, is_training: bool) -> dict[str, float]:
    """Counts the launches and bytes of a forward pass or a step, and bounds their time in milliseconds from below."""
    counter, n_edges = run_once(n, is_training), n * HEADS * (EDGES + EXTRA * is_training)
    gathered = n_edges * WIDTH * (4 + is_training * (4 + 16))  # bfloat16; gradients are accumulated in float32
    times = {f"ms_{name}": (counter.bytes + gathered) / speed * 1e3 for name, speed in MACHINES.items()}
    times["ms_launches"] = counter.launches * LAUNCH * 1e3
    return (
        {name: getattr(counter, name) for name in ("launches", "questions", "bytes")} | {"gathered": gathered} | times
    )


def main() -> None:
    """Counts the work, builds the kernels, and writes the result file."""
    counts = {way: {str(n): count(n, way == "step") for n in LENGTHS} for way in ("forward", "step")}
    cases = {name: count_case(**settings) for name, settings in CASES.items()}
    last = "causal with padding"
    built = {"80": build(80), "90": build(90), f"90, {last}": build(90, **CASES[last])}
    built |= {f"{cc}, {PAPER}": build(cc, preset=PAPER) for cc in (80, 90)}
    write("gpu/counted", {"counted": counts, "cases": cases, PAPER: count_case(preset=PAPER), "built": built})


if __name__ == "__main__":
    run(main, "gpu")

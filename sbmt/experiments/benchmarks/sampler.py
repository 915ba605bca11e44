"""Suite ``sampler``: the time per edge drawn, and how it grows with n at a fixed degree."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from sbmt.block_model.model import BlockModel
from sbmt.counter_rng import draw_seed
from sbmt.experiments.benchmarks.cases import MADE_UP, Setting, build
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.progress import Track, untracked
from sbmt.samplers import sample_edges
from sbmt.samplers.exact import sample_with_torch

TITLES = {"exact": "exact", "torch": "exact, in torch", "bernoulli": "bernoulli", "numpy": "numpy + scipy, dense"}
SUBLINEAR = ("exact", "torch")
"""Samplers that do not visit all pairs."""


FULL = {
    "n": 4096,
    "densities": (0.0025, 0.01, 0.04),
    "sizes": [2**power for power in range(12, 17)],
    "pace": Pace(2.0, 4),
}
QUICK = {"n": 2048, "densities": (0.01, 0.04), "sizes": [4096, 16384], "pace": Pace(1.0, 3)}
DEGREE = 16.0  # keys per query where n grows


@torch.no_grad()
def by_numpy(model: BlockModel) -> list[csr_array]:
    """The obvious way to draw: head by head, a uniform for every pair is compared with its probability."""
    rng = np.random.default_rng()
    return [csr_array(rng.random(p.shape) < p) for p in model.expected_mask().flatten(0, 1).numpy()]


SAMPLERS: dict[str, Callable[[BlockModel], object]] = {
    "exact": sample_edges,
    "torch": torch.no_grad()(lambda model: sample_with_torch(model, 0.0, draw_seed(None), 0)),
    "bernoulli": lambda model: sample_edges(model, "bernoulli"),
    "numpy": by_numpy,
}


def run(
    track: Track = untracked, *, n: int, densities: Sequence[float], sizes: Sequence[int], pace: Pace
) -> dict[str, Any]:
    """Times every sampler on block models that are already computed: at these densities, ascending, and these sizes."""
    settings = [Setting(n, density, kind) for kind in MADE_UP for density in densities]
    cases = [_case(setting, pace) for setting in track(settings, description="samplers")]
    for before, case in pairwise(cases):
        if before["kind"] == case["kind"]:
            for name, one in case["results"].items():
                longer = one["median"] - before["results"][name]["median"]
                one["marginal_ns_per_edge"] = round(1e6 * longer / max(case["n_edges"] - before["n_edges"], 1), 3)
    return {"cases": cases, "scaling": [_scaling(sizes, pace)]}


@torch.no_grad()
def _drawn_from(setting: Setting) -> tuple[BlockModel, int]:
    model = build(setting).block_model()
    return model, sample_edges(model).n_edges


def _entry(name: str, model: BlockModel) -> Entry:
    return Entry(lambda _: SAMPLERS[name](model))


def _case(setting: Setting, pace: Pace) -> dict[str, Any]:
    model, n_edges = _drawn_from(setting)
    found = race({name: _entry(name, model) for name in SAMPLERS}, pace, reference="exact")
    for one in found.values():
        one["ns_per_edge"] = round(1e6 * one["median"] / max(n_edges, 1), 3)
    return asdict(setting) | {"n_edges": n_edges, "results": found}


def _scaling(sizes: Sequence[int], pace: Pace) -> dict[str, Any]:
    """Measures all sizes in one race, so that a slow moment of the machine does not distort the slope."""
    drawn = {n: _drawn_from(Setting(n, DEGREE / n, "structured", n_heads=1)) for n in sizes}
    entries = {f"{name} {n}": _entry(name, model) for name in SUBLINEAR for n, (model, _) in drawn.items()}
    found = race(entries, pace, reference=f"exact {sizes[0]}")
    samplers = {}
    for name in SUBLINEAR:
        rows = [found[f"{name} {n}"] | {"n": n, "n_edges": n_edges} for n, (_, n_edges) in drawn.items()]
        growth = slope([row["n_edges"] for row in rows], [row["median"] for row in rows])
        samplers[name] = {"slope": growth, "rows": rows}
    return {"degree": DEGREE, "samplers": samplers}


def slope(x: Sequence[int | float], y: Sequence[int | float]) -> float:
    """Least squares of log y over log x: 1 is linear in x, 2 would be quadratic."""
    return round(float(np.polyfit(np.log(x), np.log(y), 1)[0]), 3)

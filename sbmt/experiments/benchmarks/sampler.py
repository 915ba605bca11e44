"""Suite ``sampler``: the time per edge drawn, and how it grows with n at a fixed degree."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from sbmt.block_model.model import BlockModel
from sbmt.counter_rng import draw_seed
from sbmt.experiments.benchmarks.cases import MADE_UP, Setting, build, thin_block_model
from sbmt.experiments.benchmarks.timing import Entry, Pace, Summary, race
from sbmt.experiments.progress import Track, untracked
from sbmt.samplers import sample_edges
from sbmt.samplers.exact import sample_with_torch

REFERENCE = "exact"
SUBLINEAR = ("exact", "torch")
"""Samplers that do not visit all pairs."""


@dataclass(frozen=True)
class SamplerGrid:
    """What to measure.

    Attributes:
        n: Tokens of the density sweep, 4 heads.
        densities: Densities, ascending.
        sizes: n of the scaling sweep, one head.
        pace: Pace of each race.
        degree: Expected keys per query in the scaling sweep.
        certain_rows: Numbers of queries that certainly reach every key; a scaling sweep for each number.
    """

    n: int
    densities: tuple[float, ...]
    sizes: tuple[int, ...]
    pace: Pace
    degree: float = 16.0
    certain_rows: tuple[int, ...] = (0, 3)


FULL = SamplerGrid(4096, (0.0025, 0.01, 0.04), (4096, 8192, 16384, 32768, 65536), Pace(2.0, 4))
QUICK = SamplerGrid(2048, (0.01, 0.04), (4096, 16384), Pace(1.0, 3))


def by_numpy(model: BlockModel) -> list[csr_array]:
    """The obvious way to draw: head by head, a uniform for every pair is compared with its probability."""
    rng = np.random.default_rng()
    with torch.no_grad():
        probability = model.expected_mask().flatten(0, 1).numpy()
    return [csr_array(rng.random(p.shape) < p) for p in probability]


def by_torch(model: BlockModel) -> object:
    """The exact law without compiled kernels."""
    with torch.no_grad():
        return sample_with_torch(model, 0.0, draw_seed(None), 0)


SAMPLERS: dict[str, Callable[[BlockModel], object]] = {
    "exact": sample_edges,
    "torch": by_torch,
    "bernoulli": lambda model: sample_edges(model, "bernoulli"),
    "numpy": by_numpy,
}
TITLES = {"exact": "exact", "torch": "exact, in torch", "bernoulli": "bernoulli", "numpy": "numpy + scipy, dense"}


def run(grid: SamplerGrid, track: Track = untracked) -> dict[str, Any]:
    """Times every sampler on block models whose rate factors are already computed."""
    settings = [Setting(grid.n, density, kind) for kind in MADE_UP for density in grid.densities]
    cases = [_density_case(setting, grid.pace) for setting in track(settings, description="samplers")]
    scaling = [_scaling(grid, n_stars) for n_stars in track(grid.certain_rows, description="their growth")]
    return {"cases": with_marginal_cost(cases), "scaling": scaling}


def _density_case(setting: Setting, pace: Pace) -> dict[str, Any]:
    with torch.no_grad():
        model = build(setting).block_model()
    n_edges = sample_edges(model).n_edges
    found = race({name: _entry(name, model) for name in SAMPLERS}, pace, reference=REFERENCE)
    for one in found.values():
        one["ns_per_edge"] = nanoseconds(one, n_edges)
    return asdict(setting) | {"n_edges": n_edges, "results": found}


def with_marginal_cost(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cases, with the time per further edge, compared with the next lower density, added to each result."""
    for before, case in pairwise(cases):
        more = case["n_edges"] - before["n_edges"]
        if case["kind"] == before["kind"] and more > 0:
            for name, one in case["results"].items():
                longer = one["median"] - before["results"][name]["median"]
                one["marginal_ns_per_edge"] = round(1e6 * longer / more, 3)
    return cases


def _scaling(grid: SamplerGrid, n_stars: int) -> dict[str, Any]:
    """Measures all sizes in one race, so that a slow moment of the machine does not distort the slope."""
    models = {n: thin_block_model(n, grid.degree, n_stars=n_stars) for n in grid.sizes}
    n_edges = {n: sample_edges(model).n_edges for n, model in models.items()}
    entries = {f"{name} {n}": _entry(name, model) for name in SUBLINEAR for n, model in models.items()}
    found = race(entries, grid.pace, reference=f"{REFERENCE} {grid.sizes[0]}")
    samplers = {}
    for name in SUBLINEAR:
        rows = [found[f"{name} {n}"] | {"n": n, "n_edges": n_edges[n]} for n in grid.sizes]
        for row in rows:
            row["ns_per_edge"] = nanoseconds(row, row["n_edges"])
        growth = slope([row["n_edges"] for row in rows], [row["median"] for row in rows])
        samplers[name] = {"slope": growth, "rows": rows}
    return {"certain_rows": n_stars, "degree": grid.degree, "samplers": samplers}


def _entry(name: str, model: BlockModel) -> Entry:
    return Entry(lambda _: SAMPLERS[name](model))


def nanoseconds(found: Summary, n_edges: int) -> float:
    """Median time for one edge."""
    return round(1e6 * found["median"] / max(n_edges, 1), 3)


def slope(x: Sequence[int | float], y: Sequence[int | float]) -> float:
    """Least squares of log y over log x: 1 is linear in x, 2 would be quadratic."""
    return round(float(np.polyfit(np.log(x), np.log(y), 1)[0]), 3)

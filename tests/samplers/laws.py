"""Block models with difficult cells, the law their edges must have, and ways to draw many masks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sbmt import BlockModel, sample_edges
from sbmt.samplers import RESERVED, SAMPLERS, Sampler
from sbmt.samplers.exact import sample_with_torch
from tests.statistics import binomial_p_values

SHARE = 0.0035  # of the suite's false alarms, for each of the tests here


def case(query, block, key):
    return [torch.tensor(x, dtype=torch.float64) for x in (query, block, key)]


MIXED = [[0.9, 0.3], [0.2, 0.8], [0.6, 0.6]], [[0.1, 0.9], [0.7, 0.2], [0.5, 0.5], [0.9, 0.8]]
ONE_HOT = [[1, 0], [0, 1], [1, 0]], [[0, 1], [1, 0], [1, 0], [0, 1]]
CASES = {  # three queries, four keys, two clusters: query memberships, block matrix, key memberships
    "asymmetric": case(MIXED[0], [[0.1, 0.5], [0.05, 0.35]], MIXED[1]),
    "anti-diagonal": case(MIXED[0], [[0, 0.5], [0.5, 0]], MIXED[1]),
    "zeros": case([[0, 0], [1, 0], [0.5, 1]], [[0.6, 0], [0, 0.4]], [[0, 0], [0, 1], [1, 0], [0.3, 0.3]]),
    "classic": case(ONE_HOT[0], [[0.9, 0.1], [0.1, 0.9]], ONE_HOT[1]),
    "clamped": case(MIXED[0], [[1, 0.7], [0.8, 1]], MIXED[1]),
    "certain or impossible": case(ONE_HOT[0], [[1, 0], [0, 1]], ONE_HOT[1]),
    "one row certain": case([[1, 0], [0, 0.9], [0, 0.2]], [[1, 1], [0.01, 0.05]], ONE_HOT[1]),
}

DRAWS = {  # the sampler, and what makes it take one of its ways: constants that are set for the test
    "bernoulli": ("bernoulli", {}),
    "fastrg": ("fastrg", {}),
    "exact": ("exact", {}),
    "exact by skipping": ("exact", {"kernels.cpu.draws.sample.HIT": 1e9}),
    "exact by clusters": ("exact", {"kernels.cpu.draws.sample.STEP": 1e9, "kernels.cpu.draws.sample.ENTRY": 0.0}),
    "torch": ("torch", {}),
    "torch by candidates": ("torch", {"samplers.exact.DENSE_SHARE": float("inf")}),
    "torch by rows": ("torch", {"samplers.exact.DENSE_SHARE": 0.0}),
}
DRAWS |= {name: (name, {}) for name in SAMPLERS if name not in RESERVED}  # of a plugin, see docs/how-to/add-sampler.md
each_draw = pytest.mark.parametrize("draw", DRAWS, indirect=True)
each_link = pytest.mark.parametrize("link", ["bilinear", "poisson"])


class Draw:
    """One way to draw masks: a sampler on one of its code paths."""

    def __init__(self, name, monkeypatch):
        self.sampler, constants = DRAWS[name]
        for constant, value in constants.items():
            monkeypatch.setattr(f"sbmt.{constant}", value)
        if self.sampler == "torch":  # what runs on other devices
            monkeypatch.setitem(SAMPLERS, "torch", Sampler(sample_with_torch))

    def edges(self, model, exploration=0.0, seed=0, **options):
        generator = torch.Generator().manual_seed(seed)
        return sample_edges(model, self.sampler, exploration=exploration, generator=generator, **options)

    def masks(self, model, n_masks, exploration=0.0, n_seeds=4):
        """bool ``(n_masks, *model.shape)``: the model repeated over the batch, a few seeds, every edge list checked."""
        repeats = n_masks // n_seeds
        queries, keys = (t.repeat(repeats, 1, 1, 1) for t in (model.query_membership, model.key_membership))
        masks = (None if t is None else t.repeat(repeats, 1) for t in (model.query_mask, model.key_mask))
        many = BlockModel(queries, model.block_matrix, keys, *masks, link=model.link)
        drawn = [replace(self.edges(many, exploration, seed), check=True).to_dense() for seed in range(n_seeds)]
        return torch.cat(drawn).view(n_masks, *model.shape).numpy()

    def law(self, model, exploration=0.0):
        """What each edge's probability must be, from first principles."""
        factors = (t.numpy() for t in (model.query_membership, model.block_matrix, model.key_membership))
        rate = np.einsum("bhiu,huv,bhjv->bhij", *factors) + exploration
        for mask, axes in ((model.query_mask, (1, 3)), (model.key_mask, (1, 2))):
            if mask is not None:
                rate = rate * np.expand_dims(mask.numpy(), axes)
        is_poisson = model.link.is_poisson or self.sampler == "fastrg"
        return -np.expm1(-rate) if is_poisson else np.minimum(rate, 1.0)


def random_model(batch, heads, n_queries, n_keys, n_clusters, *, seed=0, masks=(None, None), link="bilinear"):
    """Memberships in [0, 1]; a block matrix of sum 1, so that no rate is clamped."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, n_queries, n_clusters), (heads, n_clusters, n_clusters), (batch, heads, n_keys, n_clusters)
    query, block, key = (torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return BlockModel(query, block / block.sum((1, 2), keepdim=True), key, *masks, link=link)


def stacked(names=tuple(CASES), link="bilinear"):
    """The named cases as the heads of one model."""
    query, block, key = (torch.stack(parts) for parts in zip(*(CASES[name] for name in names), strict=True))
    return BlockModel(query[None], block, key[None], link=link)


def uniform_model(probability, n_queries, n_keys, batch=1):
    """Every edge has the same probability: one cluster."""
    queries, keys = (torch.ones(batch, 1, n, 1, dtype=torch.float64) for n in (n_queries, n_keys))
    return BlockModel(queries, torch.full((1, 1, 1), probability, dtype=torch.float64), keys)


def law_p_values(masks, probability):
    """Counts of every cell, and of all cells of equal probability taken together."""
    n, counts = len(masks), masks.sum(0).ravel()
    levels, level = np.unique(probability.ravel().round(12), return_inverse=True)
    trials, totals = n * np.bincount(level), np.bincount(level, weights=counts)
    per_cell = binomial_p_values(counts, n, probability.ravel())
    return np.concatenate([per_cell, binomial_p_values(totals, trials, levels)])

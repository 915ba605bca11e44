"""Block models with difficult cells, the law of their edges, and ways to draw many masks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sbmt import BlockModel, sample_edges
from sbmt.block_model.crossed import CrossedModel
from sbmt.samplers import RESERVED, SAMPLERS, Sampler, law_of
from sbmt.samplers.exact import sample_with_torch
from tests.statistics import binomial_p_values

SHARE = 0.0035  # share of the suite's false alarms for each test here


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

PADDING = 800  # with padded keys on either side, rows expect few enough candidates to be drawn by points
DRAWS = {  # the sampler, constants set for the test, and the number of padded keys on either side
    "bernoulli": ("bernoulli", {}, 0),
    "fastrg": ("fastrg", {}, 0),
    "exact": ("exact", {}, 0),
    "exact by points": ("exact", {}, PADDING),
    "torch": ("torch", {}, 0),
    "torch by candidates": ("torch", {"samplers.exact.DENSE_SHARE": float("inf")}, 0),
}
DRAWS |= {name: (name, {}, 0) for name in SAMPLERS if name not in RESERVED}  # of a plugin: docs/how-to/add-sampler.md
each_draw = pytest.mark.parametrize("draw", DRAWS, indirect=True)
each_link = pytest.mark.parametrize("link", ["bilinear", "poisson"])


class Draw:
    """One way to draw masks, which is a sampler on one of its code paths."""

    def __init__(self, name, monkeypatch):
        self.sampler, constants, self.n_padded = DRAWS[name]
        self.n_masks = 1000 if "candidates" in name else 4000  # many candidates per edge take longer
        for constant, value in constants.items():
            monkeypatch.setattr(f"sbmt.{constant}", value)
        if self.sampler == "torch":  # the code for other devices
            monkeypatch.setitem(SAMPLERS, "torch", Sampler(sample_with_torch))

    def edges(self, model, exploration=0.0, seed=0, **options):
        generator = torch.Generator().manual_seed(seed)
        return sample_edges(model, self.sampler, exploration=exploration, generator=generator, **options)

    def masks(self, model, n_masks, exploration=0.0, n_seeds=4):
        """Draws bool ``(n_masks, *model.shape)`` from copies of the model with a few seeds; checks every edge list."""
        n_copies = n_masks // n_seeds
        copies = repeat_rows(model, n_copies, self.n_padded) if self.n_padded else repeat_examples(model, n_copies)
        drawn = [replace(self.edges(copies, exploration, seed), check=True).to_dense() for seed in range(n_seeds)]
        if self.n_padded:
            p = self.law(model, exploration).clip(1e-300, 1 - 1e-15)
            candidates = p * min(32.0, (-np.log1p(-p) / p).max()) if model.link == "bilinear" else -np.log1p(-p)
            assert candidates.sum(-1).max() < copies.shape[3] / 8, "some rows may be drawn key by key"
            real = [mask[..., self.n_padded : -self.n_padded].unflatten(2, (n_copies, -1)) for mask in drawn]
            drawn = [mask.permute(2, 0, 1, 3, 4) for mask in real]
        return torch.cat(drawn).reshape(n_masks, *model.shape).numpy()

    def law(self, model, exploration=0.0):
        """Returns the probability of each edge from first principles."""
        factors = (t.detach().numpy() for t in (model.query_membership, model.block_matrix, model.key_membership))
        rate = np.einsum("bhiu,huv,bhjv->bhij", *factors, optimize=True) + exploration
        for mask, axes in ((model.query_mask, (1, 3)), (model.key_mask, (1, 2))):
            if mask is not None:
                rate = rate * np.expand_dims(mask.numpy(), axes)
        return -np.expm1(-rate) if law_of(self.sampler, model.link) == "poisson" else np.minimum(rate, 1.0)


def rebuilt(model, of_query, of_key, query_mask, key_mask):
    """Returns a model of tokens selected from this model by ``of_query`` and ``of_key``."""
    if isinstance(model, CrossedModel):
        query, key = (model.query_part, model._query), (model.key_part, model._key)
        chosen = [tuple(of(x.detach()) for x in pair) for of, pair in ((of_query, query), (of_key, key))]
        return CrossedModel(chosen[0], model.part_blocks.detach(), chosen[1], query_mask, key_mask)
    query, key = of_query(model.query_membership), of_key(model.key_membership)
    return BlockModel(query, model.block_matrix, key, query_mask, key_mask, link=model.link)


def repeat_examples(model, n):
    masks = (None if mask is None else mask.repeat(n, 1) for mask in (model.query_mask, model.key_mask))
    return rebuilt(model, lambda x: x.repeat(n, 1, 1, 1), lambda x: x.repeat(n, 1, 1, 1), *masks)


def repeat_rows(model, n, n_padded):
    """Repeats the queries n times, and adds padded keys before and after the keys."""
    batch, _, _, n_keys = model.shape
    key = torch.nn.functional.pad(torch.arange(n_keys), (n_padded, n_padded))  # padding looks like the first key
    own = torch.ones(batch, n_keys, dtype=torch.bool) if model.key_mask is None else model.key_mask
    queries = None if model.query_mask is None else model.query_mask.repeat(1, n)
    masks = queries, torch.nn.functional.pad(own, (n_padded, n_padded))
    return rebuilt(model, lambda x: x.repeat(1, 1, n, 1), lambda x: x[:, :, key], *masks)


def random_model(
    batch=2, heads=3, n_queries=5, n_keys=7, n_clusters=4, *, seed=0, masks=(None, None), link="bilinear", scale=1.0
):
    """Draws memberships in [0, 1], and a block matrix of sum ``scale``: if this is 1, no rate is clamped."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, n_queries, n_clusters), (heads, n_clusters, n_clusters), (batch, heads, n_keys, n_clusters)
    query, block, key = (torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return BlockModel(query, scale * block / block.sum((1, 2), keepdim=True), key, *masks, link=link)


def stacked(names=tuple(CASES), link="bilinear"):
    """Returns the named cases as the heads of one model."""
    query, block, key = (torch.stack(parts) for parts in zip(*(CASES[name] for name in names), strict=True))
    return BlockModel(query[None], block, key[None], link=link)


def uneven_model():
    """Returns two heads of two examples with 400 keys, whose rows expect many, few, or no edges in turn."""
    lengths = (12, [12, 0]), (400, [400, 300])
    masks = [torch.arange(n) < torch.tensor(real)[:, None] for n, real in lengths]
    model = random_model(2, 2, 12, 400, 3, masks=masks)
    scale = torch.tensor([1.0, 0.05, 1.0, 0.2, 1.0, 0.0], dtype=torch.float64).repeat(2)[:, None]
    return rebuilt(model, lambda x: scale * x, lambda x: x, *masks)


def uniform_model(probability, n_queries, n_keys):
    """Returns a model with one cluster, in which all edges have the same probability."""
    queries, keys = (torch.ones(1, 1, n, 1, dtype=torch.float64) for n in (n_queries, n_keys))
    return BlockModel(queries, torch.full((1, 1, 1), probability, dtype=torch.float64), keys)


def law_p_values(masks, probability):
    """Tests the counts of every cell, and of all cells of equal probability together."""
    n, counts = len(masks), masks.sum(0).ravel()
    levels, level = np.unique(probability.ravel().round(12), return_inverse=True)
    trials, totals = n * np.bincount(level), np.bincount(level, weights=counts)
    per_cell = binomial_p_values(counts, n, probability.ravel())
    return np.concatenate([per_cell, binomial_p_values(totals, trials, levels)])

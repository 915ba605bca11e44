"""Block models of any sizes, entries, types and padding, and what must hold of them and of edges drawn from them."""

from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

from sbmt import BlockModel, SbmtError, sample_edges
from sbmt.counter_rng import draw_seed
from sbmt.samplers.fastrg import MOST_DRAWS
from tests.faults.ingredients import (
    DTYPES,
    EXACT_SHARES,
    EXPLORATIONS,
    LAYOUTS,
    PADDING,
    SHARES,
    SIZES,
    gradients,
    holds,
    is_finite,
    laid_out,
    padding,
    real_pairs,
    refused,
    seeded,
    shares,
)

RATES = (1.0, 30.0, 1e-30, 1e3, 1e9, 1e30, 3e38)
"""Largest entries of a block matrix under the Poisson link."""
NEVER = 1e-12  # probabilities
DEAR = 1e4  # draws


@dataclass(frozen=True)
class BlockModelCase:
    """A block model by the names of its parts."""

    batch: int
    heads: int
    n_queries: int
    n_keys: int
    n_clusters: int
    query: str
    block: str
    key: str
    link: str
    rate: float
    dtype: torch.dtype
    layout: str
    query_padding: str
    key_padding: str
    exploration: float
    sampler: str
    is_leaf: bool
    seed: int

    @property
    def shape(self):
        return self.batch, self.heads, self.n_queries, self.n_keys

    def tensors(self):
        """Memberships and block matrix as leaves, and the masks."""
        shapes = (
            (self.batch, self.heads, self.n_queries, self.n_clusters),
            (self.heads, self.n_clusters, self.n_clusters),
            (self.batch, self.heads, self.n_keys, self.n_clusters),
        )
        kinds = self.query, self.block, self.key
        made = [shares(*part, self.seed + i, self.dtype) for i, part in enumerate(zip(kinds, shapes, strict=True))]
        if self.link == "poisson":
            made[1] = made[1] * min(self.rate, torch.finfo(self.dtype).max)
        masks = (
            padding(self.query_padding, self.batch, self.n_queries, self.seed),
            padding(self.key_padding, self.batch, self.n_keys, self.seed + 1),
        )
        return [t.requires_grad_(self.is_leaf) for t in made], masks

    def model(self, leaves, masks):
        query, block, key = (laid_out(t[:1] if self.layout == "expanded" else t, self.layout, len(t)) for t in leaves)
        return BlockModel(query, block, key, *masks, self.link)


def block_model_cases():
    """Any block model there is, and some that there is not: sizes of 0, rates that no type holds."""
    size = st.sampled_from(SIZES)
    return st.builds(
        BlockModelCase,
        batch=size,
        heads=size,
        n_queries=size | st.sampled_from([9, 66]),
        n_keys=size | st.sampled_from([9, 66]),
        n_clusters=size,
        query=st.sampled_from(SHARES),
        block=st.sampled_from(SHARES),
        key=st.sampled_from(SHARES),
        link=st.sampled_from(["bilinear", "poisson"]),
        rate=st.sampled_from(RATES),
        dtype=st.sampled_from(DTYPES),
        layout=st.sampled_from(LAYOUTS),
        query_padding=st.sampled_from(PADDING),
        key_padding=st.sampled_from(PADDING),
        exploration=st.sampled_from(EXPLORATIONS),
        sampler=st.sampled_from(["exact", "bernoulli", "fastrg"]),
        is_leaf=st.booleans(),
        seed=st.integers(0, 1 << 32),
    )


def check_block_model(case):
    """Probabilities in [0, 1] as written down, the closed form, edges where they may be, the same from one seed."""
    if 0 in (*case.shape, case.n_clusters):
        with refused("at least one example, head, query, key and cluster"):
            BlockModel(*(torch.zeros(s) for s in _shapes(case)))
        return "refused"
    leaves, masks = case.tensors()
    try:
        model = case.model(leaves, masks)
    except SbmtError as error:
        assert case.link == "poisson" and case.rate >= 1e30 and "block_matrix in" in str(error)
        return "refused"
    assert model.shape == case.shape
    rate, p = _check_probabilities(case, model, masks)
    edges = _check_draw(case, model, rate, p)
    if edges is not None:
        _check_edge_probability(case, model, edges, leaves)
    return "answered"


def _shapes(case):
    batch, heads, n_queries, n_keys = case.shape
    k = case.n_clusters
    return (batch, heads, n_queries, k), (heads, k, k), (batch, heads, n_keys, k)


def _check_probabilities(case, model, masks):
    """The expected mask in float64, by definition."""
    query, block, key = (
        t.detach().double() for t in (model.query_membership, model.block_matrix, model.key_membership)
    )
    delta = case.exploration
    is_pair = real_pairs(*masks, case.shape)
    rate = torch.where(is_pair, query @ block @ key.mT + delta, 0.0)
    p = -torch.expm1(-rate) if case.link == "poisson" else rate.clamp(max=1.0)
    found = model.expected_mask(delta)
    assert is_finite(found) and found.shape == case.shape and ((found >= 0) & (found <= 1)).all()
    assert (found[~is_pair.expand(case.shape)] == 0).all()
    torch.testing.assert_close(found.double(), p, rtol=1e-5, atol=1e-7)
    density = model.expected_density(delta)
    mean = p.sum((2, 3)) / is_pair.sum((2, 3)).clamp(min=1)
    assert density.shape == case.shape[:2] and ((density >= 0) & (density <= 1 + 1e-6)).all()
    if delta == 0 or case.link == "poisson":
        torch.testing.assert_close(density.double(), mean, rtol=1e-5, atol=1e-6)
    else:  # documented as min(mean p + δ, 1): the mean of min(p + δ, 1) may be less
        assert (density.double() >= mean - 1e-6).all()
    assert torch.equal(model.n_pairs, is_pair.sum((1, 2, 3)))
    return rate, p


def _check_draw(case, model, rate, p):
    generator, twin = seeded(case.seed), seeded(case.seed)
    draw = dict(sampler=case.sampler, exploration=case.exploration)
    if case.sampler == "fastrg" and (total := float(rate.sum())) > DEAR:
        if total > 2 * MOST_DRAWS:
            with refused("edges to draw"):
                sample_edges(model, **draw, generator=generator)
        return None
    edges = sample_edges(model, **draw, generator=generator)
    draw_seed(twin)
    assert torch.equal(generator.get_state(), twin.get_state())  # one int64, whatever was drawn
    replace(edges, check=True)
    mask = edges.to_dense()
    assert not mask[p < NEVER].any()
    kinds = {case.query, case.key, case.block}
    if case.sampler != "fastrg" and case.link == "bilinear" and kinds <= set(EXACT_SHARES):
        assert mask[p == 1].all()
    again = sample_edges(model, **draw, generator=seeded(case.seed))
    assert torch.equal(again.keys, edges.keys) and torch.equal(again.row_ptr, edges.row_ptr)
    _check_last_example(case, model, edges, draw)
    density = edges.density()
    n_pairs = real_pairs(model.query_mask, model.key_mask, case.shape).sum((2, 3)).clamp(min=1)
    torch.testing.assert_close(density, mask.sum((2, 3)) / n_pairs)
    assert ((density >= 0) & (density <= 1)).all()
    return edges


def _check_last_example(case, model, edges, draw):
    """Drawn by itself, the last example has the same edges."""
    masks = (None if m is None else m[-1:] for m in (model.query_mask, model.key_mask))
    alone = BlockModel(
        model.query_membership[-1:], model.block_matrix, model.key_membership[-1:], *masks, link=case.link
    )
    drawn = sample_edges(alone, **draw, generator=seeded(case.seed), first_example=case.batch - 1)
    assert torch.equal(drawn.to_dense(), edges.to_dense()[-1:])


def _check_edge_probability(case, model, edges, leaves):
    delta, cells = case.exploration, edges.cells()
    on_edges = model.edge_probability(edges, delta)
    torch.testing.assert_close(on_edges, model.expected_mask(delta).flatten()[cells], rtol=1e-5, atol=1e-7)
    assert (model.edge_probability(edges, delta, clamp=False) >= on_edges - 1e-6).all()
    gate = model.gate(edges)
    assert gate.shape == (edges.n_edges,) and (gate == 1).all()
    if not holds(case.dtype, case.rate * case.n_queries * case.n_keys * case.n_clusters * case.heads):
        return  # gradients to memberships are sums of rates
    for loss in (gate.sum(), on_edges.sum(), model.expected_density(delta).sum(), model.expected_mask(delta).sum()):
        assert is_finite(*gradients(loss, leaves))

"""How memberships start, and what huge clusters do to the layer."""

import pytest
import torch

from sbmt.layers import SBMAttention
from sbmt.samplers.fastrg import MOST_DRAWS
from tests.layers.inputs import seeded, tokens


@pytest.mark.parametrize("membership", ["sigmoid", "crossed"])
def test_no_edge_starts_certain_or_impossible_and_crossed_memberships_differ(membership):
    """The mean over seeds, that is; single layers scatter."""
    x, starts = tokens(2, 4, 64, 32), []
    for seed in range(3):
        torch.manual_seed(seed)
        layer = SBMAttention(32, 4, 64, link="poisson", membership=membership)
        starts.append(layer.block_model(x, x).expected_mask().detach())
    means = torch.stack([p.mean() for p in starts])
    assert means.min() > 0.1 and means.max() < 0.6
    for p in starts:
        assert (p.std() > 0.1) == (membership == "crossed")
        if membership == "crossed":  # tokens meet their like
            assert p.diagonal(dim1=2, dim2=3).mean() > p.mean() + p.std()


@pytest.mark.parametrize("sampler", ["exact", "fastrg"])
@pytest.mark.parametrize("size", [12.0, 1e15])
@pytest.mark.parametrize("membership", ["sigmoid", "crossed"])
def test_huge_clusters_stay_finite_under_the_poisson_link(membership, size, sampler):
    """Without a cut, a cluster of |C_a|² > 88 has an infinite rate with its like."""
    layer = SBMAttention(4, 3, 5, link="poisson", membership=membership, sampler=sampler)
    x = tokens(batch=1, n=3).requires_grad_()
    with torch.no_grad():
        layer.clusters.normal_().mul_(size)
    assert (layer.clusters.square().sum(-1) > 88).any()
    model = layer.block_model(x, x)
    total = (model.query_membership @ model.block_matrix @ model.key_membership.mT).sum()
    assert total < MOST_DRAWS  # few enough that Algorithm 1 can draw every one
    p = model.expected_mask()
    assert ((p >= 0) & (p <= 1)).all()
    out = layer(x, x, x, generator=seeded())
    assert out.values.isfinite().all() and out.density.isfinite().all()
    (out.values.square().sum() + out.density.sum() + out.expected_density.sum()).backward()
    assert all(t.grad.isfinite().all() for t in (x, *layer.parameters()))

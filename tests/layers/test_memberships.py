"""What memberships and block matrices of other kinds do to the layer: softmax, huge clusters, a diagonal."""

import pytest
import torch

from sbmt.errors import SbmtError
from sbmt.layers import SBMAttention
from sbmt.samplers.fastrg import MOST_DRAWS
from tests.layers.inputs import seeded, tokens


def test_softmax_memberships_divide_a_token_among_clusters():
    layer = SBMAttention(4, 3, 5, link="poisson", membership="softmax").double()
    query, key = tokens(dtype=torch.float64), tokens(n=6, seed=1, dtype=torch.float64)
    model = layer.block_model(query, key)
    rates = (layer.clusters @ layer.clusters.mT).exp() / 4
    shares = [torch.softmax(layer.node_mlp(x) @ layer.clusters.mT, -1) for x in (query, key)]
    for ours, expected in zip((model.query_membership, model.key_membership), shares, strict=True):
        torch.testing.assert_close(ours.sum(-1), torch.ones_like(ours[..., 0]), rtol=0, atol=1e-12)
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)
    p = 1 - (-shares[0] @ rates @ shares[1].mT).exp()
    torch.testing.assert_close(model.expected_mask(), p, rtol=0, atol=1e-12)


def test_softmax_memberships_start_near_one_quarter_but_apart():
    """The mean over seeds, that is; single layers scatter, most of all narrow ones."""
    x, starts = tokens(2, 4, 64, 32), {}
    for membership in ("sigmoid", "softmax"):
        starts[membership] = []
        for seed in range(3):
            torch.manual_seed(seed)
            layer = SBMAttention(32, 4, link="poisson", membership=membership)
            starts[membership].append(layer.block_model(x, x).expected_mask().detach())
    means = torch.stack([p.mean() for p in starts["softmax"]])
    assert abs(means.mean() - 0.25) < 0.1 and means.min() > 0.2 and means.max() < 0.5
    pairs = zip(starts["softmax"], starts["sigmoid"], strict=True)
    assert all(ours.std() > 10 * theirs.std() for ours, theirs in pairs)
    for p in starts["softmax"]:  # tokens meet their like
        assert p.diagonal(dim1=2, dim2=3).mean() > p.mean() + p.std()


@pytest.mark.parametrize("sampler", ["exact", "fastrg"])
@pytest.mark.parametrize("size", [12.0, 1e15])
@pytest.mark.parametrize("membership", ["sigmoid", "softmax"])
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


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "settings, words",
    [
        (dict(membership="softmax"), "link='poisson'"),
        (dict(membership="hardmax", link="poisson"), "membership among 'sigmoid', 'softmax'"),
    ],
)
def test_memberships_that_do_not_fit_are_refused(settings, words):
    with pytest.raises(SbmtError, match=words):
        SBMAttention(4, 3, 5, **settings)


@pytest.mark.parametrize("membership", ["sigmoid", "softmax"])
def test_one_shared_cluster_can_make_an_edge_certain(membership):
    """However many other clusters there are: the cut is on the rate, not on the exponent."""
    layer = SBMAttention(8, 1, 128, link="poisson", membership=membership)
    with torch.no_grad():
        layer.clusters.zero_()
        layer.clusters[0, 0, 0] = 30.0
        layer.clusters[0, 1:, 0] = -5.0
        layer.node_mlp[2].weight.zero_()
        layer.node_mlp[2].bias.zero_()[0] = 30.0
    x = torch.zeros(1, 1, 2, 8)
    assert (layer.block_model(x, x).expected_mask() > 1 - 1e-6).all()


DIAGONAL = [("bilinear", "sigmoid"), ("poisson", "sigmoid"), ("poisson", "softmax")]


@pytest.mark.parametrize(("link", "membership"), DIAGONAL)
def test_diagonal_clusters_meet_none_but_themselves(link, membership):
    """By hand: the diagonal of e^(C Cᵀ), over its own sum, over k², or over 4."""
    layer = SBMAttention(4, 3, 5, link=link, membership=membership, is_diagonal=True).double()
    x = tokens(dtype=torch.float64)
    block_matrix = layer.block_model(x, x).block_matrix
    own = layer.clusters.square().sum(-1).exp()  # heads k
    divisor = own.sum(-1, keepdim=True) if link == "bilinear" else 25 if membership == "sigmoid" else 4
    torch.testing.assert_close(block_matrix, torch.diag_embed(own / divisor), rtol=1e-12, atol=0)
    if link == "bilinear":
        torch.testing.assert_close(block_matrix.sum((1, 2)), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("is_diagonal", [True, False])
@pytest.mark.parametrize(("link", "membership"), DIAGONAL)
def test_all_parameters_get_gradients(link, membership, is_diagonal):
    layer, x = SBMAttention(4, 3, 5, link=link, membership=membership, is_diagonal=is_diagonal), tokens(n=16)
    out = layer(x, x, x, generator=seeded())
    (out.values.square().sum() + out.expected_density.sum()).backward()
    assert all(p.grad.isfinite().all() and p.grad.any() for p in layer.parameters())

"""Tests the layer's training mode, the patterns that it adds to its samples, and its initial probabilities."""

import pytest
import torch

from sbmt.attention import edge_attention
from sbmt.errors import SbmtError
from sbmt.layers import SBMAttention, sbm_attention
from sbmt.layers.sbm import StaticSBMAttention
from sbmt.samplers.fastrg import MOST_DRAWS
from tests.layers.inputs import seeded, tokens, without_edges
from tests.statistics import binomial_p_values

N = 9


def test_eval_samples_without_exploration_and_dropout():
    layer = SBMAttention(4, 3, 5, exploration=0.3, dropout=0.5).eval()
    x = tokens(n=32)
    first, second = (layer(x, x, x, generator=seeded(s), return_edges=True) for s in (0, 1))
    assert not torch.equal(first.edges.to_dense(), second.edges.to_dense())
    torch.testing.assert_close(first.values, edge_attention(x, x, x, first.edges))
    silent = without_edges(layer)(x, x, x)
    assert (silent.density == 0).all() and (silent.values == 0).all()


@pytest.mark.statistical(share=0.001)
def test_training_explores(judge):
    layer = without_edges(SBMAttention(4, 3, 5, exploration=0.1))
    x = tokens(batch=8, n=64)
    out = layer(x, x, x, return_edges=True)
    judge(binomial_p_values(out.edges.n_edges, 8 * 3 * 64 * 64, 0.1))
    assert (out.expected_density < 1e-6).all()


def test_the_layer_is_the_function_with_its_block_model():
    layer = SBMAttention(4, 3, 5, dropout=0.2, window=4, exploration=0.05)
    x = tokens()
    mask = torch.arange(8).expand(2, 8) < torch.tensor([[8], [5]])
    ours = layer(x, x, x, query_mask=mask, key_mask=mask, generator=seeded(), return_edges=True)
    settings = dict(dropout=0.2, window=4, exploration=0.05, generator=seeded(), return_edges=True)
    function = sbm_attention(x, x, x, layer.block_model(x, x, mask, mask), **settings)
    assert torch.equal(ours.values, function.values) and torch.equal(ours.density, function.density)
    assert torch.equal(ours.edges.keys, function.edges.keys)


@pytest.mark.parametrize("is_empty", [True, False], ids=["alone", "united"])
@pytest.mark.parametrize("settings", [dict(self_loops=True), *(dict(window=w) for w in (0, 1, 8, 1000))], ids=str)
def test_windows_end_at_borders_and_at_padding_wherever_it_is(settings, is_empty):
    window = settings.get("window", 0)
    query_mask = torch.arange(N) % 4 != torch.tensor([[9], [0], [3], [2], [9]])  # a window of 9 covers everything
    key_mask = torch.arange(N) % 3 != torch.tensor([[9], [0], [9], [1], [9]])
    key_mask[4] = False
    layer = SBMAttention(4, 3, 5, **settings).eval()
    layer = without_edges(layer) if is_empty else layer
    x = tokens(5, n=N)
    out = layer(x, x, x, query_mask=query_mask, key_mask=key_mask, generator=seeded(), return_edges=True)
    mask, is_real = out.edges.to_dense(), query_mask[:, None, :, None] & key_mask[:, None, None, :]
    is_near = (torch.arange(N)[:, None] - torch.arange(N)).abs() <= window / 2
    assert not (mask & ~is_real).any() and (mask | ~(is_near & is_real)).all()
    assert (mask & ~is_near).any() != (is_empty or window >= 2 * (N - 1))
    assert not out.values[~query_mask[:, None].expand(5, 3, N)].any() and not out.values[4].any()


@pytest.mark.parametrize("membership", ["sigmoid", "crossed"])
def test_no_edge_starts_certain_or_impossible_and_crossed_memberships_differ(membership):
    """Tests the mean over seeds, since single layers vary."""
    x, starts = tokens(2, 4, 64, 32), []
    for seed in range(3):
        torch.manual_seed(seed)
        layer = SBMAttention(32, 4, 64, link="poisson", membership=membership)
        starts.append(layer.block_model(x, x).expected_mask().detach())
    means = torch.stack([p.mean() for p in starts])
    assert means.min() > 0.1 and means.max() < 0.6
    for p in starts:
        assert (p.std() > 0.1) == (membership == "crossed")
        if membership == "crossed":  # similar tokens meet
            assert p.diagonal(dim1=2, dim2=3).mean() > p.mean() + p.std()


@pytest.mark.parametrize("sampler", ["exact", "fastrg"])
@pytest.mark.parametrize("size", [12.0, 1e15])
@pytest.mark.parametrize("membership", ["sigmoid", "crossed"])
def test_huge_clusters_stay_finite_under_the_poisson_link(membership, size, sampler):
    """Without a limit, a cluster of |C_a|² > 88 would have an infinite rate within itself."""
    layer = SBMAttention(4, 3, 5, link="poisson", membership=membership, sampler=sampler)
    x = tokens(batch=1, n=3).requires_grad_()
    with torch.no_grad():
        layer.clusters.normal_().mul_(size)
    assert (layer.clusters.square().sum(-1) > 88).any()
    model = layer.block_model(x, x)
    total = (model.query_membership @ model.block_matrix @ model.key_membership.mT).sum()
    assert total < MOST_DRAWS  # so few pairs that Algorithm 1 can draw all of them
    p = model.expected_mask()
    assert ((p >= 0) & (p <= 1)).all()
    out = layer(x, x, x, generator=seeded())
    assert out.values.isfinite().all() and out.density.isfinite().all()
    (out.values.square().sum() + out.density.sum() + out.expected_density.sum()).backward()
    assert all(t.grad.isfinite().all() for t in (x, *layer.parameters()))


# --- the static control, whose masks depend on positions only: everything else is the same ---

MASK = torch.arange(8) < torch.tensor([[8], [3]])


def make_static(n_clusters=5, n_positions=10, **settings):
    torch.manual_seed(0)
    return StaticSBMAttention(4, 3, n_clusters, n_positions=n_positions, **settings)


def expected_mask(layer, query, key, *masks):
    return layer.block_model(query, key, *masks).expected_mask()


@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_the_block_model_is_that_of_the_tables(link):
    layer = make_static(link=link).double()
    query, key = tokens(2, 3, 8, dtype=torch.float64), tokens(2, 3, 6, seed=1, dtype=torch.float64)
    plain = SBMAttention(4, 3, 5, link=link).double()
    plain.load_state_dict({name: p for name, p in layer.state_dict().items() if "positions" not in name})
    tables = [t[None].expand(2, -1, -1, -1) for t in (layer.query_positions[:, :8], layer.key_positions[:, :6])]
    found = expected_mask(layer, query, key, MASK, MASK[:, :6])
    torch.testing.assert_close(found, expected_mask(plain, *tables, MASK, MASK[:, :6]), rtol=0, atol=1e-12)


def test_masks_do_not_depend_on_the_input():
    layer, x = make_static(), tokens()
    for other in (tokens(seed=1), x[[1, 0]], torch.full_like(x, torch.nan)):
        edges = [layer(y, y, y, generator=seeded(), return_edges=True).edges for y in (x, other)]
        assert torch.equal(edges[0].cells(), edges[1].cells())


@pytest.mark.parametrize("what", ["values", "density", "expected_density"])
def test_gradients_reach_the_tables_where_there_are_tokens(what):
    layer, x, generator = make_static(), tokens(n=7), seeded()
    real = torch.arange(7) < torch.tensor([[5], [4]])
    for _ in range(4):  # in one mask a token may have no edge
        out = layer(x, x, x, query_mask=real, key_mask=real, generator=generator)
        getattr(out, what).square().sum().backward()
    for table in (layer.query_positions, layer.key_positions):
        reached = (table.grad != 0).any(-1)
        assert reached[:, :5].any(0).all() and not reached[:, 5:].any()  # a ReLU of a head may be inactive
    assert all((p.grad != 0).any() for p in layer.parameters())


@pytest.mark.bad_input
def test_inputs_that_do_not_fit_are_refused():
    layer = make_static()
    short, long = tokens(n=10), tokens(n=11)
    layer(short, short, short)
    for query, key in ((long, short), (short, long)):
        with pytest.raises(SbmtError, match="at most 10 tokens, got 11"):
            layer(query, key, key)

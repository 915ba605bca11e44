"""The dense warm-up of fitted masks: full attention with its sink, and a fit to all of it."""

import pytest
import torch

import sbmt
from tests.gradients import assert_same_gradients
from tests.layers.inputs import seeded, tokens

N, HEADS, C, EXTRA = 9, 3, 3.0, 2.0


def dense_layer(**settings):
    torch.manual_seed(0)
    sizes = dict(d_head=4, n_heads=HEADS, n_clusters=16, edges_per_query=C, exploration=sbmt.ExtraKeys(EXTRA))
    layer = sbmt.build_attention("sbm", preset="fitted", **sizes | settings)
    with torch.no_grad():
        layer.sink.copy_(torch.tensor([0.5, -1.0, 2.0]))
        layer.log_rate.copy_(torch.tensor([-6.0, -5.0, -4.0]))
    layer.is_dense = True
    return layer.double()


def qkv():
    return [tokens(heads=HEADS, n=N, seed=seed, dtype=torch.float64).requires_grad_() for seed in range(3)]


def by_hand(layer, query, key, value, mask, window):
    """Values and fit from arrays over all pairs, with (batch, n) bool ``mask``."""
    pairs = (mask[:, :, None] & mask[:, None])[:, None]
    scores = (query @ key.mT / 2.0).masked_fill(~pairs, -torch.inf)
    weights = scores.exp() / (layer.sink.exp()[:, None, None] + scores.exp().sum(-1, keepdim=True))
    model = layer.block_model(query, key, mask, mask)
    rates = (model.query_membership @ model.block_matrix @ model.key_membership.mT).masked_fill(~pairs, 0.0)
    place = torch.arange(N)
    is_far = (place[:, None] - place).abs() > window / 2
    gains = weights.detach() * (rates + EXTRA / N).log() * (pairs & is_far)
    n_queries = HEADS * mask.sum()
    return weights @ value, (rates.sum() - C * gains.sum()) / n_queries, rates


@pytest.mark.parametrize("backend, window", [("dense", 0), ("pyg", 4), ("cpu", 4)])
def test_it_is_full_attention_with_a_sink_and_fits_all_pairs_but_certain_ones(window, backend):
    """Values, fit and every gradient."""
    layer, inputs = dense_layer(window=window, backend=backend), qkv()
    mask = torch.arange(N)[None] < torch.tensor([[N], [6]])
    out = layer(*inputs, query_mask=mask, key_mask=mask, generator=seeded(), return_edges=True)
    values, fit, rates = by_hand(layer, *inputs, mask, window)
    assert torch.equal(out.edges.to_dense(), (mask[:, :, None] & mask[:, None])[:, None].expand(-1, HEADS, -1, -1))
    assert (out.density == 1).all()
    torch.testing.assert_close(out.values, values)
    torch.testing.assert_close(out.auxiliary_loss, fit)
    n_pairs = torch.tensor([[N**2], [36]])
    torch.testing.assert_close(out.expected_density, (1 - (-rates).exp()).sum((-1, -2)) / n_pairs)
    found, expected = (torch.cat([v.flatten(), f[None]]) for v, f in ((out.values, out.auxiliary_loss), (values, fit)))
    assert_same_gradients(found, expected, [*inputs, *layer.parameters()], rtol=1e-7, atol=1e-7, least=1e-6)


def test_only_training_is_dense_and_seeds_give_the_same_masks():
    """The generator moves on as it would otherwise, so that the steps that follow draw the same masks."""
    layer, inputs = dense_layer(), qkv()
    generators = seeded(), seeded()
    layer(*inputs, generator=generators[0])
    layer.is_dense = False
    drawn = layer(*inputs, generator=generators[1])
    assert (drawn.density < 1).all()
    assert torch.equal(generators[0].get_state(), generators[1].get_state())
    found = []
    for is_dense in (True, False):
        layer.eval().is_dense = is_dense
        found.append(layer(*inputs, generator=seeded()))
    assert torch.equal(found[0].values, found[1].values) and (found[0].density < 1).all()

"""A random mask has the requested density, ignores the inputs, and is drawn anew in every call."""

from dataclasses import replace

import pytest
import torch

from sbmt.attention import edge_attention
from sbmt.baselines import RandomMaskAttention
from tests.layers.inputs import seeded, tokens
from tests.statistics import binomial_p_values, pair_p_values

N = 9
QUERY_MASK = torch.arange(N) != torch.tensor([[99], [4], [0], [99]])  # padding nowhere, inside, in front
KEY_MASK = torch.arange(N) < torch.tensor([[N], [6], [N], [0]])  # nowhere, at the end, nowhere, everywhere


def law(mask_density, window, query_mask, key_mask):
    """Returns the probability of every pair."""
    is_near = (torch.arange(N)[:, None] - torch.arange(N)).abs() <= (-1 if window is None else window / 2)
    return torch.where(is_near, torch.ones((), dtype=torch.float64), mask_density) * (query_mask[:, None] & key_mask)


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize(("window", "mask_density"), [(None, 0.25), (3, 0.7), (0, 0.05)])
def test_pairs_outside_the_window_have_the_given_probability(window, mask_density, judge):
    repeats, heads = 2000, 2  # streams differ per example and head, so repeated examples are independent draws
    layer, x = RandomMaskAttention(1, heads, mask_density=mask_density, window=window), tokens(4 * repeats, heads, N, 1)
    masks = dict(query_mask=QUERY_MASK.repeat(repeats, 1), key_mask=KEY_MASK.repeat(repeats, 1))
    out = layer(x, x, x, generator=seeded(), return_edges=True, **masks)
    drawn = out.edges.to_dense().view(repeats, 4, heads, N, N)
    p_values = []
    for b in range(4):
        probability = law(mask_density, window, QUERY_MASK[b], KEY_MASK[b])
        p_values.append(binomial_p_values(drawn[:, b].sum((0, 1)), repeats * heads, probability))
        is_open = (probability > 0) & (probability < 1)
        assert is_open.any() == (b < 3)  # nothing is real in the last example
        if is_open.any():
            cells = drawn[:, b, :, is_open].flatten(0, 1)
            p_values.append(pair_p_values(cells.numpy(), probability[is_open].numpy()))
    judge(*p_values)


@pytest.mark.parametrize("mask_density", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("window", [None, 0, 5, 99])
def test_the_expected_density_is_that_of_window_and_other_pairs(window, mask_density):
    layer, x = RandomMaskAttention(4, 3, mask_density=mask_density, window=window), tokens(4, 3, N)
    masks = dict(query_mask=QUERY_MASK, key_mask=KEY_MASK)
    out = layer(x, x, x, generator=seeded(), return_edges=True, **masks)
    mask = replace(out.edges, check=True).to_dense()  # nothing twice, nothing at padding
    torch.testing.assert_close(out.density, out.edges.density())
    torch.testing.assert_close(out.values, edge_attention(x, x, x, out.edges))
    for b in range(4):
        probability = law(mask_density, window, QUERY_MASK[b], KEY_MASK[b])
        expected = float(probability.sum()) / max(1, int(QUERY_MASK[b].sum() * KEY_MASK[b].sum()))
        torch.testing.assert_close(out.expected_density[b], torch.full((3,), expected))
        assert (mask[b] | (probability < 1)).all() and not (mask[b] & (probability == 0)).any()


@pytest.mark.parametrize("window", [None, 2])
def test_drawn_edges_may_be_reweighted_beside_a_sink(window):
    layer, x = RandomMaskAttention(4, 3, mask_density=0.3, window=window, reweight=True, sink=True), tokens(n=N)
    with torch.no_grad():
        layer.sink.copy_(torch.tensor([-1.0, 0.5, 2.0]))
    out = layer(x, x, x, generator=seeded(), return_edges=True)
    i, j = out.edges.rows() % N, out.edges.keys
    is_certain = (i - j).abs() <= 1 if window else torch.zeros_like(i, dtype=torch.bool)
    bias = torch.where(is_certain, 0.0, -torch.tensor(0.3).log())
    expected = edge_attention(x, x, x, out.edges, bias=bias, sink=layer.sink)
    torch.testing.assert_close(out.values, expected)
    assert not torch.allclose(out.values, edge_attention(x, x, x, out.edges))

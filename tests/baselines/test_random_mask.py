"""A random mask has the density asked for, knows nothing, and is fresh in every call."""

from dataclasses import replace

import pytest
import torch

from sbmt.attention import edge_attention
from sbmt.baselines import RandomMaskAttention
from sbmt.counter_rng import draw_seed, examples_from
from sbmt.graph.patterns import sliding_window
from tests.layers.inputs import seeded, tokens
from tests.statistics import binomial_p_values, pair_p_values

N = 9
QUERY_MASK = torch.arange(N) != torch.tensor([[99], [4], [0], [99]])  # padding nowhere, inside, in front
KEY_MASK = torch.arange(N) < torch.tensor([[N], [6], [N], [0]])  # nowhere, at the end, nowhere, everywhere


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("mask_density, is_training", [(0.02, True), (0.25, False), (0.9, True)])
def test_the_density_is_the_one_asked_for(is_training, mask_density, judge):
    layer, x = RandomMaskAttention(4, 3, mask_density=mask_density).train(is_training), tokens(4, 3, 64)
    out = layer(x, x, x, generator=seeded(), return_edges=True)
    judge(binomial_p_values(out.edges.n_edges, 4 * 3 * 64 * 64, mask_density))
    torch.testing.assert_close(out.density, out.edges.density())
    torch.testing.assert_close(out.expected_density, torch.full((4, 3), mask_density))


def law(mask_density, window, query_mask, key_mask):
    """Every pair's probability, and the window's share of the real pairs, by going over the pairs."""
    real = [(i, j) for i in range(N) for j in range(N) if query_mask[i] and key_mask[j]]
    near = {(i, j) for i, j in real if window is not None and abs(i - j) <= window / 2}
    probability = torch.zeros(N, N, dtype=torch.float64)
    for i, j in real:
        probability[i, j] = 1.0 if (i, j) in near else mask_density
    return probability, len(near) / max(1, len(real)), bool(real)


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize(("window", "mask_density"), [(3, 0.7), (0, 0.05)])
def test_pairs_outside_the_window_have_the_probability_asked_for(window, mask_density, judge):
    repeats, heads = 2000, 2  # streams differ per example and head, so repeated examples are independent draws
    layer, x = RandomMaskAttention(1, heads, mask_density=mask_density, window=window), tokens(4 * repeats, heads, N, 1)
    masks = dict(query_mask=QUERY_MASK.repeat(repeats, 1), key_mask=KEY_MASK.repeat(repeats, 1))
    out = layer(x, x, x, generator=seeded(), return_edges=True, **masks)
    drawn = out.edges.to_dense().view(repeats, 4, heads, N, N)
    p_values = []
    for b in range(4):
        probability, *_ = law(mask_density, window, QUERY_MASK[b], KEY_MASK[b])
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
        probability, share, has_pairs = law(mask_density, window, QUERY_MASK[b], KEY_MASK[b])
        expected = share + (1 - share) * mask_density if has_pairs else 0.0
        n_pairs = int(QUERY_MASK[b].sum() * KEY_MASK[b].sum())
        assert expected == pytest.approx(float(probability.sum()) / max(1, n_pairs))
        torch.testing.assert_close(out.expected_density[b], torch.full((3,), expected))
        assert (mask[b] | (probability < 1)).all() and not (mask[b] & (probability == 0)).any()


@pytest.mark.parametrize("mask_density", [0.0, 0.3])
def test_a_mask_takes_one_random_number_whatever_its_density(mask_density):
    layer, x, generator = RandomMaskAttention(4, 3, mask_density=mask_density, window=2), tokens(4, 3, N), seeded()
    out = layer(x, x, x, generator=generator, query_mask=QUERY_MASK, key_mask=KEY_MASK, return_edges=True)
    expected = seeded()
    draw_seed(expected)
    assert torch.equal(generator.get_state(), expected.get_state())
    window = sliding_window((4, 3, N, N), 2, QUERY_MASK, KEY_MASK)
    assert torch.equal(out.edges.to_dense() & window.to_dense(), window.to_dense())
    assert (out.edges.n_edges == window.n_edges) == (mask_density == 0)


def test_a_window_shares_a_batch_between_processes():
    layer, x = RandomMaskAttention(4, 3, mask_density=0.6, window=2), tokens(4, 3, N)
    masks = dict(query_mask=QUERY_MASK, key_mask=KEY_MASK)
    whole = layer(x, x, x, generator=seeded(), return_edges=True, **masks).edges.to_dense()
    with examples_from(1):
        rest = {name: mask[1:] for name, mask in masks.items()}
        part = layer(x[1:], x[1:], x[1:], generator=seeded(), return_edges=True, **rest).edges.to_dense()
    assert torch.equal(part, whole[1:])


@pytest.mark.statistical(share=0.001)
def test_long_sequences_cost_no_more_than_their_edges(judge):
    n = 1 << 17  # a dense mask would take 17 GB
    layer, x = RandomMaskAttention(1, 1, mask_density=6 / n, window=2), tokens(1, 1, n, 1)
    out = layer(x, x, x, generator=seeded(), return_edges=True)
    n_certain = 3 * n - 2
    judge(binomial_p_values(out.edges.n_edges - n_certain, n * n - n_certain, 6 / n))


@pytest.mark.parametrize(("window", "expected"), [(None, 0.3), (2, 46 / 256 + 210 / 256 * 0.3)])
def test_16_bits_do_not_round_the_probability(window, expected):
    x = tokens(n=16).bfloat16()
    out = RandomMaskAttention(4, 3, mask_density=0.3, window=window)(x, x, x)
    torch.testing.assert_close(out.expected_density, torch.full((2, 3), expected))
    assert out.values.dtype == torch.bfloat16


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

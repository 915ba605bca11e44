"""Compares the block model with explicit loops: probabilities, their gradients, densities, shapes and dtypes."""

import math

import pytest
import torch

from sbmt import BlockModel, EdgeList, ExtraKeys, SbmtError, straight_through_gate
from tests.gradients import assert_same_gradients
from tests.samplers.laws import random_model

LAWS = [  # link, sum of the block matrix, exploration; a bilinear sum of 5 gives rates around 1
    ("bilinear", 1.0, 0.0),
    ("bilinear", 1.0, 0.01),
    ("bilinear", 5.0, 0.3),
    ("bilinear", 5.0, 0.0),
    ("poisson", 8.0, 0.0),
    ("poisson", 40.0, 0.3),
]
PADDED = [torch.arange(n) < torch.tensor([[n], [n - 1]]) for n in (5, 7)]


def plain_expected_mask(model, exploration):
    """Computes equation 8 pair by pair, with Python floats."""
    batch, heads, n, m = model.shape
    out = torch.zeros(model.shape, dtype=torch.float64)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, (batch, heads, n, m))).tolist():
        masks = (model.query_mask, i), (model.key_mask, j)
        if all(mask is None or mask[b, token] for mask, token in masks):
            q, s, k = model.query_membership[b, h, i], model.block_matrix[h], model.key_membership[b, h, j]
            rate = sum(float(q[u] * s[u, v] * k[v]) for u in range(len(q)) for v in range(len(k))) + exploration
            out[b, h, i, j] = min(rate, 1.0) if model.link == "bilinear" else 1 - math.exp(-rate)
    return out


def with_leaves(model):
    """Builds the same model from tensors that require gradients."""
    leaves = [t.clone().requires_grad_() for t in (model.query_membership, model.block_matrix, model.key_membership)]
    return BlockModel(*leaves, model.query_mask, model.key_mask, link=model.link), leaves


def some_edges(model, p):
    mask = torch.rand(model.shape, generator=torch.Generator().manual_seed(1)) < p
    return EdgeList.from_dense(mask & (model.expected_mask(0.5) > 0), model.query_mask, model.key_mask)


@pytest.mark.parametrize(("link", "scale", "exploration"), LAWS)
def test_expected_mask_equals_the_explicit_loop(link, scale, exploration):
    model = random_model(link=link, scale=scale, masks=PADDED)
    expected = plain_expected_mask(model, exploration)
    assert torch.allclose(model.expected_mask(exploration), expected, rtol=1e-12)
    assert (expected == 1).any() == (scale == 5.0)  # values are clamped exactly where they should be


@pytest.mark.parametrize("p", [0.1, 1.0])  # few edges are gathered; many are read from the dense matrix
@pytest.mark.parametrize(("link", "scale", "exploration"), LAWS)
def test_edge_probability_is_the_expected_mask_at_the_edges(link, scale, exploration, p):
    model, leaves = with_leaves(random_model(link=link, scale=scale, masks=PADDED))
    edges = some_edges(model, p)
    expected = model.expected_mask(exploration)[edges.to_dense()]
    found = model.edge_probability(edges, exploration)
    assert torch.allclose(found, expected, rtol=1e-12)
    assert_same_gradients(found, expected, leaves)


@pytest.mark.parametrize("numbers_at_once", [70, 1 << 24])
@pytest.mark.parametrize(("link", "scale", "exploration"), LAWS)
def test_expected_density_is_the_mean_of_the_expected_mask(link, scale, exploration, numbers_at_once, monkeypatch):
    monkeypatch.setattr("sbmt.block_model.model._NUMBERS_AT_ONCE", numbers_at_once)
    model, leaves = with_leaves(random_model(link=link, scale=scale, masks=PADDED))
    n_pairs = model.n_pairs[:, None]
    if link == "bilinear":
        expected = model.expected_mask().sum((2, 3)) / n_pairs + exploration
        expected = expected - (expected - 1).clamp(min=0).detach()  # clamped to 1, but with the gradient
    else:
        expected = model.expected_mask(exploration).sum((2, 3)) / n_pairs
    found = model.expected_density(exploration)
    assert torch.allclose(found, expected, rtol=1e-12)
    assert_same_gradients(found, expected, leaves)


def test_rounding_never_raises_a_density_above_1():
    """The 81 entries of this block matrix sum to a little more than 1 in float32."""
    query = torch.ones(1, 1, 3, 9, requires_grad=True)
    block = torch.softmax(torch.zeros(1, 81), -1).view(1, 9, 9)
    density = BlockModel(query, block, torch.ones(1, 1, 3, 9)).expected_density()
    density.sum().backward()
    assert density.item() == 1 and (query.grad > 0).all()


@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_density_is_zero_without_real_pairs(link):
    ones, real = torch.ones(2, 1, 3, 2), torch.tensor([[True] * 3, [False] * 3])
    model = BlockModel(ones, torch.full((1, 2, 2), 0.1), ones, real, link=link)
    assert model.n_pairs.tolist() == [9, 0]
    for exploration in (0.0, 0.3):
        density = model.expected_density(exploration)[:, 0].tolist()
        assert density[0] > 0 and density[1] == 0
        assert not model.expected_mask(exploration)[1].any()


@pytest.mark.parametrize(
    ("query", "block", "key", "mask"), [((1, 1), 1, (1, 1), 1), ((2, 1), 3, (1, 1), 1), ((1, 3), 1, (1, 1), 2)]
)
def test_leading_ones_broadcast(query, block, key, mask):
    tensors = torch.rand(*query, 4, 2), torch.rand(block, 2, 2), torch.rand(*key, 5, 2)
    key_mask = torch.rand(mask, 5) < 0.7
    model = BlockModel(*tensors, key_mask=key_mask)
    batch, heads = max(query[0], key[0], mask), max(query[1], block, key[1])
    whole = BlockModel(
        tensors[0].expand(batch, heads, 4, 2).clone(),
        tensors[1].expand(heads, 2, 2).clone(),
        tensors[2].expand(batch, heads, 5, 2).clone(),
        key_mask=key_mask.expand(batch, 5).clone(),
    )
    assert model.shape == whole.shape == (batch, heads, 4, 5)
    assert torch.equal(model.expected_mask(), whole.expected_mask())
    assert torch.allclose(model.expected_density(), whole.expected_density()) and model.n_pairs.shape == (batch,)


@pytest.mark.parametrize("value", [float("nan"), -5.0])
def test_the_content_of_padding_is_ignored(value):
    model = random_model(masks=PADDED)
    query = model.query_membership.masked_fill(~model.query_mask[:, None, :, None], value)
    key = model.key_membership.masked_fill(~model.key_mask[:, None, :, None], value)
    spoilt = BlockModel(query, model.block_matrix, key, model.query_mask, model.key_mask)
    assert (query == value).any() or query.isnan().any()
    assert torch.equal(spoilt.expected_mask(0.01), model.expected_mask(0.01))
    assert torch.equal(spoilt.expected_density(0.01), model.expected_density(0.01))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_gate_is_one_bit_for_bit_and_passes_gradients_on_unchanged(dtype):
    odd = torch.tensor([0.0, 1e-30, 0.1, 1 / 3, 1.0, 1.7, 1e4])
    probability = torch.cat([odd, torch.rand(1000)]).to(dtype).requires_grad_()
    gate, incoming = straight_through_gate(probability), torch.randn(1007).to(dtype)
    assert gate.dtype == dtype and torch.equal(gate, torch.ones_like(probability))
    gate.backward(incoming)
    assert torch.equal(probability.grad, incoming) and straight_through_gate(probability[:0]).shape == (0,)


@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_the_gate_of_edges_has_the_slope_of_their_unclamped_probability(link):
    model, leaves = with_leaves(random_model(link=link, scale=5.0, masks=PADDED))
    edges = some_edges(model, 0.5)
    gate, rate = model.gate(edges), model.edge_rate(edges)
    assert (gate == 1).all() and (rate > 1).any()
    expected = rate if link == "bilinear" else 1 - (-rate).exp()
    assert_same_gradients(gate, expected, leaves)


def test_the_sum_of_rates_is_that_of_all_pairs():
    model, leaves = with_leaves(random_model(link="poisson", scale=40.0, masks=PADDED))
    query, key = model.rate_factors()
    expected = (query @ key.mT).sum((2, 3))
    assert torch.allclose(model.sum_of_rates(), expected, rtol=1e-12)
    assert_same_gradients(model.sum_of_rates(), expected, leaves)


def test_extra_keys_cost_edges_in_proportion_to_n_and_are_at_most_half_of_all_pairs():
    assert [ExtraKeys(8).probability(n) for n in (10, 64, 1024)] == [1 / 2, 1 / 8, 1 / 128]


def parts(**changed):
    """Returns the arguments of a small valid block model, some of them replaced."""
    half = {"query_membership": (2, 3, 4, 2), "block_matrix": (3, 2, 2), "key_membership": (2, 3, 5, 2)}
    valid = {name: torch.full(shape, 0.5) for name, shape in half.items()}
    return valid | changed


def spoilt(shape, value):
    out = torch.full(shape, 0.5)
    out.view(-1)[-1] = value
    return out


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"link": "probit"}, "link to be one of 'bilinear', 'poisson', got 'probit'"),
        ({"query_membership": torch.ones(2, 3, 4, 2, dtype=torch.int64)}, "query_membership to be a floating-point"),
        ({"block_matrix": torch.rand(2, 2)}, "4 dimensions and a block matrix with 3"),
        ({"block_matrix": torch.rand(3, 2, 3)}, "the same number of clusters k"),
        ({"key_membership": torch.rand(3, 3, 5, 2)}, "batch sizes"),
        ({"key_membership": torch.rand(2, 3, 0, 2)}, "at least one example, head, query, key and cluster"),
        ({"query_membership": spoilt((2, 3, 4, 2), float("nan"))}, r"query_membership in \[0, 1\] without NaN"),
        ({"key_membership": spoilt((2, 3, 5, 2), -0.001)}, r"key_membership in \[0, 1\]"),
        ({"block_matrix": spoilt((3, 2, 2), -0.1), "link": "poisson"}, r"block_matrix in \[0, 1e\+30\] without NaN"),
        ({"query_mask": torch.ones(2, 4)}, r"query_mask to be a bool tensor \(True = real token\), got torch.float32"),
        ({"key_mask": torch.ones(2, 4, dtype=torch.bool)}, r"key_mask of shape \(2, 5\), got \(2, 4\)"),
        ({"key_mask": torch.ones(5, dtype=torch.bool)}, r"batch sizes and head counts, got .* \(5,\)"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changed, message):
    with pytest.raises(SbmtError, match=message):
        BlockModel(**parts(**changed))


@pytest.mark.bad_input
def test_edges_of_another_shape_have_no_probability():
    edges = EdgeList.from_dense(torch.ones(2, 3, 4, 4, dtype=torch.bool))
    with pytest.raises(SbmtError, match=r"edges of shape \(2, 3, 4, 5\), got EdgeList\(shape=\(2, 3, 4, 4\)"):
        BlockModel(**parts()).edge_probability(edges)

"""Tests the density of drawn edges, its penalty and the likelihood fit against dense implementations."""

import pytest
import torch

import sbmt
from sbmt import (
    AttentionOutput,
    BlockModel,
    EdgeList,
    SbmtError,
    density_penalty,
    sample_edges,
    sampled_density,
    straight_through_gate,
)
from sbmt.block_model.fit import fit_loss
from tests.gradients import assert_same_gradients
from tests.samplers.laws import random_model

N, DELTA = 12, 0.05


def edges_of_three_examples():
    """Returns masks with different numbers of real pairs; the last example has none."""
    query_mask = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    mask = torch.rand(3, 2, 4, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    return EdgeList.from_dense(mask & query_mask[:, None, :, None], query_mask)


def test_the_sampled_density_passes_on_one_over_the_number_of_pairs():
    edges, n_pairs = edges_of_three_examples(), torch.tensor([20.0, 10.0, 1.0])[:, None]
    probability = torch.rand(edges.n_edges, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(3, 2, dtype=torch.float64)
    density = sampled_density(edges, straight_through_gate(probability))
    (density * weight).sum().backward()
    torch.testing.assert_close(probability.grad, (weight / n_pairs).flatten()[edges.rows() // 4])
    for found in (density.float(), sampled_density(edges)):
        torch.testing.assert_close(found, edges.to_dense().sum((2, 3)) / n_pairs)


def output(density, expected, **more):
    shape = (*torch.tensor(density).shape, 1, 1)
    return AttentionOutput(torch.zeros(shape), torch.tensor(density), torch.tensor(expected), **more)


@pytest.mark.parametrize(("kind", "expected"), [("sampled", (0.25 + 0.5) / 2), ("expected", (0.5 + 0.125) / 2)])
def test_the_penalty_is_a_mean_of_means_over_examples_heads_layers(kind, expected):
    one = output([[0.0, 0.5]], [[0.25, 0.75]])  # one example, two heads
    other = output([[0.25], [0.5], [0.75]], [[0.125], [0.125], [0.125]])  # three examples, one head
    assert float(density_penalty([one, other], kind)) == pytest.approx(expected)


def likelihood(rate, is_drawn, attention, real, c, exploration, window):
    """Computes the loss pair by pair from dense arrays."""
    place = torch.arange(rate.shape[-1])
    is_certain = (place[:, None] - place).abs() <= (-1 if window is None else window / 2)
    attention = attention * (is_drawn & ~is_certain)
    gained = attention * torch.where(attention > 0, rate + exploration, 1.0).log()
    return (rate.sum() - c * gained.sum()) / (rate.shape[1] * real.sum())


@pytest.mark.parametrize("window", [None, 0, 4])
@pytest.mark.parametrize("exploration", [0.0, DELTA])
@pytest.mark.parametrize("is_padded", [False, True])
def test_the_loss_and_its_gradient_are_those_pair_by_pair(exploration, window, is_padded):
    leaves = random_model(2, 3, N, N, link="poisson", scale=2.4)
    leaves = [t.requires_grad_() for t in (leaves.query_membership, leaves.block_matrix, leaves.key_membership)]
    real = torch.arange(N) < torch.tensor([[N], [7 if is_padded else N]])
    model = BlockModel(*leaves, *(real, real) if is_padded else (None, None), link="poisson")
    mask = torch.rand(2, 3, N, N, generator=torch.Generator().manual_seed(1)) < 0.5
    is_drawn = mask & real[:, None, :, None] & real[:, None, None]
    edges = EdgeList.from_dense(is_drawn, model.query_mask, model.key_mask)
    attention = torch.rand(2, 3, N, N, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    attention[..., ::5] = 0.0
    weights = attention[is_drawn].requires_grad_()
    is_near = None if window is None else edges.is_near(window)
    found = fit_loss(model, edges, model.edge_rate(edges), weights, 16.0, exploration, is_near)
    query, key = model.rate_factors()
    expected = likelihood(query @ key.mT, is_drawn, attention, real, 16.0, exploration, window)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    assert_same_gradients(found, expected, leaves, least=0.01)
    found.backward()
    assert weights.grad is None


@pytest.mark.parametrize("exploration", [0.0, DELTA])
def test_the_best_common_rate_is_c_times_the_attention_of_a_pair(exploration):
    edges = EdgeList.from_dense(torch.ones(2, 1, N, N, dtype=torch.bool))
    weights = torch.rand(edges.n_edges, dtype=torch.float64)
    best = 4.0 * weights.mean() - exploration

    def slope(rate):
        rate = rate.clone().requires_grad_()
        ones = torch.ones(2, 1, N, 1, dtype=torch.float64)
        model = BlockModel(ones, rate.view(1, 1, 1), ones, link="poisson")
        loss = fit_loss(model, edges, model.edge_rate(edges), weights, 4.0, exploration)
        return float(torch.autograd.grad(loss, rate)[0])

    assert slope(0.99 * best) < -1e-3 < abs(slope(best)) < 1e-9 < 1e-3 < slope(1.01 * best)


def test_a_rate_of_zero_gets_no_infinite_gradient():
    """Attention to pairs that the block model excludes can occur in a warm-up."""
    one = torch.ones(1, 1, 1, 1)
    model = BlockModel(one, one[0], one, link="poisson")
    edges = EdgeList.from_dense(torch.ones(1, 1, 1, 1, dtype=torch.bool))
    rate = torch.zeros(1, requires_grad=True)
    loss = fit_loss(model, edges, rate, torch.ones(1), 16.0, 0.0)
    assert loss.isfinite() and torch.autograd.grad(loss, rate)[0].isfinite().all()


def test_the_loss_is_zero_without_real_queries():
    ones, nobody = torch.ones(1, 1, 3, 1, requires_grad=True), torch.zeros(1, 3, dtype=torch.bool)
    model = BlockModel(ones, torch.ones(1, 1, 1), ones, nobody, nobody, "poisson")
    edges = sample_edges(model)
    loss = fit_loss(model, edges, model.edge_rate(edges), torch.zeros(0), 4.0, 0.0)
    loss.backward()
    assert float(loss.detach()) == 0 and not ones.grad.any()


def test_losses_of_layers_add_up():
    outputs = [output([[0.0]], [[0.0]], auxiliary_loss=torch.tensor(x)) for x in (1.0, 2.5)]
    assert float(sbmt.auxiliary_loss(outputs)) == 3.5 and float(sbmt.auxiliary_loss(outputs[0])) == 1.0
    assert float(sbmt.auxiliary_loss([output([[0.0]], [[0.0]])])) == 0.0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: density_penalty([output([[0.0]], [[0.0]])], "exact"),
            "kind to be one of 'sampled', 'expected', got 'exact'",
        ),
        (lambda: density_penalty([]), "a non-empty list of attention outputs"),
        (lambda: sampled_density(torch.ones(2, 2)), "edges to be an EdgeList, got Tensor"),
        (lambda: sampled_density(edges_of_three_examples(), torch.ones(2)), "a floating-point gate of shape"),
        (lambda: sbmt.auxiliary_loss([]), "output of a model"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(SbmtError, match=message):
        call()

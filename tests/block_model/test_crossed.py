"""Compares block models of crossed partitions with dense models of the same memberships."""

import pytest
import torch

from sbmt import SbmtError, sample_edges
from sbmt.block_model import crossed
from sbmt.block_model.crossed import CrossedModel, choose_parts, part_memberships
from sbmt.block_model.fit import fit_loss
from tests.block_model.crossed_models import (
    BATCH,
    GROUPS,
    HEADS,
    M,
    N,
    crossed_model,
    dense_model,
    edges_of,
    leaves_of,
    padding,
    twin,
)
from tests.gradients import assert_same_gradients


@pytest.fixture(params=["compiled", "torch"])
def route(request, monkeypatch):
    """Uses compiled loops, or torch as on other devices."""
    if request.param == "torch":
        monkeypatch.setattr(crossed, "can_run_on", lambda device: False)


@pytest.mark.parametrize("size", [1, 2, 3, 17])
@pytest.mark.parametrize("n_partitions", [2, 6])
def test_memberships_and_their_gradients_are_those_of_the_twin(n_partitions, size):
    generator = torch.Generator().manual_seed(size)
    logits = 2 * torch.randn(BATCH, HEADS, n_partitions, size, N, generator=generator, dtype=torch.float64)
    part, weight = part_memberships(logits.requires_grad_())
    assert part.dtype == torch.int16 and part.shape == weight.shape == (BATCH, HEADS, N, 2 * n_partitions)
    assert torch.equal(part.long() // size, torch.arange(n_partitions).repeat_interleave(2).expand_as(part))
    assert (part.unflatten(-1, (-1, 2)).diff(dim=-1) > 0).all() or size == 1
    expected = twin(logits)
    in_parts = torch.zeros_like(expected).scatter_add(-1, part.long(), weight)
    torch.testing.assert_close(in_parts, expected, rtol=1e-12, atol=1e-12)
    assert_same_gradients(in_parts, expected, [logits], atol=1e-11, least=1e-3 if size > 1 else 0.0)


@pytest.mark.parametrize(("n", "size", "width"), [(N, 4, 3), (150, 1, 2), (67, 17, 32)])
def test_parts_and_their_gradients_are_those_of_the_logits(n, size, width, route):
    generator = torch.Generator().manual_seed(n)
    shapes = (HEADS, 6 * size, width), (BATCH, HEADS, n, width)
    leaves = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    part, weight = choose_parts(*leaves, 6)
    logits = leaves[0] @ leaves[1].mT
    expected = part_memberships(logits.unflatten(2, (6, size)))
    assert torch.equal(part, expected[0])
    torch.testing.assert_close(weight, expected[1], rtol=1e-12, atol=1e-12)
    assert_same_gradients(weight, expected[1], leaves, atol=1e-11, least=1e-3 if size > 1 else 0.0)


def test_ties_and_extreme_logits_leave_two_memberships_that_sum_to_one(route):
    logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1e4, -1e4, 0.0, 1e4], [-1e30, -1e30, -1e30, 1e30]])
    part, weight = choose_parts(torch.eye(4)[None], logits[None, None], 1)
    assert (part.diff(dim=-1) > 0).all()
    torch.testing.assert_close(weight[0, 0], torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]]))
    assert part[0, 0, 1].tolist() == [0, 3] and part[0, 0, 2, 1] == 3


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("density", [0.3, 0.0])
@pytest.mark.parametrize("quantity", ["edge_rate", "sum_of_rates", "expected_mask", "edge_probability", "part_rates"])
def test_rates_and_their_gradients_are_those_of_the_dense_model(quantity, density, is_padded, route):
    leaves = leaves_of()
    models = crossed_model(leaves, is_padded), dense_model(leaves, is_padded)
    if quantity == "part_rates":  # products of the two partitions' are rates to clusters
        first, second = models[0].part_rates.unflatten(-1, (GROUPS, 2, -1)).unbind(-2)
        crossed_rates = torch.einsum("...ga,...gb->...gab", first, second).flatten(-3)
        torch.testing.assert_close(crossed_rates, models[1].query_rates, rtol=1e-11, atol=1e-12)
        return
    edges = edges_of(models[0], density)
    arguments = {"edge_rate": (edges,), "edge_probability": (edges, 0.05)}.get(quantity, ())
    found, expected = (getattr(model, quantity)(*arguments) for model in models)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    assert_same_gradients(found, expected, leaves, atol=1e-11, least=1e-3 if found.numel() else 0.0)
    assert models[0].shape == models[1].shape and models[0].n_clusters == models[1].n_clusters
    assert torch.equal(models[0].n_pairs, models[1].n_pairs)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("exploration", [0.0, 0.05])
def test_a_fit_is_that_of_the_dense_model(exploration, is_padded, route):
    leaves = leaves_of()
    models = crossed_model(leaves, is_padded), dense_model(leaves, is_padded)
    edges = edges_of(models[0])
    weights = torch.rand(edges.n_edges, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    losses = [fit_loss(model, edges, model.edge_rate(edges), weights, 4.0, exploration) for model in models]
    torch.testing.assert_close(*losses, rtol=1e-11, atol=1e-11)
    assert_same_gradients(*losses, leaves, atol=1e-11, least=1e-3)


def test_values_and_gradients_do_not_depend_on_the_number_of_threads(set_threads):
    leaves, found = leaves_of(n_keys=1500), []
    edges = edges_of(crossed_model(leaves))
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        rate = crossed_model(leaves).edge_rate(edges)
        found.append((rate, *torch.autograd.grad(rate.square().sum(), leaves)))
    assert all(torch.equal(x, y) for other in found[1:] for x, y in zip(found[0], other, strict=True))


def test_results_without_gradients_do_not_detach_later_ones():
    leaves = leaves_of()
    model = crossed_model(leaves)
    with torch.no_grad():
        expected = model.expected_mask(), model.edge_rate(edges_of(model))
    assert not any(x.requires_grad for x in torch.autograd.grad(model.expected_mask().sum(), leaves))
    torch.testing.assert_close(crossed_model([x.detach() for x in leaves]).expected_mask(), expected[0])


def with_blocks(value):
    """Returns a model whose blocks all have the given value."""
    query, key, blocks = leaves_of()
    return crossed_model([query, key, torch.full_like(blocks, value)])


def test_huge_rates_draw_every_key_and_rates_of_zero_none():
    assert sample_edges(with_blocks(1e15)).n_edges == BATCH * HEADS * N * M
    edges = sample_edges(with_blocks(0.0))
    assert edges.n_edges == 0 and with_blocks(0.0).edge_rate(edges).shape == (0,)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda query, key, blocks: query.fill_(torch.nan), r"query_membership in \[0, 1\] without NaN"),
        (lambda query, key, blocks: key[0, 0, 0].fill_(torch.nan), r"key_membership in \[0, 1\] without NaN"),
        (lambda query, key, blocks: blocks.neg_(), r"block_matrix in \[0, 1e\+15\] without NaN"),
        (lambda query, key, blocks: blocks.fill_(1e16), r"block_matrix in \[0, 1e\+15\]"),
    ],
)
def test_impossible_memberships_and_blocks_are_refused(spoil, message):
    leaves = [leaf.detach() for leaf in leaves_of()]
    spoil(*leaves)
    with pytest.raises(SbmtError, match=message):
        crossed_model(leaves)


def test_padded_tokens_are_ignored():
    query, key, blocks = (leaf.detach() for leaf in leaves_of())
    expected = crossed_model([query, key, blocks], is_padded=True).expected_mask(0.1)
    sides = part_memberships(query), part_memberships(key)
    for (_, weight), mask in zip(sides, padding(), strict=True):
        weight.masked_fill_(~mask[:, None, :, None], torch.nan)
    spoilt = CrossedModel(sides[0], blocks, sides[1], *padding())
    assert torch.equal(spoilt.expected_mask(0.1), expected) and spoilt.sum_of_rates().isfinite().all()

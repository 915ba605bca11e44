"""The density of sampled masks, its straight-through gradient, and the penalty's order of means."""

import pytest
import torch

from sbmt import AttentionOutput, EdgeList, SbmtError, density_penalty, sampled_density, straight_through_gate


def edges_of_three_examples():
    """Differing numbers of real pairs; the last example has none."""
    query_mask = torch.tensor([[True] * 4, [True, True, False, False], [False] * 4])
    mask = torch.rand(3, 2, 4, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    return EdgeList.from_dense(mask & query_mask[:, None, :, None], query_mask)


def test_the_value_is_the_share_of_real_pairs():
    edges = edges_of_three_examples()
    gate = straight_through_gate(torch.rand(edges.n_edges, dtype=torch.float64))
    expected = edges.to_dense().sum((2, 3)) / torch.tensor([20, 10, 1])[:, None]
    assert torch.allclose(sampled_density(edges, gate).float(), expected)
    assert torch.allclose(sampled_density(edges), expected)


def test_each_edge_receives_one_over_the_number_of_pairs():
    edges = edges_of_three_examples()
    probability = torch.rand(edges.n_edges, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(3, 2, dtype=torch.float64)
    (sampled_density(edges, straight_through_gate(probability)) * weight).sum().backward()
    share = (weight / torch.tensor([20.0, 10.0, 1.0])[:, None]).flatten()
    assert torch.allclose(probability.grad, share[edges.rows() // 4])


def output(density, expected):
    shape = (*torch.tensor(density).shape, 1, 1)
    return AttentionOutput(torch.zeros(shape), torch.tensor(density), torch.tensor(expected))


@pytest.mark.parametrize(("kind", "expected"), [("sampled", (0.25 + 0.5) / 2), ("expected", (0.5 + 0.125) / 2)])
def test_the_penalty_is_a_mean_of_means_over_examples_heads_layers(kind, expected):
    one = output([[0.0, 0.5]], [[0.25, 0.75]])  # one example, two heads
    other = output([[0.25], [0.5], [0.75]], [[0.125], [0.125], [0.125]])  # three examples, one head
    assert float(density_penalty([one, other], kind)) == pytest.approx(expected)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("outputs", "kind", "message"),
    [
        ([output([[0.0]], [[0.0]])], "exact", "kind among 'sampled', 'expected', got 'exact'"),
        ([], "sampled", "at least one attention output"),
    ],
)
def test_penalties_of_nothing_or_of_unknown_kind_are_refused(outputs, kind, message):
    with pytest.raises(SbmtError, match=message):
        density_penalty(outputs, kind)

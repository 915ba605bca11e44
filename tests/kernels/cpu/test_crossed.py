"""The parts of largest score, against torch's."""

import pytest
import torch

from sbmt.kernels.crossed import part_memberships


def largest_parts(scores, n_partitions, n_active):
    """Tokens are their nodes, and centres unit vectors here, so that a token holds its own scores."""
    unit = torch.eye(scores.shape[1], dtype=scores.dtype)
    given = scores[None, None], unit, torch.zeros_like(unit[0]), unit[None], n_partitions, n_active
    return part_memberships(*given)[1][0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("size", "n_active"), [(1, 1), (5, 2), (16, 1), (17, 4), (40, 4), (64, 20), (128, 4)])
def test_the_largest_are_found_in_ascending_order(size, n_active, dtype):
    torch.manual_seed(0)
    scores = torch.randn(200, 3 * size, dtype=dtype)
    scores[::3] = scores[::3].round()  # ties
    chosen = largest_parts(scores, 3, n_active).view(200, 3, n_active) - size * torch.arange(3)[:, None]
    assert (chosen.diff(dim=-1) > 0).all() and chosen.min() >= 0 and chosen.max() < size
    grouped = scores.view(200, 3, size)
    expected = grouped.topk(n_active, -1).values.sort(-1).values
    assert torch.equal(grouped.gather(-1, chosen).sort(-1).values, expected)


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), float("inf")])
def test_parts_exist_whatever_the_scores(bad):
    scores = torch.full((2, 40), bad)
    assert torch.equal(largest_parts(scores, 2, 2), torch.tensor([[0, 1, 20, 21]] * 2))
    scores[:, 7] = 1.0
    chosen = largest_parts(scores, 2, 2)
    assert (chosen[:, :2] < 20).all() and (chosen[:, 2:] >= 20).all() and (chosen < 40).all()

"""The parts of largest score, against torch's, and rates by vector code."""

import pytest
import torch

from sbmt.kernels.crossed import crossed_rates, part_memberships


def largest_parts(scores, n_partitions, n_active):
    """The matrix is that of the identity here, so that a token holds its own scores."""
    unit = torch.eye(scores.shape[1] + 1, scores.shape[1], dtype=scores.dtype)[None]
    given = scores[None, None], scores[None, None, :7], unit
    _, part, _, of_some = part_memberships(*given, n_partitions, n_active)
    assert torch.equal(part[:, :, :7], of_some)
    return part[0, 0]


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


@pytest.mark.parametrize(("n_queries", "n_keys"), [(90, 33), (33, 90)])
@pytest.mark.parametrize(("of_queries", "of_keys"), [(3, 3), (3, 1), (1, 3)])
def test_queries_and_keys_of_any_number_have_the_parts_that_each_has_alone(of_queries, of_keys, n_queries, n_keys):
    torch.manual_seed(0)
    query, key = torch.randn(of_queries, 2, n_queries, 5), torch.randn(of_keys, 2, n_keys, 5)
    rest = torch.randn(2, 6, 32), 2, 2
    found = part_memberships(query, key, *rest)
    for alone, mine in ((query, found[:2]), (key, found[2:])):
        for example in range(alone.shape[0]):
            one = alone[example : example + 1]
            weight, part, *_ = part_memberships(one, one[:, :, :1], *rest)
            assert torch.equal(mine[0][example], weight[0]) and torch.equal(mine[1][example], part[0])


@pytest.mark.parametrize("bad", [float("nan"), float("-inf"), float("inf")])
def test_parts_exist_whatever_the_scores(bad):
    scores = torch.full((2, 40), bad)
    assert torch.equal(largest_parts(scores, 2, 2), torch.tensor([[0, 1, 20, 21]] * 2))
    scores[:, 7] = 1.0
    chosen = largest_parts(scores, 2, 2)
    assert (chosen[:, :2] < 20).all() and (chosen[:, 2:] >= 20).all() and (chosen < 40).all()


def rated(n_groups, n_active, size):
    """Parts and weights of queries and keys, 40 of each in two heads; blocks; and a mask of seven edges a query."""
    generator, n, n_partitions = torch.Generator().manual_seed(0), 40, 2 * n_groups
    scores = torch.randn(2, 2, n, n_partitions, size, generator=generator)
    part = scores.topk(n_active, -1).indices.sort(-1).values + size * torch.arange(n_partitions)[:, None]
    part = part.int().flatten(-2).view(2, 2 * n, -1)
    weight = torch.rand(part.shape, generator=generator)
    blocks = torch.rand(2, n_partitions, size, size, generator=generator)
    keys = torch.randint(n, (14 * n,), generator=generator)
    return part, weight, blocks, (torch.arange(2 * n + 1) * 7, keys, n, n)


@pytest.mark.parametrize(
    ("n_groups", "n_active", "size"),
    [(4, 2, 16), (8, 1, 16), (2, 4, 16), (1, 8, 16), (4, 2, 15), (3, 2, 16), (4, 3, 16)],
)
def test_rates_are_the_same_however_they_are_looked_up(n_groups, n_active, size):
    """In single precision sixteen at once, where parts fill a vector and the processor can; in double one by one."""
    part, weight, blocks, mask = rated(n_groups, n_active, size)
    single, double = (
        crossed_rates(part[0], weight[0].to(dtype), blocks.to(dtype), part[1], weight[1].to(dtype), *mask)
        for dtype in (torch.float32, torch.float64)
    )
    torch.testing.assert_close(single.double(), double, rtol=2e-6, atol=0)
    assert double.min() > 0


@pytest.mark.parametrize(("n_groups", "n_active", "size"), [(4, 2, 16), (8, 1, 16), (2, 4, 16), (4, 2, 15)])
def test_gradients_are_the_same_however_rates_are_looked_up(n_groups, n_active, size):
    part, weight, blocks, mask = rated(n_groups, n_active, size)
    found = []
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype).requires_grad_() for x in (weight[0], blocks, weight[1])]
        rate = crossed_rates(part[0], leaves[0], leaves[1], part[1], leaves[2], *mask)
        factors = torch.linspace(-1, 2, rate.numel(), dtype=dtype)
        found.append(torch.autograd.grad((rate * factors).sum(), leaves))
    for single, double in zip(*found, strict=True):
        scale = float(double.abs().max())
        torch.testing.assert_close(single.double(), double, rtol=0, atol=2e-6 * scale)
        assert scale > 1

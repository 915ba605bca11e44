"""Products along edges on both routes: all pairs at once, and gathered rows in chunks."""

import pytest
import torch

import sbmt.pair_products
from sbmt import EdgeList
from sbmt.pair_products import edge_dot


def inputs(n_edges=7, width=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(2, 2, 4, width, dtype=torch.float64, generator=generator, requires_grad=True)
    key = torch.randn(2, 2, 5, width, dtype=torch.float64, generator=generator, requires_grad=True)
    cells = torch.randperm(2 * 2 * 4 * 5, generator=generator)[:n_edges].sort().values
    return query, key, EdgeList.from_cells(cells, (2, 2, 4, 5))


# 80 pairs against 7 · 3 or 70 · 3 gathered numbers: the first gathers, the second forms all pairs.
@pytest.mark.parametrize("n_edges", [7, 70, 80])
@pytest.mark.parametrize("at_once", [1, 6, 1 << 22])
def test_values_and_gradients_equal_those_of_the_dense_product(n_edges, at_once, monkeypatch):
    monkeypatch.setattr(sbmt.pair_products, "_GATHERED_AT_ONCE", at_once)
    query, key, edges = inputs(n_edges)
    incoming = torch.randn(n_edges, dtype=torch.float64)
    expected = (query @ key.mT).flatten()[edges.cells()]
    found = edge_dot(query, key, edges)
    assert torch.allclose(found, expected, rtol=1e-12)
    gradients = (torch.autograd.grad(x, (query, key), incoming) for x in (found, expected))
    for mine, theirs in zip(*gradients, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize(("n_edges", "is_gathered"), [(26, True), (27, False)])
def test_rows_are_gathered_only_where_that_is_smaller(n_edges, is_gathered, monkeypatch):
    calls = []
    monkeypatch.setattr(sbmt.pair_products._EdgeDot, "apply", lambda *_: calls.append(1) or torch.zeros(n_edges))
    edge_dot(*inputs(n_edges))
    assert bool(calls) is is_gathered


def test_gradcheck_of_the_gathering_route(monkeypatch):
    monkeypatch.setattr(sbmt.pair_products, "_GATHERED_AT_ONCE", 6)
    query, key, edges = inputs()
    assert torch.autograd.gradcheck(lambda q, k: edge_dot(q, k, edges), (query, key))


def test_no_edges_give_zero_gradients():
    query, key, edges = inputs(n_edges=0)
    edge_dot(query, key, edges).sum().backward()
    assert query.grad.eq(0).all() and key.grad.eq(0).all()

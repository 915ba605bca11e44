"""Products along edges by compiled kernels, and by torch: all pairs at once, or rows gathered in chunks."""

import pytest
import torch

import sbmt.block_model.pair_products
from sbmt import EdgeList, straight_through_gate
from sbmt.block_model.pair_products import edge_dot, edge_gate


def inputs(n_edges=7, width=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(2, 2, 4, width, dtype=torch.float64, generator=generator, requires_grad=True)
    key = torch.randn(2, 2, 5, width, dtype=torch.float64, generator=generator, requires_grad=True)
    cells = torch.randperm(2 * 2 * 4 * 5, generator=generator)[:n_edges].sort().values
    return query, key, EdgeList.from_cells(cells, (2, 2, 4, 5))


@pytest.fixture(params=["compiled", "torch"])
def route(request, monkeypatch):
    """By compiled kernels, or by torch, as on other devices."""
    if request.param == "torch":
        monkeypatch.setattr(sbmt.block_model.pair_products, "_GATHERED_AT_ONCE", 6)
        monkeypatch.setattr(sbmt.block_model.pair_products, "can_run_on", lambda device: False)


@pytest.mark.parametrize("n_edges", [1, 26, 80])
def test_values_and_gradients_equal_those_of_the_dense_product(n_edges, route):
    query, key, edges = inputs(n_edges)
    incoming = torch.randn(n_edges, dtype=torch.float64)
    expected = (query @ key.mT).flatten()[edges.cells()]
    found = edge_dot(query, key, edges)
    assert torch.allclose(found, expected, rtol=1e-12)
    gradients = (torch.autograd.grad(x, (query, key), incoming) for x in (found, expected))
    for mine, theirs in zip(*gradients, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-12)


@pytest.mark.parametrize("n_edges", [0, 7, 80])
def test_the_gate_is_one_and_has_the_gradients_of_the_product(n_edges, route):
    query, key, edges = inputs(n_edges)
    incoming = torch.randn(n_edges, dtype=torch.float64)
    gate = edge_gate(query, key, edges)
    assert torch.equal(gate, torch.ones(n_edges, dtype=torch.float64))
    twin = straight_through_gate(edge_dot(query, key, edges))
    for mine, theirs in zip(*(torch.autograd.grad(x, (query, key), incoming) for x in (gate, twin)), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-12)


def test_gradcheck(route):
    query, key, edges = inputs()
    assert torch.autograd.gradcheck(lambda q, k: edge_dot(q, k, edges), (query, key))


# 80 pairs against 26 · 3 or 27 · 3 gathered numbers: the first gathers, the second forms all pairs.
@pytest.mark.parametrize(("n_edges", "is_gathered"), [(26, True), (27, False)])
def test_torch_gathers_rows_only_where_that_is_smaller(n_edges, is_gathered, monkeypatch):
    calls = []
    monkeypatch.setattr(sbmt.block_model.pair_products, "can_run_on", lambda device: False)
    monkeypatch.setattr(
        sbmt.block_model.pair_products._GatheredDot, "apply", lambda *_: calls.append(1) or torch.zeros(n_edges)
    )
    edge_dot(*inputs(n_edges))
    assert bool(calls) is is_gathered


def test_no_edges_give_zero_gradients(route):
    query, key, edges = inputs(n_edges=0)
    edge_dot(query, key, edges).sum().backward()
    assert query.grad.eq(0).all() and key.grad.eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_are_rounded_once(dtype, route):
    query, key, edges = inputs(20)
    query, key = (t.detach().to(dtype) for t in (query, key))
    exact = (query.double() @ key.double().mT).flatten()[edges.cells()]
    found = edge_dot(query, key, edges)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=8 * torch.finfo(dtype).eps)

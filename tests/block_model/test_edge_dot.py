"""Products along edges by compiled kernels, and by torch: all pairs at once, or rows gathered in chunks."""

import pytest
import torch

from sbmt import EdgeList
from sbmt.block_model import model
from sbmt.block_model.model import edge_dot


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
        monkeypatch.setattr(model, "_NUMBERS_AT_ONCE", 6)
        monkeypatch.setattr(model, "can_run_on", lambda device: False)


@pytest.mark.parametrize(
    "n_edges", [0, 1, 26, 27, 80]
)  # torch gathers rows up to 26 edges, and forms all 80 pairs beyond
def test_values_and_gradients_equal_those_of_the_dense_product(n_edges, route):
    query, key, edges = inputs(n_edges)
    incoming = torch.randn(n_edges, dtype=torch.float64)
    expected = (query @ key.mT).flatten()[edges.cells()]
    found = edge_dot(query, key, edges)
    assert torch.allclose(found, expected, rtol=1e-12)
    gradients = (torch.autograd.grad(x, (query, key), incoming) for x in (found, expected))
    for mine, theirs in zip(*gradients, strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-12)


def test_gradcheck(route):
    query, key, edges = inputs()
    assert torch.autograd.gradcheck(lambda q, k: edge_dot(q, k, edges), (query, key))

"""Inputs at the edges of what is allowed, a few of each kind (``make faults`` runs many more), and large numbers."""

import pytest
import torch

from sbmt import EdgeList, available_backends, build_attention, edge_attention
from sbmt.block_model.model import LARGEST_RATE, BlockModel
from tests.faults.run_many import GROUPS, run_cases

BACKENDS = pytest.mark.parametrize("backend", available_backends())


@pytest.mark.bad_input  # some are refused, which is not the shape checker's business
@pytest.mark.parametrize("name", GROUPS)
def test_properties_hold_at_the_edges(name):
    found = run_cases(name, 150)
    assert found.total() >= 150 and found["answered"] > 20
    assert name != "mistakes" or found["refused"] > 20


@BACKENDS
def test_scores_that_overflow_leave_rows_without_edges_alone(backend):
    large, value = torch.full((1, 1, 2, 1), 1e30, requires_grad=True), torch.randn(1, 1, 2, 1)
    edges = EdgeList.from_dense(torch.tensor([[[[True, False], [False, False]]]]))
    out = edge_attention(large, large.detach(), value, edges, backend=backend)
    assert out[0, 0, 1, 0] == 0
    (gradient,) = torch.autograd.grad(out[0, 0, 1, 0], large)
    assert gradient[0, 0, 1, 0] == 0


@BACKENDS
def test_backends_take_inputs_of_different_types(backend):
    query, key, value = torch.randn(3, 1, 2, 4, 3)
    edges = EdgeList.from_dense(torch.ones(1, 2, 4, 4, dtype=torch.bool))
    expected = edge_attention(query, key, value, edges, backend=backend)
    mixed = edge_attention(query.double(), key, value, edges, backend=backend)
    assert mixed.dtype == value.dtype
    torch.testing.assert_close(mixed, expected)


@pytest.mark.parametrize("name, settings", [("full", {}), ("linformer", {"n_positions": 4, "n_projected": 2})])
def test_attentions_take_inputs_of_different_types(name, settings):
    layer = build_attention(name, d_head=3, n_heads=2, **settings)
    query, key, value = torch.randn(3, 1, 2, 4, 3)
    expected = layer(query, key, value).values
    for tensors in ((query.double(), key, value), (query, key.double(), value), (query, key, value.bfloat16())):
        found = layer(*tensors).values
        assert found.dtype == tensors[2].dtype
        torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.02)


def test_the_largest_rates_leave_probabilities_and_gradients_finite():
    query, key = torch.rand(2, 1, 1, 9, 9).unbind()
    block = torch.full((1, 9, 9), LARGEST_RATE)
    leaves = [x.requires_grad_() for x in (query, block, key)]
    p = BlockModel(*leaves, link="poisson").expected_mask()
    assert ((p >= 0) & (p <= 1)).all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(p.sum(), leaves))

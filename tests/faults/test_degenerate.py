"""Tests a few degenerate inputs of each kind (``make faults`` runs many more), and large numbers."""

import pytest
import torch

from sbmt import EdgeList, available_backends, edge_attention
from sbmt.layers.registry import RESERVED
from tests.faults.run_many import ATTENTIONS, GROUPS, run_cases

BACKENDS = pytest.mark.parametrize("backend", available_backends())


def test_every_attention_is_among_them():
    assert set(ATTENTIONS) == RESERVED


@pytest.mark.bad_input  # some are rejected, but not by the shape checker
@pytest.mark.parametrize("name", GROUPS)
def test_properties_hold_at_the_edges(name):
    found = run_cases(name, 60)
    assert found["failed"] == 0 and found["answered"] > 20
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

"""Tests the message-passing layer by itself, on graphs that no EdgeList can describe."""

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import HeteroConv, Sequential

from sbmt.attention.message_passing import EdgeAttention
from tests.attention.row_loop import attend_row_by_row
from tests.gradients import assert_same_gradients
from tests.layers.inputs import seeded

N_SOURCES, N_TARGETS, D, D_VALUE = 9, 6, 4, 3


def bipartite_graph(n_edges=20):
    """Returns queries, keys and values as leaves, and distinct unordered edges. Targets 0 and 4 have no neighbour."""
    generator, sizes = seeded(), ((N_TARGETS, D), (N_SOURCES, D), (N_SOURCES, D_VALUE))
    leaves = [torch.randn(size, generator=generator, dtype=torch.float64).requires_grad_() for size in sizes]
    cells = torch.randperm(N_SOURCES * N_TARGETS, generator=generator)[:n_edges]
    source, target = cells // N_TARGETS, cells % N_TARGETS
    return leaves, torch.stack([source, target])[:, (target != 0) & (target != 4)]


@pytest.mark.parametrize("gate_rule", ["score", "weight"])
def test_equals_the_row_loop_with_gradients(gate_rule):
    leaves, edge_index = bipartite_graph()
    source, target = edge_index
    assert not (target.diff() >= 0).all()
    gate = torch.linspace(0.2, 3, len(target), dtype=torch.float64).requires_grad_()
    ours = EdgeAttention(gate_rule)(*leaves, edge_index, gate)
    mask = torch.zeros(1, 1, N_TARGETS, N_SOURCES, dtype=torch.bool)
    mask[0, 0, target, source] = True
    in_order = gate[(target * N_SOURCES + source).argsort()]
    loop = attend_row_by_row(*(t[None, None] for t in leaves), mask, in_order, gate_rule)[0, 0]
    torch.testing.assert_close(ours, loop, rtol=0, atol=1e-10)
    assert (ours[[0, 4]] == 0).all()
    assert_same_gradients(ours, loop, [*leaves, gate], rtol=0, atol=1e-10)


def test_inside_a_graph_network():
    """Two rounds of self-attention over a directed ring, where each node reads only its predecessor."""
    ring = torch.stack([torch.arange(5), (torch.arange(5) + 1) % 5])
    model = Sequential(
        "x, edge_index",
        [
            (EdgeAttention(), "x, x, x, edge_index -> x"),
            (nn.Identity(), "x -> x"),
            (EdgeAttention("weight"), "x, x, x, edge_index -> x"),
        ],
    )
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(model(x, ring), x.roll(2, 0))
    torch.testing.assert_close(copy.deepcopy(model)(x, ring), x.roll(2, 0))


def test_node_types_attend_to_each_other_in_a_hetero_conv():
    edges = {("b", "to", "a"): torch.tensor([[0, 4, 4], [0, 0, 2]]), ("a", "to", "a"): torch.tensor([[0, 1], [2, 2]])}
    edges["a", "to", "b"] = torch.tensor([[2], [1]])
    x, value = ({name: torch.randn(n, d) for name, n in (("a", 3), ("b", 5))} for d in (4, 2))
    found = HeteroConv({kind: EdgeAttention() for kind in edges})(x, x, value, edges)
    one, other = (EdgeAttention()(x["a"], x[key], value[key], edges[key, "to", "a"]) for key in ("b", "a"))
    torch.testing.assert_close(found["a"], one + other)
    assert torch.equal(found["b"][1], value["a"][2])


def test_a_graph_without_edges_gives_zeros():
    leaves, edge_index = bipartite_graph(n_edges=0)
    out = EdgeAttention()(*leaves, edge_index)
    assert out.shape == (N_TARGETS, D_VALUE) and (out == 0).all()
    assert (torch.autograd.grad(out.sum(), leaves[0], allow_unused=True, materialize_grads=True)[0] == 0).all()

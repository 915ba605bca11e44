"""Transposes, unions and windows by compiled kernels equal their plain twins, number for number."""

from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt.graph import csr
from sbmt.graph.edges import EdgeList
from sbmt.kernels import rows


@st.composite
def graphs(draw):
    """Two masks over the same tokens, empty rows, columns and graphs included."""
    n_graphs, n_queries, n_keys = (draw(st.integers(1, n)) for n in (3, 5, 7))
    cells = st.lists(st.booleans(), min_size=n_graphs * n_queries * n_keys, max_size=n_graphs * n_queries * n_keys)
    shape = (1, n_graphs, n_queries, n_keys)
    return [EdgeList.from_dense(torch.tensor(draw(cells)).view(shape)) for _ in range(2)]


def large(density, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return EdgeList.from_dense(torch.rand(2, 3, 50, 70, generator=generator) < density)


def assert_same(found, twin):
    for ours, theirs in zip(found, twin, strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def assert_as_their_twins(first, second):
    arguments = first.row_ptr, first.keys, *first.shape[2:]
    assert_same(rows.transpose(*arguments), csr.transpose_by_sorting(*arguments))
    for reach in (0, 2):
        assert_same([rows.near(*arguments, reach)], [csr.near_by_repeating(*arguments[:3], reach)])
    for heads in (1, 3):
        assert_same(rows.repeat(*arguments, heads), csr.repeat_by_indexing(*arguments[:3], heads))
    arguments = first.row_ptr, first.keys, second.row_ptr, second.keys
    assert_same(rows.merge_rows(*arguments), csr.merge_rows_by_sorting(*arguments, first.shape[3]))


@given(graphs())
def test_small_masks(drawn):
    assert_as_their_twins(*drawn)


@pytest.mark.parametrize("density", [0.0, 0.01, 0.5, 1.0])
def test_large_masks(density):
    for other in (0.0, 0.02, 1.0):
        assert_as_their_twins(large(density), large(other, seed=1))


@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("reach", [0, 1, 5, 29, 30, 1000])
def test_windows(density, reach):
    generator = torch.Generator().manual_seed(0)
    dense = torch.rand(2, 3, 30, 30, generator=generator) < density
    for mask in (None, torch.rand(2, 30, generator=generator) < 0.7):
        other = None if mask is None else mask.flip(1)
        kept = dense if mask is None else dense & mask[:, None, :, None] & other[:, None, None, :]
        edges = EdgeList.from_dense(kept, mask, other)
        arguments = edges.row_ptr, edges.keys, edges.shape, reach, mask, other
        found = csr.add_window(*arguments)
        assert_same(found, csr.add_window_by_cells(*arguments))
        EdgeList(*found, edges.shape, mask, other, check=True)


def test_where_each_edge_stands_among_its_graph_s():
    """By columns, ``positions`` leads back to the rows: the key found there is the column's."""
    edges = large(0.3)
    column_ptr, queries, positions = edges.by_key
    column = torch.arange(column_ptr.numel() - 1).repeat_interleave(column_ptr.diff())
    graph = column // 70
    place = edges.row_ptr[graph * 50] + positions
    assert torch.equal(edges.keys[place], column % 70)
    assert torch.equal(edges.rows()[place], graph * 50 + queries)
    assert torch.equal(place.sort().values, torch.arange(edges.n_edges))


@pytest.mark.parametrize("is_compiled", [True, False])
def test_what_runs_follows_the_device(is_compiled, monkeypatch):
    monkeypatch.setattr(csr, "can_run_on", lambda device: is_compiled)
    twins = []
    for name in (
        "transpose_by_sorting",
        "merge_rows_by_sorting",
        "near_by_repeating",
        "add_window_by_cells",
        "repeat_by_indexing",
    ):
        twins.append(Mock(wraps=getattr(csr, name)))
        monkeypatch.setattr(csr, name, twins[-1])
    edges = large(0.1)
    csr.add_window(edges.row_ptr, edges.keys, (2, 3, 50, 50), 2, None, None)
    csr.repeat_graphs(edges.row_ptr, edges.keys, 50, 70, 2)
    csr.transpose_edges(edges.row_ptr, edges.keys, 50, 70)
    csr.merge_rows(edges.row_ptr, edges.keys, edges.row_ptr, edges.keys, 70)
    csr.near_edges(edges.row_ptr, edges.keys, 50, 70, 2)
    assert all(twin.called is not is_compiled for twin in twins)

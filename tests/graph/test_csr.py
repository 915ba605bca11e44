"""Transposes and unions by compiled kernels equal their plain twins, number for number."""

from unittest.mock import Mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt.graph import csr
from sbmt.graph.edges import EdgeList
from sbmt.kernels import rows


@st.composite
def graphs(draw, n_masks=1):
    """``n_queries``, ``n_keys`` and some masks over the same tokens, empty rows, columns and graphs included."""
    n_graphs, n_queries, n_keys = (draw(st.integers(1, n)) for n in (3, 5, 7))
    cells = st.lists(st.booleans(), min_size=n_graphs * n_queries * n_keys, max_size=n_graphs * n_queries * n_keys)
    shape = (1, n_graphs, n_queries, n_keys)
    return n_queries, n_keys, [EdgeList.from_dense(torch.tensor(draw(cells)).view(shape)) for _ in range(n_masks)]


def large(density, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return EdgeList.from_dense(torch.rand(2, 3, 50, 70, generator=generator) < density)


def assert_same(found, twin):
    for ours, theirs in zip(found, twin, strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def assert_transposed(edges):
    arguments = edges.row_ptr, edges.keys, *edges.shape[2:]
    assert_same(rows.transpose(*arguments, False), csr.transpose_by_sorting(*arguments))


def assert_merged(first, second):
    arguments = first.row_ptr, first.keys, second.row_ptr, second.keys, first.shape[3]
    for way in (csr.merge_rows, csr.merge_rows_by_searching):
        assert_same(way(*arguments), csr.merge_rows_by_sorting(*arguments))


@given(graphs())
def test_transposes(drawn):
    assert_transposed(drawn[2][0])


@given(graphs(n_masks=2))
def test_unions(drawn):
    assert_merged(*drawn[2])


@pytest.mark.parametrize("density", [0.0, 0.01, 0.5, 1.0])
def test_so_they_are_where_graphs_are_large(density):
    assert_transposed(large(density))
    for other in (0.0, 0.02, 0.6, 1.0):
        assert_merged(large(density), large(other, seed=1))
        assert_merged(large(other, seed=1), large(density))


def test_where_each_edge_stands_among_its_graph_s():
    """By columns, ``positions`` leads back to the rows: the key found there is the column's."""
    edges = large(0.3)
    column_ptr, queries, positions = rows.transpose(edges.row_ptr, edges.keys, 50, 70, False)
    column = torch.arange(column_ptr.numel() - 1).repeat_interleave(column_ptr.diff())
    graph = column // 70
    place = edges.row_ptr[graph * 50] + positions
    assert torch.equal(edges.keys[place], column % 70)
    assert torch.equal(edges.rows()[place], graph * 50 + queries)
    assert torch.equal(place.sort().values, torch.arange(edges.n_edges))


@pytest.mark.parametrize("is_compiled", [True, False])
def test_what_runs_follows_the_device(is_compiled, monkeypatch):
    monkeypatch.setattr(csr, "can_run_on", lambda device: is_compiled)
    twins = [Mock(wraps=getattr(csr, name)) for name in ("transpose_by_sorting", "merge_rows_by_searching")]
    monkeypatch.setattr(csr, "transpose_by_sorting", twins[0])
    monkeypatch.setattr(csr, "merge_rows_by_searching", twins[1])
    edges = large(0.1)
    csr.transpose_edges(edges.row_ptr, edges.keys, 50, 70)
    csr.merge_rows(edges.row_ptr, edges.keys, edges.row_ptr, edges.keys, 70)
    assert all(twin.called is not is_compiled for twin in twins)

"""Edges by key, counted and filled, equal the sorted ones number for number."""

from unittest.mock import MagicMock

import pytest
import torch

from sbmt.graph import csr
from sbmt.graph.edges import EdgeList
from sbmt.kernels import rows
from sbmt.kernels.gpu.rows import transposing
from sbmt.kernels.structures import Mask
from tests.kernels.gpu.device import to_device


def edge_lists():
    """Rows of all kinds, many rows and few, more programs than one, empty columns and graphs."""
    generator = torch.Generator().manual_seed(0)
    for shape, density in (
        ((2, 3, 150, 9), 0.9),
        ((1, 2, 300, 70), 0.5),
        ((2, 2, 5, 200), 0.05),
        ((1, 1, 1, 1), 1.0),
        ((2, 1, 70, 3), 0.0),
        ((1, 1, 2, 500), 1.0),
    ):
        mask = torch.rand(shape, generator=generator) < density
        mask[..., shape[3] // 2] = False
        mask[0, 0, 0] = False
        yield EdgeList.from_dense(mask)


@pytest.mark.parametrize("edges", list(edge_lists()), ids=lambda edges: str(edges.shape))
def test_by_key(edges):
    row_ptr, keys = to_device(edges.row_ptr, edges.keys)
    found = rows.transpose(row_ptr, keys, *edges.shape[2:], True)
    twin = csr.transpose_by_sorting(edges.row_ptr, edges.keys, *edges.shape[2:])
    for ours, theirs in zip(found, twin, strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours.cpu(), theirs)


def test_long_columns_are_shared_among_programs(monkeypatch):
    """How many programs there are is part of the speed, and must not change a number."""
    programs = MagicMock()
    programs.__getitem__.side_effect = transposing.count_columns.__getitem__
    monkeypatch.setattr(transposing, "count_columns", programs)
    for edges in edge_lists():
        transposing.transpose(Mask(*to_device(edges.row_ptr, edges.keys), *edges.shape[2:]))
    assert [call.args[0][0] for call in programs.__getitem__.call_args_list] == [6 * 3, 2 * 5, 4, 1, 2, 1]

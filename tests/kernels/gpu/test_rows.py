"""Kernels along rows against plain sums, with rows in many pieces, and as accurate as dense attention in 16 bits."""

import pytest
import torch

from sbmt import EdgeList, SbmtError
from sbmt import edge_attention as attention_anywhere
from sbmt.kernels.gpu.rows import launch as row_launch
from sbmt.kernels.gpu.rows import pieces
from sbmt.kernels.structures import ByKey, Mask
from tests.attention.row_loop import attend_and_weigh, make_case
from tests.kernels.gpu.device import DEVICE, edge_attention, to_device


@pytest.fixture
def short_pieces(monkeypatch):
    """Rows of more than four edges are cut."""
    monkeypatch.setattr(pieces, "PIECE", 4)


def uneven_case(seed=0):
    """Rows of no edge, one, all, and anything between: up to 23 edges in pieces of four."""
    case = make_case(2, 2, 7, 23, 5, 3, density=0.5, seed=seed)
    mask = case.mask.clone()
    mask[:, :, 1], mask[:, :, 2] = True, False
    mask[:, :, 2, 5] = True
    gate = torch.rand(int(mask.sum()), dtype=torch.float64).add(0.3).requires_grad_()
    return case, mask, EdgeList.from_dense(mask), gate


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize(("gate_rule", "shift"), [("weight", -3.0), ("score", 3.0), ("score", None)])
def test_pieces_of_a_row_add_up(gate_rule, shift):
    """A sink joins the first piece only; weights and their gradients concern the whole row."""
    case, mask, edges, gate = uneven_case()
    terms = {}
    if shift is not None:
        terms = dict(bias=gate.detach().log().mul(3), sink=torch.tensor([0.5, -0.5], dtype=torch.float64) + shift)
    leaves = [case.query, case.key, case.value, gate, *(t.requires_grad_() for t in terms.values())]
    ours = edge_attention(*leaves[:3], edges, gate, gate_rule=gate_rule, **terms, backend="gpu", return_weights=True)
    loop = attend_and_weigh(*leaves[:3], mask, gate, gate_rule, **terms)
    found, expected = (
        [*both, *torch.autograd.grad((both[0] ** 2).sum() + (both[1] ** 3).sum(), leaves)] for both in (ours, loop)
    )
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("short_pieces")
def test_pieces_of_large_scores_stay_finite():
    case, _, edges, _ = uneven_case(seed=1)
    query, key = (300 * t.detach() for t in (case.query, case.key))
    ours = edge_attention(query, key, case.value, edges, backend="gpu")
    dense = edge_attention(query, key, case.value, edges, backend="dense")
    torch.testing.assert_close(ours, dense, rtol=0, atol=1e-10)


def test_no_piece_is_long_and_none_is_lost():
    row_ptr = torch.tensor([0, 0, 1, 1 + pieces.PIECE, 2 + 2 * pieces.PIECE, 7 + 5 * pieces.PIECE])
    cut = pieces.cut_rows(Mask(row_ptr, torch.zeros(int(row_ptr[-1])), 5, 1))
    counts = torch.bincount(cut.row, minlength=6)
    assert counts[:5].tolist() == [1, 1, 1, 2, 4]
    assert cut.ptr.diff().tolist() == counts[:5].tolist() and cut.slot_ptr.tolist() == [0, 0, 0, 0, 2, 6]
    assert cut.slot_ptr[-1] <= cut.n_slots and cut.grid == (cut.row.numel(),)


@pytest.mark.usefixtures("short_pieces")
def test_sums_and_products_along_edges():
    case, mask, edges, gate = uneven_case(seed=2)
    cells = edges.cells()
    dense = torch.zeros(mask.numel(), dtype=torch.float64)
    dense[cells] = gate.detach()
    dense = dense.view(mask.shape)
    query, key = case.query.detach(), case.key.detach()
    row_ptr, keys, weights, flat_query, flat_key = to_device(
        edges.row_ptr, edges.keys, gate.detach(), query.flatten(0, 2), key.flatten(0, 2)
    )
    mask, by_key = Mask(row_ptr, keys, *edges.shape[2:]), ByKey(*to_device(*edges.by_key))
    dots = row_launch.dots(flat_query, flat_key, mask)
    torch.testing.assert_close(dots.cpu(), (query @ key.mT).flatten()[cells], rtol=0, atol=1e-12)
    to_query = row_launch.sum_over_keys(weights, flat_key, mask)
    torch.testing.assert_close(to_query.cpu(), (dense @ key).flatten(0, 2), rtol=0, atol=1e-12)
    to_key = row_launch.sum_over_queries(weights, flat_query, mask, by_key)
    torch.testing.assert_close(to_key.cpu(), (dense.mT @ query).flatten(0, 2), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "gate_rule"), [(torch.bfloat16, "score"), (torch.float16, "weight"), (torch.float32, "score")]
)
def test_errors_are_at_most_twice_those_of_dense_attention(dtype, gate_rule):
    """In outputs and gradients, by root mean square, against float64 from the same rounded inputs."""
    case = make_case(1, 2, 40, 40, 16, 16, density=0.4, seed=3)
    rounded = [t.detach().to(dtype) for t in (case.query, case.key, case.value)]
    gate = case.gate.detach().float()

    def results(backend, kind):
        leaves = [t.to(kind).requires_grad_() for t in rounded] + [gate.to(torch.promote_types(kind, gate.dtype))]
        leaves[3].requires_grad_()
        out = edge_attention(*leaves[:3], case.edges, leaves[3], gate_rule=gate_rule, backend=backend)
        weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
        return [x.detach().double() for x in (out, *torch.autograd.grad((out * weight).sum(), leaves))]

    exact, ours, theirs = results("dense", torch.float64), results("gpu", dtype), results("dense", dtype)
    for name, a, b, c in zip(("out", "query", "key", "value", "gate"), exact, ours, theirs, strict=True):
        mine, yours = ((x - a).square().mean().sqrt() for x in (b, c))
        assert 0 < mine <= 2 * yours, (name, float(mine), float(yours))


@pytest.mark.bad_input
def test_tensors_elsewhere_are_refused(monkeypatch):
    case = make_case(1, 1, 3, 3, 2, 2)
    moved = [t.to(DEVICE) for t in (case.query, case.key, case.value, case.edges)]
    monkeypatch.setattr("sbmt.attention.rows.has_gpu_kernels", lambda device: False)
    with pytest.raises(SbmtError, match="tensors on one GPU"):
        attention_anywhere(*moved, backend="gpu")
    monkeypatch.setattr("sbmt.attention.dispatch.has_gpu_kernels", lambda device: False)
    with pytest.raises(SbmtError, match="backend among .*, got 'gpu'"):
        attention_anywhere(*moved, backend="gpu")

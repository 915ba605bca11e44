"""Attention that is fitted meanwhile gives what attending, and fitting by autograd, give in turn."""

import pytest
import torch

import sbmt
from sbmt.block_model.crossed import CrossedModel
from sbmt.kernels.cpu import attention
from sbmt.layers import functional
from tests.attention.drawn import BATCH, HEADS, N, model_of, tokens
from tests.attention.test_drawn import PADDING


def both_ways(n_heads, model, monkeypatch, dtype=torch.float64, **settings):
    """Outputs and gradients of one pass, and of attention and fit in turn."""
    settings = dict(learning="likelihood", edges_per_query=9.0, backend="cpu", return_edges=True) | settings
    found = []
    for is_in_turn in (False, True):
        if is_in_turn:
            monkeypatch.setattr(functional, "can_fit_meanwhile", lambda *_: False)
        inputs = [x.requires_grad_() for x in tokens(n_heads, dtype)]
        sink = torch.linspace(-1, 1, n_heads, dtype=dtype).requires_grad_()
        factors = [t.detach().clone().requires_grad_() for t in (model._query, model.part_blocks, model._key)]
        query, blocks, key = factors
        masks = model.query_mask, model.key_mask
        mine = CrossedModel((model.query_part, query), blocks, (model.key_part, key), *masks, model.link)
        generator = torch.Generator().manual_seed(3)
        out = sbmt.sbm_attention(*inputs, mine, sink=sink, generator=generator, **settings)
        of_values = torch.linspace(-1, 2, out.values.numel(), dtype=dtype).view_as(out.values)
        both = [out.values, out.auxiliary_loss], [of_values, torch.tensor(1.7, dtype=out.auxiliary_loss.dtype)]
        found.append((out, torch.autograd.grad(both[0], [*inputs, sink, *factors], both[1])))
    monkeypatch.undo()
    return found


def assert_same(one, other, tolerance=1e-12):
    (out, grads), (plain_out, plain_grads) = one, other
    assert torch.equal(out.values, plain_out.values) and torch.equal(out.density, plain_out.density)
    assert out.auxiliary_loss != 0 and torch.equal(out.edges.keys, plain_out.edges.keys)
    for name in ("expected_density", "auxiliary_loss"):
        torch.testing.assert_close(getattr(out, name), getattr(plain_out, name), rtol=tolerance, atol=0)
    for mine, theirs in zip(grads, plain_grads, strict=True):
        assert mine.dtype == theirs.dtype and theirs.abs().max() > 1e-3
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * float(theirs.abs().max()))


@pytest.mark.parametrize("window", [None, 0, 7])
@pytest.mark.parametrize("masks", [(None, None), PADDING], ids=["whole", "padded"])
@pytest.mark.parametrize("exploration", [0.0, 0.1])
def test_it_is_what_attending_and_fitting_give(exploration, masks, window, monkeypatch):
    monkeypatch.setattr("sbmt.kernels.cpu.fit.CHUNKS", 4 * BATCH * HEADS)  # several a graph
    model = model_of(masks=masks, dtype=torch.float64)
    settings = dict(exploration=exploration, window=window, reweight=True)
    assert_same(*both_ways(HEADS, model, monkeypatch, **settings))


def test_it_is_so_without_reweighting(monkeypatch):
    assert_same(*both_ways(HEADS, model_of(dtype=torch.float64), monkeypatch, reweight=False))


def test_it_is_so_where_heads_share_a_graph(monkeypatch):
    one, other = both_ways(6, model_of(1, dtype=torch.float64), monkeypatch, reweight=True, window=0)
    assert_same(one, other)
    assert one[0].density.shape == one[0].expected_density.shape == (BATCH, 6)


@pytest.mark.parametrize(("n_heads", "n_graphs"), [(HEADS, HEADS), (6, 1)])
def test_it_is_so_with_dropout(n_heads, n_graphs, monkeypatch):
    model = model_of(n_graphs, dtype=torch.float64)
    one, other = both_ways(n_heads, model, monkeypatch, reweight=True, dropout=0.3)
    assert_same(one, other)
    whole, _ = both_ways(n_heads, model, monkeypatch, reweight=True)
    assert not torch.equal(one[0].values, whole[0].values)
    torch.testing.assert_close(one[0].auxiliary_loss, whole[0].auxiliary_loss)  # targets are weights before dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_so_in_other_types(dtype, monkeypatch):
    assert_same(*both_ways(HEADS, model_of(), monkeypatch, dtype, reweight=True), tolerance=1e-4)


@pytest.mark.parametrize("edges_per_query", [1e-3, 40.0, 1e4])
def test_it_is_so_from_nearly_empty_rows_to_full_ones(edges_per_query, monkeypatch):
    model = model_of(edges_per_query=edges_per_query, dtype=torch.float64)
    assert_same(*both_ways(HEADS, model, monkeypatch, window=0, reweight=True))


def test_some_rows_together_are_fewer_than_a_chunk():
    assert attention.EDGES < N * N  # so that the tests above with full rows go through a chunk in several steps


def test_without_edges_the_sum_of_rates_is_what_is_left():
    model = model_of(edges_per_query=1e-12, dtype=torch.float64)
    inputs = [x.requires_grad_() for x in tokens(dtype=torch.float64)]
    out = sbmt.sbm_attention(*inputs, model, learning="likelihood", edges_per_query=9.0, reweight=True, backend="cpu")
    assert not out.values.any() and not out.density.any() and not out.expected_density.any()
    torch.testing.assert_close(out.auxiliary_loss, model.sum_of_rates().sum() / (BATCH * HEADS * N))
    assert not any(g.any() for g in torch.autograd.grad(out.values.sum(), inputs))


def test_what_only_one_of_the_two_losses_reaches_gets_no_gradient_of_the_other():
    layer = sbmt.build_attention("sbm", preset="fitted", d_head=4, n_heads=3, n_clusters=16, edges_per_query=4.0)
    inputs = [torch.randn(2, 3, 9, 4).requires_grad_() for _ in range(3)]
    for name, reached in (("values", {"sink"}), ("auxiliary_loss", {"clusters", "log_rate"})):
        layer.zero_grad()
        getattr(layer(*inputs), name).sum().backward()
        gradients = {name for name in ("sink", "clusters", "log_rate") if layer.get_parameter(name).grad is not None}
        assert gradients == reached

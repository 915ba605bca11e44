"""Attention along edges that are drawn meanwhile is what drawing and then attending gives, to the last digit."""

import pytest
import torch

import sbmt
from sbmt.layers import functional
from tests.attention.drawn import BATCH, HEADS, N, model_of, tokens


def both_ways(inputs, model, monkeypatch, **settings):
    """The outputs of one pass, and of drawing, weighing and attending in turn."""
    settings = dict(backend="cpu", learning="likelihood", edges_per_query=9.0) | settings
    outputs = []
    with torch.no_grad():
        for is_in_turn in (False, True):
            if is_in_turn:
                monkeypatch.setattr(functional, "can_draw_meanwhile", lambda *_: False)
            generator = torch.Generator().manual_seed(3)
            outputs.append(sbmt.sbm_attention(*inputs, model, generator=generator, **settings))
    monkeypatch.undo()
    return outputs


def assert_same(one, other):
    for name in ("values", "density", "expected_density", "auxiliary_loss"):
        x, y = getattr(one, name), getattr(other, name)
        assert x.dtype == y.dtype and torch.equal(x, y), name


LENGTHS = torch.tensor([[N - 20], [0]])
PADDING = [torch.arange(N) < LENGTHS, torch.arange(N).flip(0) < LENGTHS + 3]


@pytest.mark.parametrize("window", [None, 0, 7])
@pytest.mark.parametrize("masks", [(None, None), PADDING], ids=["whole", "padded"])
@pytest.mark.parametrize("exploration", [0.0, 0.1])
def test_it_is_what_drawing_and_attending_gives(exploration, masks, window, monkeypatch):
    settings = dict(exploration=exploration, window=window, reweight=True, sink=torch.linspace(-1, 1, HEADS))
    one, other = both_ways(tokens(), model_of(masks=masks), monkeypatch, **settings)
    assert_same(one, other)
    if masks[0] is not None:
        assert not one.values[0, :, N - 20 :].any() and not one.values[1].any() and not one.density[1].any()
    assert one.values[0, :, : N - 20].any(-1).float().mean() > (0.9 if window is None else 0.99)


@pytest.mark.parametrize("settings", [dict(reweight=False), dict(learning="straight_through", edges_per_query=None)])
def test_it_is_so_without_reweighting_sink_or_likelihood(settings, monkeypatch):
    assert_same(*both_ways(tokens(), model_of(), monkeypatch, **settings))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_it_is_so_in_other_types(dtype, monkeypatch):
    model = model_of(dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    one, other = both_ways(tokens(dtype=dtype), model, monkeypatch, reweight=True, sink=torch.zeros(HEADS))
    assert_same(one, other)
    assert one.values.dtype == dtype


def test_it_is_so_where_heads_share_a_graph(monkeypatch):
    settings = dict(reweight=True, window=0, sink=torch.linspace(-1, 1, 6))
    one, other = both_ways(tokens(6), model_of(1), monkeypatch, **settings)
    assert_same(one, other)
    assert one.density.shape == (BATCH, 6)


@pytest.mark.parametrize("edges_per_query", [1e-6, 40.0, 1e4])
def test_it_is_so_from_empty_rows_to_full_ones(edges_per_query, monkeypatch):
    one, other = both_ways(tokens(), model_of(edges_per_query=edges_per_query), monkeypatch, reweight=True)
    assert_same(one, other)
    assert torch.isfinite(one.values).all()
    low, high = {1e-6: (0, 1e-3), 40.0: (0.1, 0.6), 1e4: (0.7, 1)}[edges_per_query]
    assert ((one.density >= low) & (one.density <= high)).all()


def test_it_gives_way_where_more_is_asked_for(monkeypatch):
    """Gradients, edges, dropout and other backends take the steps in turn; asking for edges changes no value."""
    calls, density = [], torch.zeros(BATCH, HEADS)
    monkeypatch.setattr(functional, "attend_while_drawing", lambda *a: calls.append(a) or (a[0], density, density))
    model, inputs = model_of(), tokens()

    def attend(has_gradients=False, **settings):
        with torch.set_grad_enabled(has_gradients):
            sbmt.sbm_attention(*inputs, model, learning="likelihood", edges_per_query=9.0, **settings)
        return len(calls)

    others = [dict(return_edges=True), dict(dropout=0.5), dict(backend="dense"), dict(sampler="bernoulli")]
    assert [attend(**settings) for settings in [dict(has_gradients=True), *others, dict(is_dense=True)]] == [0] * 6
    assert attend() == 1 and attend(backend="cpu") == 2

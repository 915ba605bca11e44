"""Linformer is softmax attention over mixtures of keys; with the identity as mixtures it is full attention."""

import pytest
import torch

from sbmt.baselines import FullAttention
from sbmt.baselines.linformer import LinformerAttention
from sbmt.errors import SbmtError
from tests.baselines.cases import check_against_twin, masked, masked_case, same_values_and_gradients
from tests.layers.inputs import tokens


def make(n_heads=2, n_positions=9, n_projected=3, dtype=torch.float64, **settings):
    """A layer whose mixtures are far from uniform, as after training."""
    layer = LinformerAttention(4, n_heads, n_positions=n_positions, n_projected=n_projected, **settings).to(dtype)
    torch.nn.init.normal_(layer.projection)
    return layer


def one_by_one(query, key, value, mask, projection):
    """The definition, for one example, head and query after the other."""
    out = torch.zeros(*query.shape[:3], value.shape[3], dtype=query.dtype)
    for b, h, i in mask.any(-1).nonzero().tolist():
        real = mask[b, h, i].nonzero()[:, 0].tolist()
        mixed_keys = sum(torch.outer(projection[h, :, j], key[b, h, j]) for j in real)
        mixed_values = sum(torch.outer(projection[h, :, j], value[b, h, j]) for j in real)
        weights = (mixed_keys @ query[b, h, i] / query.shape[3] ** 0.5).exp()
        out[b, h, i] = weights @ mixed_values / weights.sum()
    return out


@masked
def test_it_is_the_definition(hides_keys, hides_queries):
    layer = make()
    check_against_twin(layer, lambda *case: one_by_one(*case, layer.projection), hides_keys, hides_queries)


def test_with_the_identity_it_is_full_attention():
    inputs, query_mask, _ = masked_case()
    layer = make(n_positions=6, n_projected=6)
    with torch.no_grad():
        layer.projection.copy_(torch.eye(6).expand(2, 6, 6))
    mine, theirs = (attend(*inputs, query_mask=query_mask).values for attend in (layer, FullAttention(4, 2)))
    same_values_and_gradients(mine, theirs, inputs)


def test_shorter_inputs_use_the_first_columns():
    x, layer = tokens(heads=2, n=5, dtype=torch.float64), make()
    out = layer(x, x, x).values
    out.square().sum().backward()
    gradient = layer.projection.grad
    assert (gradient[:, :, :5] != 0).all() and (gradient[:, :, 5:] == 0).all()
    with torch.no_grad():
        layer.projection[:, :, 5:] = float("nan")
    assert torch.equal(layer(x, x, x).values, out)


def test_each_head_learns_one_matrix():
    layer = LinformerAttention(4, 2, n_positions=100, n_projected=50)
    assert {name: p.shape for name, p in layer.named_parameters()} == {"projection": (2, 50, 100)}
    start = layer.projection.detach()
    assert float(start.std()) == pytest.approx(0.02, rel=0.05) and abs(float(start.mean())) < 0.001
    assert not torch.equal(start[0], start[1])


def test_dropout_acts_on_the_mixtures():
    x, layer = tokens(heads=2, n=32), make(n_positions=32, n_projected=1, dtype=torch.float32, dropout=0.5)
    plain = layer.eval()(x, x, x).values
    ratio = layer.train()(x, x, x).values / plain  # the one weight is 1: dropped, or doubled, for a whole row
    torch.testing.assert_close(ratio, ratio[..., :1].round().expand_as(ratio))
    assert set(ratio[..., 0].round().unique().tolist()) == {0.0, 2.0}


@pytest.mark.bad_input
def test_other_sizes_are_refused():
    x, layer = tokens(), LinformerAttention(4, 3, n_positions=7)
    with pytest.raises(SbmtError, match="at most 7 keys, got 8"):
        layer(x, x, x)
    layer(x, x[:, :, :7], x[:, :, :7])  # eight queries may read seven keys
    with pytest.raises(SbmtError, match=r"3 heads, got \(2, 2, 8, 4\)"):
        layer(*[x[:, :2]] * 3)

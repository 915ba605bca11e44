"""Linformer is softmax attention over mixtures of keys; with the identity as mixtures it is full attention."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sbmt.baselines import FullAttention
from sbmt.baselines.linformer import LinformerAttention
from sbmt.errors import SbmtError
from tests.baselines.test_full import masked_case
from tests.layers.inputs import tokens


def make(n_heads=2, n_positions=9, n_projected=3, scale=1.0, dtype=torch.float64, **settings):
    """A layer whose mixtures are far from uniform, as after training."""
    layer = LinformerAttention(4, n_heads, n_positions=n_positions, n_projected=n_projected, **settings).to(dtype)
    with torch.no_grad():
        layer.projection.normal_(std=scale)
    return layer


def one_by_one(query, key, value, query_mask, key_mask, projection):
    """The definition, for one example, head and query after the other."""
    out = torch.zeros(*query.shape[:3], value.shape[3], dtype=query.dtype)
    for b, h in torch.cartesian_prod(*map(torch.arange, query.shape[:2])).tolist():
        real = [j for j in range(key.shape[2]) if key_mask[b, j]]
        if not real:
            continue
        mixed_keys = sum(torch.outer(projection[h, :, j], key[b, h, j]) for j in real)
        mixed_values = sum(torch.outer(projection[h, :, j], value[b, h, j]) for j in real)
        for i in [i for i in range(query.shape[2]) if query_mask[b, i]]:
            weights = (mixed_keys @ query[b, h, i] / query.shape[3] ** 0.5).exp()
            out[b, h, i] = weights @ mixed_values / weights.sum()
    return out


def assert_same_with_gradients(mine, theirs, inputs):
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)
    gradients = (torch.autograd.grad(values.square().sum(), inputs) for values in (mine, theirs))
    for x, y in zip(*gradients, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-10)


@pytest.mark.parametrize("hides_queries", [True, False])
@pytest.mark.parametrize("hides_keys", [True, False])
@pytest.mark.parametrize("n_positions", [6, 9])
def test_values_and_gradients_equal_the_definition(n_positions, hides_keys, hides_queries):
    inputs, query_mask, key_mask = masked_case()
    query_mask = query_mask if hides_queries else torch.ones_like(query_mask)
    key_mask = key_mask if hides_keys else torch.ones_like(key_mask)
    layer = make(n_positions=n_positions)
    masks = dict(query_mask=query_mask if hides_queries else None, key_mask=key_mask if hides_keys else None)
    out = layer(*inputs, **masks, return_edges=True)
    slow = one_by_one(*inputs, query_mask, key_mask, layer.projection)
    assert_same_with_gradients(out.values, slow, [*inputs, layer.projection])
    mask = query_mask[:, None, :, None] & key_mask[:, None, None, :]
    assert torch.equal(out.edges.to_dense(), mask.expand(3, 2, 5, 6))
    has_pairs = mask.expand(3, 2, 5, 6).flatten(2).any(-1).double()
    assert torch.equal(out.density.double(), has_pairs) and torch.equal(out.expected_density.double(), has_pairs)


def test_with_the_identity_it_is_full_attention():
    inputs, query_mask, _ = masked_case()
    layer = make(n_positions=6, n_projected=6)
    with torch.no_grad():
        layer.projection.copy_(torch.eye(6).expand(2, 6, 6))
    mine, theirs = (attend(*inputs, query_mask=query_mask).values for attend in (layer, FullAttention(4, 2)))
    assert_same_with_gradients(mine, theirs, inputs)


def test_shorter_inputs_use_the_first_columns():
    x, layer = tokens(heads=2, n=5, dtype=torch.float64), make()
    out = layer(x, x, x).values
    out.square().sum().backward()
    gradient = layer.projection.grad
    assert (gradient[:, :, :5] != 0).all() and (gradient[:, :, 5:] == 0).all()
    with torch.no_grad():
        layer.projection[:, :, 5:] = float("nan")
    assert torch.equal(layer(x, x, x).values, out)


def test_padding_after_the_end_changes_nothing():
    x, layer = tokens(heads=2, n=5, dtype=torch.float64), make()
    longer = torch.cat([x, torch.full((2, 2, 3, 4), 1e3, dtype=torch.float64)], 2)
    mask = torch.arange(8).expand(2, 8) < 5
    out = layer(longer, longer, longer, query_mask=mask, key_mask=mask).values
    torch.testing.assert_close(out[:, :, :5], layer(x, x, x).values, rtol=0, atol=1e-12)
    assert (out[:, :, 5:] == 0).all()


def test_what_stands_at_padding_is_never_seen():
    (query, key, value), query_mask, key_mask = masked_case()
    layer, results = make(), []
    for filler in (0.0, 1e300, float("nan"), float("-inf")):
        inputs = [
            x.detach().masked_fill(~mask[:, None, :, None], filler).requires_grad_()
            for x, mask in ((query, query_mask), (key, key_mask), (value, key_mask))
        ]
        out = layer(*inputs, query_mask=query_mask, key_mask=key_mask).values
        results.append([out, *torch.autograd.grad(out.square().sum(), [*inputs, layer.projection])])
    assert all(torch.equal(x, y) for other in results[1:] for x, y in zip(results[0], other, strict=True))


@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_extreme_inputs_stay_finite(scale):
    query, key = (tokens(heads=2, seed=seed).mul(scale).requires_grad_() for seed in (1, 2))
    value, layer = tokens(heads=2, seed=3).requires_grad_(), make(dtype=torch.float32)
    values = layer(query, key, value).values
    values.square().sum().backward()
    assert values.isfinite().all() and (values != 0).any(-1).all()
    assert all(x.grad.isfinite().all() for x in (query, key, value, layer.projection)) and (value.grad != 0).any()


def test_its_cost_grows_with_the_length():
    counts = []
    for n in (64, 128):
        x = tokens(heads=2, n=n).requires_grad_()
        with FlopCounterMode(display=False) as counter:
            make(n_positions=n, dtype=torch.float32)(x, x, x)
        counts.append(counter.get_total_flops())
    assert counts[1] == 2 * counts[0] and counts[0] >= 2 * 2 * 2 * 64 * 4 * 3 * 2  # at least the two projections


def test_each_head_learns_one_matrix():
    layer = LinformerAttention(4, 2, n_positions=100, n_projected=50)
    assert {name: p.shape for name, p in layer.named_parameters()} == {"projection": (2, 50, 100)}
    start = layer.projection.detach()
    assert float(start.std()) == pytest.approx(0.02, rel=0.05) and abs(float(start.mean())) < 0.001
    assert not torch.equal(start[0], start[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_number_types(dtype):
    x, layer = tokens(heads=2, dtype=torch.float64), make(dtype=torch.float32)
    exact, found = layer(x, x, x).values, layer(*[x.to(dtype)] * 3)
    assert found.values.dtype == found.density.dtype == dtype
    error = {torch.float32: 1e-4, torch.bfloat16: 0.3, torch.float64: 0.0}[dtype]
    torch.testing.assert_close(found.values.double(), exact, rtol=0, atol=error)
    found.values.sum().backward()
    assert layer.projection.grad.dtype == torch.float32


def test_dropout_acts_on_the_mixtures_and_in_training_only():
    x, layer = tokens(heads=2, n=32), make(n_positions=32, n_projected=1, dtype=torch.float32, dropout=0.5)
    plain = layer.eval()(x, x, x).values
    ratio = layer.train()(x, x, x).values / plain  # the one weight is 1: dropped, or doubled, for a whole row
    torch.testing.assert_close(ratio, ratio[..., :1].round().expand_as(ratio))
    assert set(ratio[..., 0].round().unique().tolist()) == {0.0, 2.0}
    undisturbed = make(n_positions=32, n_projected=1, dtype=torch.float32)
    undisturbed.load_state_dict(layer.state_dict())
    assert torch.equal(undisturbed(x, x, x).values, plain)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "replaced, words",
    [
        (dict(d_head=0), "d_head ≥ 1"),
        (dict(n_heads=0), "n_heads ≥ 1"),
        (dict(n_positions=0), "n_positions ≥ 1"),
        (dict(n_projected=0), "n_projected ≥ 1"),
        (dict(dropout=1.0), "dropout in"),
    ],
)
def test_bad_settings_are_refused(replaced, words):
    with pytest.raises(SbmtError, match=words):
        LinformerAttention(**dict(d_head=4, n_heads=2, n_positions=8) | replaced)


@pytest.mark.bad_input
def test_bad_inputs_are_refused():
    x, layer = tokens(), LinformerAttention(4, 3, n_positions=7)
    with pytest.raises(SbmtError, match="at most 7 keys, got 8"):
        layer(x, x, x)
    layer(x, x[:, :, :7], x[:, :, :7])  # eight queries may read seven keys
    with pytest.raises(SbmtError, match=r"3 heads, got \(2, 2, 8, 4\)"):
        layer(*[x[:, :2]] * 3)
    with pytest.raises(SbmtError, match="as many values as keys"):
        layer(x, x, x[:, :, :3])
    for name in ("query_mask", "key_mask"):
        with pytest.raises(SbmtError, match=f"{name} of shape"):
            layer(x, x[:, :, :7], x[:, :, :7], **{name: torch.ones(2, 5, dtype=torch.bool)})


def test_settings_are_shown():
    expected = "LinformerAttention(d_head=8, n_heads=2, n_positions=16, n_projected=4, dropout=0.1)"
    assert repr(LinformerAttention(8, 2, n_positions=16, n_projected=4, dropout=0.1)) == expected

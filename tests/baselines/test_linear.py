"""Linear attention is a quadratic form that it never writes down."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from sbmt.baselines.linear import LinearAttention
from sbmt.errors import SbmtError
from tests.baselines.test_full import masked_case
from tests.layers.inputs import tokens


def quadratic_form(query, key, value, mask):
    """Weights φ(q)·φ(k) as a dense matrix; rows without a key are zero."""
    query_features, key_features = (torch.nn.functional.elu(x) + 1 for x in (query, key))
    weights = query_features @ key_features.mT * mask
    total = weights.sum(-1, keepdim=True)
    return weights @ value / torch.where(total > 0, total, 1.0)


@pytest.mark.parametrize("hides_queries", [True, False])
@pytest.mark.parametrize("hides_keys", [True, False])
def test_values_and_gradients_equal_the_quadratic_form(hides_keys, hides_queries):
    inputs, query_mask, key_mask = masked_case()
    with torch.no_grad():
        for x in inputs[:2]:
            x[2, :, 0] = 0  # where the two branches of elu meet
    masks = dict(query_mask=query_mask if hides_queries else None, key_mask=key_mask if hides_keys else None)
    mask = torch.ones(3, 2, 5, 6, dtype=torch.bool)
    mask &= query_mask[:, None, :, None] if hides_queries else mask
    mask &= key_mask[:, None, None, :] if hides_keys else mask
    out = LinearAttention(4, 2)(*inputs, **masks, return_edges=True)
    dense = quadratic_form(*inputs, mask)
    torch.testing.assert_close(out.values, dense, rtol=0, atol=1e-12)
    for mine, theirs in zip(
        torch.autograd.grad(out.values.square().sum(), inputs),
        torch.autograd.grad(dense.square().sum(), inputs),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)
    assert torch.equal(out.edges.to_dense(), mask)
    has_pairs = mask.flatten(2).any(-1).double()
    assert torch.equal(out.density.double(), has_pairs) and torch.equal(out.expected_density.double(), has_pairs)


def test_what_stands_at_padding_is_never_seen():
    (query, key, value), query_mask, key_mask = masked_case()
    results = []
    for filler in (0.0, 1e300, float("nan"), float("-inf")):
        inputs = [
            x.detach().masked_fill(~mask[:, None, :, None], filler).requires_grad_()
            for x, mask in ((query, query_mask), (key, key_mask), (value, key_mask))
        ]
        out = LinearAttention(4, 2)(*inputs, query_mask=query_mask, key_mask=key_mask).values
        results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    assert all(torch.equal(x, y) for other in results[1:] for x, y in zip(results[0], other, strict=True))


@pytest.mark.parametrize("query_shift, key_shift", [(0, 0), (-500, 0), (0, -500), (-1000, -1000), ("first", "last")])
def test_features_that_underflow_are_told_apart(query_shift, key_shift):
    """Below 0 features are exponentials, which float32 cannot hold from -104 on."""
    shifts = {"first": torch.tensor([0.0, -500, -500, -500]), "last": torch.tensor([-500, -500, -500, 0.0])}
    query = (-tokens(seed=1, dtype=torch.float64).abs() + shifts.get(query_shift, query_shift)).requires_grad_()
    key = (-tokens(seed=2, dtype=torch.float64).abs() + shifts.get(key_shift, key_shift)).requires_grad_()
    value = tokens(seed=3, dtype=torch.float64)
    scores = (query[:, :, :, None] + key[:, :, None]).logsumexp(-1)  # log φ(q)·φ(k): batch heads n_queries n_keys
    expected = scores.softmax(-1) @ value
    found = LinearAttention(4, 3)(query, key, value).values
    in_float32 = LinearAttention(4, 3)(query.float(), key.float(), value.float()).values
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(in_float32.double(), expected, rtol=0, atol=1e-3)
    for mine, theirs in zip(
        torch.autograd.grad(found.square().sum(), [query, key]),
        torch.autograd.grad(expected.square().sum(), [query, key]),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e18])
def test_extreme_inputs_stay_finite(scale):
    query, key = (tokens(seed=seed).mul(scale).requires_grad_() for seed in (1, 2))
    value = tokens(seed=3).requires_grad_()
    values = LinearAttention(4, 3)(query, key, value).values
    values.square().sum().backward()
    assert values.isfinite().all() and (values != 0).any(-1).all()
    assert all(x.grad.isfinite().all() for x in (query, key, value)) and (value.grad != 0).any()


def test_its_cost_grows_with_the_length():
    counts = []
    for n in (64, 128):
        x = tokens(n=n)
        with FlopCounterMode(display=False) as counter:
            LinearAttention(4, 3)(x, x, x)
        counts.append(counter.get_total_flops())
    assert counts == [2 * 2 * 2 * 3 * n * 4 * 4 for n in (64, 128)]  # two products, multiply and add, 2 · 3 heads


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_number_types(dtype):
    x, layer = tokens(dtype=dtype), LinearAttention(4, 3)
    exact, found = layer(*[x.double()] * 3).values, layer(x, x, x)
    assert found.values.dtype == found.density.dtype == dtype
    rounding = torch.finfo(dtype).eps / 2 if dtype == torch.bfloat16 else 1e-6  # nothing but the output is rounded
    torch.testing.assert_close(found.values.double(), exact, rtol=rounding, atol=1e-6)


def test_autocast_does_not_round_the_features():
    x, layer = tokens(), LinearAttention(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x, x, x).values
    assert torch.equal(found, layer(x, x, x).values)


def test_it_has_nothing_to_learn():
    assert LinearAttention(4, 2).state_dict() == {}


def test_dropout_acts_in_training_only_and_on_the_output():
    x, layer = tokens(n=32), LinearAttention(4, 3, dropout=0.5)
    plain = LinearAttention(4, 3)(x, x, x).values
    dropped = layer(x, x, x).values
    kept = dropped != 0
    assert 0.3 < kept.double().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * plain[kept])
    torch.testing.assert_close(layer.eval()(x, x, x).values, plain)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(d_head=0, n_heads=2), "d_head ≥ 1"),
        (dict(d_head=4, n_heads=0), "n_heads ≥ 1"),
        (dict(d_head=4, n_heads=2, dropout=1.0), "dropout in"),
    ],
)
def test_bad_settings_are_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        LinearAttention(**arguments)


@pytest.mark.bad_input
def test_bad_inputs_are_refused():
    x, layer = tokens(), LinearAttention(4, 3)
    with pytest.raises(SbmtError, match="as many values as keys"):
        layer(x, x, x[:, :, :3])
    for name in ("query_mask", "key_mask"):
        with pytest.raises(SbmtError, match=f"{name} of shape"):
            layer(x, x, x, **{name: torch.ones(2, 5, dtype=torch.bool)})


def test_settings_are_shown():
    assert repr(LinearAttention(8, 2, dropout=0.1)) == "LinearAttention(d_head=8, n_heads=2, dropout=0.1)"

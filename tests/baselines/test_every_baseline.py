"""Tests baselines beyond the checks of the conformance kit."""

import pytest
import torch

from sbmt.baselines import (
    FullAttention,
    LinearAttention,
    LinformerAttention,
    NystromAttention,
    PerformerAttention,
    RandomMaskAttention,
    ReformerAttention,
)
from sbmt.counter_rng import draw_seed
from sbmt.errors import SbmtError
from tests.layers.inputs import seeded, tokens

SIZES = {
    FullAttention: {},
    LinearAttention: {},
    LinformerAttention: dict(n_positions=32, n_projected=3),
    NystromAttention: dict(n_landmarks=4),
    PerformerAttention: dict(n_features=16),
    RandomMaskAttention: {},
    ReformerAttention: dict(n_chunk=4),
}


def build(kind, **settings):
    torch.manual_seed(0)
    return kind(4, 3, **SIZES[kind] | settings)


@pytest.mark.parametrize(
    ("kind", "settings"), [(LinformerAttention, {}), (PerformerAttention, {}), (RandomMaskAttention, dict(sink=True))]
)
def test_reset_parameters_draws_like_the_constructor(kind, settings):
    layer, other = build(kind, **settings), build(kind, **settings)
    with torch.no_grad():
        for tensor in layer.state_dict().values():
            tensor.fill_(7.0)
    torch.manual_seed(0)
    layer.reset_parameters()
    assert layer.state_dict()
    for name, tensor in layer.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])


@pytest.mark.parametrize("scale", [1e2, 1e8])
@pytest.mark.parametrize("kind", [kind for kind in SIZES if kind not in (FullAttention, NystromAttention)])
def test_extreme_inputs_stay_finite(kind, scale):
    layer = build(kind)
    query, key = (tokens(seed=seed).mul(scale).requires_grad_() for seed in (1, 2))
    value = tokens(seed=3).requires_grad_()
    values = layer(query, key, value, generator=seeded()).values
    values.square().sum().backward()
    assert values.isfinite().all() and (value.grad != 0).any()
    assert all(x.grad is None or x.grad.isfinite().all() for x in (query, key, value, *layer.parameters()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", SIZES)
def test_number_types(kind, dtype):
    """With 16-bit inputs, only the output is rounded, except by full attention, Linformer and edge attention."""
    x, layer = tokens(dtype=dtype).requires_grad_(), build(kind)
    found, exact = layer(x, x, x, generator=seeded()), layer(*[x.detach().double()] * 3, generator=seeded()).values
    assert found.values.dtype == dtype
    is_rounded_inside = kind in (FullAttention, LinformerAttention, RandomMaskAttention)
    error = 1e-5 if dtype == torch.float32 else 0.05 if is_rounded_inside else 0.005
    torch.testing.assert_close(found.values.double(), exact, rtol=error, atol=error)
    if not is_rounded_inside:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(layer(x, x, x, generator=seeded()).values, found.values)
    (found.values.square().sum() + found.auxiliary_loss).backward()
    assert x.grad.dtype == dtype and x.grad.isfinite().all() and (x.grad != 0).any()
    assert all(parameter.grad.dtype == torch.float32 for parameter in layer.parameters())


@pytest.mark.parametrize("kind", [LinearAttention, PerformerAttention])
def test_dropout_of_attentions_without_weights_is_on_the_output(kind):
    x, layer = tokens(n=32), build(kind, dropout=0.5)
    plain, dropped = layer.eval()(x, x, x).values, layer.train()(x, x, x).values
    assert (plain != 0).all() and 0.3 < (dropped != 0).double().mean() < 0.7
    torch.testing.assert_close(dropped[dropped != 0], 2 * plain[dropped != 0])


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("kind", [NystromAttention, ReformerAttention])
def test_a_call_draws_one_seed_where_it_needs_one(kind, dropout):
    x, layer, generator, untouched = tokens(n=30), build(kind, dropout=dropout), seeded(), seeded()
    for is_training in (False, True):
        layer.train(is_training)(x, x, x, generator=generator)
        if kind is ReformerAttention or (is_training and dropout):
            draw_seed(untouched)
        assert torch.equal(generator.get_state(), untouched.get_state())


@pytest.mark.bad_input
def test_inputs_that_do_not_fit_the_layer_are_refused():
    x = tokens()
    with pytest.raises(SbmtError, match=r"width 4.*\(2, 3, 8, 3\)"):
        build(PerformerAttention)(x[..., :3], x[..., :3], x)
    with pytest.raises(SbmtError, match="at most n_positions = 7, got 8"):
        build(LinformerAttention, n_positions=7)(x, x, x)
    with pytest.raises(SbmtError, match=r"3 heads, got .*\(2, 2, 8, 4\)"):
        build(LinformerAttention)(*[x[:, :2]] * 3)


@pytest.mark.bad_input
def test_where_a_token_is_query_and_key_at_once():
    x, layer, mask = tokens(n=5), build(ReformerAttention), torch.ones(2, 5, dtype=torch.bool)
    other = mask & (torch.arange(5) < 3)
    layer(x, x, x, query_mask=mask)  # None means that all tokens are real
    with pytest.raises(SbmtError, match="the same tokens.*5 queries and 4 keys"):
        layer(x, x[:, :, :4], x[:, :, :4])
    for masks in (dict(query_mask=mask, key_mask=other), dict(key_mask=other), dict(query_mask=other)):
        with pytest.raises(SbmtError, match="the same tokens with the same mask"):
            layer(x, x, x, **masks)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "kind, name, value",
    [
        (FullAttention, "d_head", 0),
        *((kind, "dropout", 1.0) for kind in SIZES),
        *((kind, name, 0) for kind, sizes in SIZES.items() for name in ("n_heads", *sizes)),
        (NystromAttention, "n_iterations", 0),
        (ReformerAttention, "n_hashes", 0),
        *((RandomMaskAttention, name, -1) for name in ("mask_density", "window")),
    ],
)
def test_bad_settings_are_refused(kind, name, value):
    with pytest.raises(SbmtError, match=rf"{name}.*, got {value}"):
        kind(**dict(d_head=4, n_heads=2) | SIZES[kind] | {name: value})

"""What all baselines do, besides what the conformance kit asks of every attention."""

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
    RoutingAttention,
)
from sbmt.errors import SbmtError
from tests.baselines.cases import masked_case
from tests.layers.inputs import seeded, tokens

SIZES = {
    FullAttention: {},
    LinearAttention: {},
    LinformerAttention: dict(n_positions=32, n_projected=3),
    NystromAttention: dict(n_landmarks=4),
    PerformerAttention: dict(n_features=16),
    RandomMaskAttention: {},
    ReformerAttention: dict(n_chunk=4),
    RoutingAttention: dict(n_centroids=3),
}
every_baseline = pytest.mark.parametrize("kind", SIZES)


def build(kind, n_heads=3, **settings):
    torch.manual_seed(0)
    return kind(4, n_heads, **SIZES[kind] | settings)


@every_baseline
def test_what_stands_at_padding_is_never_seen(kind):
    """Not even numbers that a multiplication by zero would not remove."""
    (query, key, value), _, key_mask = masked_case(6, 6)
    layer, results = build(kind, 2).double(), []
    for filler in (0.0, 1e3, 1e300, float("nan"), float("-inf")):
        inputs = [
            x.detach().masked_fill(~key_mask[:, None, :, None], filler).requires_grad_() for x in (query, key, value)
        ]
        out = layer(*inputs, query_mask=key_mask, key_mask=key_mask, generator=seeded()).values
        leaves = [*inputs, *layer.parameters()]
        gradients = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
        results.append([out, *(x for x in gradients if x is not None)])
    assert all(torch.equal(x, y) for other in results[1:] for x, y in zip(results[0], other, strict=True))


@pytest.mark.parametrize("scale", [1e2, 1e8])
@pytest.mark.parametrize(
    "kind", [LinearAttention, LinformerAttention, PerformerAttention, ReformerAttention, RoutingAttention]
)
def test_extreme_inputs_stay_finite(kind, scale):
    layer = build(kind)
    query, key = (tokens(seed=seed).mul(scale).requires_grad_() for seed in (1, 2))
    value = tokens(seed=3).requires_grad_()
    values = layer(query, key, value, generator=seeded()).values
    values.square().sum().backward()
    assert values.isfinite().all() and (values != 0).any(-1).all() and (value.grad != 0).any()
    assert all(x.grad is None or x.grad.isfinite().all() for x in (query, key, value, *layer.parameters()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@every_baseline
def test_number_types(kind, dtype):
    """In 16 bits at most the output is rounded, except by full attention, Linformer and the attention along edges."""
    x, layer = tokens(dtype=dtype).requires_grad_(), build(kind)
    found, exact = layer(x, x, x, generator=seeded()), layer(*[x.detach().double()] * 3, generator=seeded()).values
    assert found.values.dtype == dtype
    is_rounded_inside = kind in (FullAttention, LinformerAttention, RandomMaskAttention)
    error = 1e-5 if dtype == torch.float32 else 0.05 if is_rounded_inside else 0.005
    torch.testing.assert_close(found.values.double(), exact, rtol=error, atol=error)
    (found.values.square().sum() + found.auxiliary_loss).backward()
    assert x.grad.dtype == dtype and x.grad.isfinite().all() and (x.grad != 0).any()
    assert all(parameter.grad.dtype == torch.float32 for parameter in layer.parameters())


@pytest.mark.parametrize(
    "kind", [LinearAttention, PerformerAttention, NystromAttention, ReformerAttention, RoutingAttention]
)
def test_autocast_rounds_nothing(kind):
    x, layer = tokens(), build(kind)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = layer(x, x, x, generator=seeded()).values
    assert torch.equal(found, layer(x, x, x, generator=seeded()).values)


@every_baseline
def test_dropout_acts_in_training_only(kind):
    x = tokens(n=32)
    layer, plain = build(kind, dropout=0.5), build(kind)
    expected = plain(x, x, x, generator=seeded()).values
    assert not torch.allclose(layer(x, x, x, generator=seeded()).values, expected)
    assert torch.equal(layer.eval()(x, x, x, generator=seeded()).values, expected)


@pytest.mark.parametrize("kind", [LinearAttention, PerformerAttention])
def test_dropout_of_attentions_without_weights_is_on_the_output(kind):
    x, layer = tokens(n=32), build(kind, dropout=0.5)
    plain = layer.eval()(x, x, x).values
    dropped = layer.train()(x, x, x).values
    kept = dropped != 0
    assert (plain != 0).all() and 0.3 < kept.double().mean() < 0.7
    torch.testing.assert_close(dropped[kept], 2 * plain[kept])


@pytest.mark.parametrize(
    "kind, shown, learned",
    [
        (FullAttention, "", []),
        (LinearAttention, "", []),
        (LinformerAttention, "n_positions=32, n_projected=3, ", ["projection"]),
        (NystromAttention, "n_landmarks=4, n_iterations=6, ", []),
        (PerformerAttention, "n_features=16, ", []),
        (ReformerAttention, "n_hashes=2, n_chunk=4, ", []),
        (RoutingAttention, "n_centroids=3, ", ["centroids"]),
    ],
)
def test_what_is_shown_and_learned(kind, shown, learned):
    layer = build(kind, dropout=0.1)
    assert f"d_head=4, n_heads=3, {shown}dropout=0.1" in repr(layer)
    assert [name for name, _ in layer.named_parameters()] == learned


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "kind, name, value",
    [
        *((FullAttention, name, 0) for name in ("d_head", "n_heads")),
        *((kind, "dropout", 1.0) for kind in (FullAttention, RandomMaskAttention, ReformerAttention, RoutingAttention)),
        *((LinformerAttention, name, 0) for name in ("n_positions", "n_projected")),
        (PerformerAttention, "n_features", 0),
        *((NystromAttention, name, 0) for name in ("n_landmarks", "n_iterations")),
        *((ReformerAttention, name, 0) for name in ("n_heads", "n_hashes", "n_chunk")),
        *((RoutingAttention, name, 0) for name in ("n_heads", "n_centroids")),
        *((RandomMaskAttention, name, -1) for name in ("n_heads", "mask_density", "window")),
    ],
)
def test_bad_settings_are_refused(kind, name, value):
    with pytest.raises(SbmtError, match=rf"{name}.*, got {value}"):
        kind(**dict(d_head=4, n_heads=2) | SIZES[kind] | {name: value})

"""Tests the drop-in replacement of torch.nn.MultiheadAttention(batch_first=True)."""

import pytest
import torch
from torch import nn

from sbmt.errors import SbmtError
from sbmt.layers import MultiHeadAttention
from tests.layers.inputs import seeded

D_MODEL, N_HEADS = 12, 3


def vectors(n=7, seed=0, batch=4):
    return torch.randn(batch, n, D_MODEL, generator=seeded(seed), dtype=torch.float64)


IS_PAD = torch.arange(7) >= torch.tensor([[7], [1], [4], [5]])
IS_REAL = ~IS_PAD


def make(seed=0, attention="full", **settings):
    torch.manual_seed(seed)
    return MultiHeadAttention(D_MODEL, N_HEADS, attention=attention, **settings).double()


def torch_twin(bias=True):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D_MODEL, N_HEADS, bias=bias, batch_first=True).double()
    with torch.no_grad():
        for parameter in theirs.parameters():  # PyTorch starts its biases at zero, which would hide a mix-up
            parameter.normal_()
    ours = MultiHeadAttention(D_MODEL, N_HEADS, bias=bias, attention="full").double()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


@pytest.mark.parametrize("is_padded, bias", [(True, True), (False, False)])
def test_full_attention_equals_torchs(is_padded, bias):
    ours, theirs = torch_twin(bias)
    query, key, value = vectors(n=5), vectors(seed=1), vectors(seed=2)
    is_pad = IS_PAD if is_padded else None
    inputs = [t.requires_grad_() for t in (query, key, value)]
    mine, expected = (layer(*inputs, key_padding_mask=is_pad, need_weights=False)[0] for layer in (ours, theirs))
    torch.testing.assert_close(mine, expected, rtol=0, atol=1e-10)
    for a, b in zip(
        torch.autograd.grad(mine.square().sum(), [*inputs, ours.in_proj_weight]),
        torch.autograd.grad(expected.square().sum(), [*inputs, theirs.in_proj_weight]),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


ATTENTIONS = [dict(attention="full"), dict(n_clusters=5), dict(preset="fitted", n_clusters=16)]


@pytest.mark.parametrize("settings", ATTENTIONS, ids=["full", "recommended", "fitted"])
def test_key_padding_also_masks_queries_if_there_are_as_many(settings):
    """Queries and keys may be one tensor, or two, as behind backward hooks and reentrant checkpoints."""
    layer, x, is_pad = make(**dict(attention="sbm") | settings), vectors().requires_grad_(), IS_PAD

    def attend(*inputs, **masks):
        output, attended = layer(*inputs, is_pad, generator=seeded(), **masks)
        return output, attended.density, attended.auxiliary_loss

    expected = attend(x, x, x)
    found = [attend(x, x.clone(), x.clone()), attend(x, x, x, query_padding_mask=is_pad)]
    found.append(torch.utils.checkpoint.checkpoint(attend, x, x, x, use_reentrant=True)[:2])  # a backward fit
    layer.register_full_backward_hook(lambda *_: None)
    found.append(attend(x, x, x))
    for other in found:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(other, expected, strict=False))
    whole, *_ = attend(x, x, x, query_padding_mask=torch.zeros_like(is_pad))
    assert (whole != expected[0])[is_pad].any() and (expected[0][is_pad] == layer.out_proj.bias).all()
    if "attention" in settings:  # the masks do not depend on the number of queries
        torch.testing.assert_close(layer(x[:, :5], x, x, is_pad)[0], whole[:, :5])


def test_the_second_result_can_be_omitted():
    layer, x = MultiHeadAttention(D_MODEL, N_HEADS).double(), vectors()
    kept, attended = layer(x, x, x, generator=seeded(), return_edges=True)
    output, nothing = layer(x, x, x, need_weights=False, generator=seeded())
    assert nothing is None and torch.equal(output, kept)
    assert attended.edges.shape == (4, N_HEADS, 7, 7)


def test_a_seed_gives_the_same_weights_as_torch():
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=True).double().state_dict()
    ours = make(3, batch_first=True, device="cpu", dtype=torch.float32).state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def encoder_layer(attention, n_heads=2):
    """Returns PyTorch's own layer in float64 with our attention in it, and the layer as it was."""
    torch.manual_seed(0)
    layer, twin = (nn.TransformerEncoderLayer(D_MODEL, n_heads, 8, dropout=0.0, batch_first=True) for _ in range(2))
    layer.self_attn = MultiHeadAttention(D_MODEL, n_heads, attention=attention)
    twin.load_state_dict(layer.state_dict(), strict=attention == "full")
    return layer.double(), twin.double()


@pytest.mark.parametrize("is_training, is_padded", [(True, True), (False, True), (False, False)])
def test_it_replaces_torchs_attention_in_an_encoder_layer(is_training, is_padded):
    ours, theirs = (layer.train(is_training) for layer in encoder_layer("full"))
    x, is_pad = vectors(), IS_PAD if is_padded else None
    with torch.set_grad_enabled(is_training):
        mine, expected = (layer(x, src_key_padding_mask=is_pad) for layer in (ours, theirs))
    real = IS_REAL | torch.tensor(not is_padded)
    torch.testing.assert_close(mine[real], expected[real], rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_layers, is_padded", [(None, False), (2, True)])
def test_torchs_fused_path_is_not_used(n_layers, is_padded):
    """In eval mode without gradients, PyTorch's layers would compute full attention from the projections."""
    layer, _ = encoder_layer("sbm")
    model = layer if n_layers is None else nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
    model.eval()
    attended = []
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            inner = module.attention.forward  # a hook would also record it, but hooks turn the fused path off
            module.attention.forward = lambda *args, inner=inner, **kw: attended.append(1) or inner(*args, **kw)
    with torch.no_grad():
        found = model(vectors(), src_key_padding_mask=IS_PAD if is_padded else None)
    assert len(attended) == (n_layers or 1) and found.isfinite().all()


def test_masks_of_zeros_and_minus_infinities_are_equivalent():
    layer, x, is_pad = make(), vectors(), IS_PAD
    added = torch.zeros(is_pad.shape).masked_fill(is_pad, -torch.inf)
    assert torch.equal(layer(x, x, x, added)[0], layer(x, x, x, is_pad)[0])
    with pytest.raises(SbmtError, match="key_padding_mask to contain only 0 and -inf, got other numbers"):
        layer(x, x, x, torch.where(is_pad, -1e9, 0.0))


@pytest.mark.parametrize("attention", ["full", "sbm"])
def test_padding_may_hold_anything(attention):
    layer, is_pad = MultiHeadAttention(8, 2, attention=attention), torch.arange(5) >= torch.tensor([[5], [3]])
    gradients = []
    for anything in (0.0, torch.nan, torch.inf):
        layer.zero_grad()
        x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0)).masked_fill(is_pad[..., None], anything)
        out, _ = layer(x, x, x, is_pad, generator=torch.Generator().manual_seed(0))
        out[~is_pad].square().sum().backward()
        gradients.append(layer.in_proj_weight.grad.clone())
    assert torch.equal(gradients[0], gradients[1]) and torch.equal(gradients[0], gradients[2])

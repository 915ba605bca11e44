"""A drop-in for torch.nn.MultiheadAttention(batch_first=True)."""

import inspect

import pytest
import torch
from torch import nn

from sbmt.errors import SbmtError
from sbmt.layers import MultiHeadAttention
from tests.layers.inputs import seeded

D_MODEL, N_HEADS = 12, 3


def vectors(n=7, seed=0, batch=4):
    return torch.randn(batch, n, D_MODEL, generator=seeded(seed), dtype=torch.float64)


def padding(n, lengths=(7, 1, 4, 5)):
    return torch.arange(n).expand(len(lengths), n) >= torch.tensor(lengths)[:, None]


def torch_twin(bias=True):
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(D_MODEL, N_HEADS, bias=bias, batch_first=True).double()
    with torch.no_grad():
        for parameter in theirs.parameters():  # PyTorch starts its biases at zero, which would hide a mix-up
            parameter.normal_()
    ours = MultiHeadAttention(D_MODEL, N_HEADS, bias=bias, attention="full").double()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def test_arguments_come_in_torchs_order():
    for ours, theirs in (
        (MultiHeadAttention.__init__, nn.MultiheadAttention.__init__),
        (MultiHeadAttention.forward, nn.MultiheadAttention.forward),
    ):
        positional = [
            (p.name, p.default)
            for p in inspect.signature(ours).parameters.values()
            if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        ]
        twin = {p.name: p.default for p in inspect.signature(theirs).parameters.values()}
        if "batch_first" in twin:
            twin["batch_first"] = True  # batch always comes first here
        assert positional == list(twin.items())


@pytest.mark.parametrize("is_padded, bias", [(True, True), (False, False)])
def test_full_self_attention_equals_torchs(is_padded, bias):
    ours, theirs = torch_twin(bias)
    x = vectors()
    is_pad = padding(7) if is_padded else None
    (mine, attended), (expected, _) = (layer(x, x, x, is_pad) for layer in (ours, theirs))
    real = ~padding(7) if is_padded else torch.ones(4, 7, dtype=torch.bool)
    torch.testing.assert_close(mine[real], expected[real], rtol=0, atol=1e-10)
    out_bias = torch.zeros(D_MODEL) if ours.out_proj.bias is None else ours.out_proj.bias
    assert (mine[~real] == out_bias).all()
    assert (attended.density == 1).all()


@pytest.mark.parametrize("is_padded", [True, False])
def test_full_cross_attention_equals_torchs(is_padded):
    ours, theirs = torch_twin()
    query, key, value = vectors(n=5), vectors(seed=1), vectors(seed=2)
    is_pad = padding(7) if is_padded else None
    inputs = [t.requires_grad_() for t in (query, key, value)]
    mine, expected = (layer(*inputs, key_padding_mask=is_pad, need_weights=False)[0] for layer in (ours, theirs))
    torch.testing.assert_close(mine, expected, rtol=0, atol=1e-10)
    for a, b in zip(
        torch.autograd.grad(mine.square().sum(), [*inputs, ours.in_proj_weight]),
        torch.autograd.grad(expected.square().sum(), [*inputs, theirs.in_proj_weight]),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


def test_query_padding_mask_defaults_to_the_keys_in_self_attention_only():
    ours, _ = torch_twin()
    x, other, is_pad = vectors(), vectors(), padding(7)
    by_default = ours(x, x, x, is_pad)[0]
    assert torch.equal(by_default, ours(x, x, x, is_pad, query_padding_mask=is_pad)[0])
    crossed = ours(other, x, x, is_pad)[0]  # equal numbers, but not the same tensor: two sequences
    assert torch.equal(crossed[~is_pad], by_default[~is_pad]) and not torch.equal(crossed, by_default)
    nothing_hidden = torch.zeros_like(is_pad)
    assert torch.equal(ours(x, x, x, is_pad, query_padding_mask=nothing_hidden)[0], crossed)


def test_weights_are_left_out_on_request():
    layer, x = MultiHeadAttention(D_MODEL, N_HEADS).double(), vectors()
    kept, attended = layer(x, x, x, generator=seeded(), return_edges=True)
    output, nothing = layer(x, x, x, need_weights=False, generator=seeded())
    assert nothing is None and torch.equal(output, kept)
    assert attended.edges.shape == (4, N_HEADS, 7, 7)


def test_sbm_heads_get_their_arguments():
    layer = MultiHeadAttention(D_MODEL, N_HEADS, 0.25, n_clusters=6, preset="faithful", window=4)
    inner = layer.attention
    assert inner.clusters.shape == (N_HEADS, 6, D_MODEL // N_HEADS)
    assert (inner.dropout, inner.sampler, inner.window) == (0.25, "fastrg", 4)


def make(seed=0, attention="full", **settings):
    torch.manual_seed(seed)
    return MultiHeadAttention(D_MODEL, N_HEADS, attention=attention, **settings).double()


def test_a_seed_gives_torchs_weights():
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(D_MODEL, N_HEADS, batch_first=True).double().state_dict()
    ours = make(3).state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_tied_start_copies_the_query_projection_and_nothing_else():
    free, tied = make().state_dict(), make(has_tied_start=True).state_dict()
    assert free.keys() == tied.keys()
    assert all(torch.equal(free[name], tied[name]) for name in free if name != "in_proj_weight")
    (query, key, value), (q, k, v) = (state["in_proj_weight"].chunk(3) for state in (free, tied))
    assert torch.equal(q, query) and torch.equal(k, query) and torch.equal(v, value) and not torch.equal(key, query)


def encoder_layer(attention, n_heads=2):
    """PyTorch's own layer, in float64, with our attention in it."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(D_MODEL, n_heads, 8, dropout=0.0, activation="gelu", batch_first=True)
    twin = nn.TransformerEncoderLayer(D_MODEL, n_heads, 8, dropout=0.0, activation="gelu", batch_first=True)
    layer.self_attn = MultiHeadAttention(D_MODEL, n_heads, attention=attention)
    if attention == "full":
        twin.load_state_dict(layer.state_dict())
    return layer.double(), twin.double()


@pytest.mark.parametrize("is_training, is_padded", [(True, True), (False, True), (False, False)])
def test_in_torchs_encoder_layer_it_attends_as_torch_does(is_training, is_padded):
    ours, theirs = (layer.train(is_training) for layer in encoder_layer("full"))
    x, is_pad = vectors(), padding(7) if is_padded else None
    with torch.set_grad_enabled(is_training):
        mine, expected = (layer(x, src_key_padding_mask=is_pad) for layer in (ours, theirs))
    real = ~padding(7) if is_padded else torch.ones(4, 7, dtype=torch.bool)
    torch.testing.assert_close(mine[real], expected[real], rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_layers, is_padded", [(None, False), (2, True)])
def test_torchs_fused_path_is_not_taken_around_it(n_layers, is_padded):
    """In eval mode without gradients PyTorch's layers would rather compute full attention from the projections."""
    layer, _ = encoder_layer("sbm")
    model = layer if n_layers is None else nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
    model.eval()
    attended = []
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            inner = module.attention.forward  # a hook would see it too, but hooks turn the fused path off
            module.attention.forward = lambda *args, inner=inner, **kw: attended.append(1) or inner(*args, **kw)
    with torch.no_grad():
        found = model(vectors(), src_key_padding_mask=padding(7) if is_padded else None)
    assert len(attended) == (n_layers or 1) and found.isfinite().all()


def test_masks_of_zeros_and_minus_infinities_mean_the_same():
    layer, x, is_pad = make(), vectors(), padding(7)
    added = torch.zeros(is_pad.shape).masked_fill(is_pad, -torch.inf)
    assert torch.equal(layer(x, x, x, added)[0], layer(x, x, x, is_pad)[0])
    with pytest.raises(SbmtError, match="key_padding_mask of 0 and -inf, got other numbers"):
        layer(x, x, x, torch.where(is_pad, -1e9, 0.0))


def test_torchs_arguments_are_taken():
    layer = MultiHeadAttention(24, 3, batch_first=True, kdim=24, vdim=None, device="cpu", dtype=torch.float64)
    assert {p.dtype for p in layer.parameters()} == {torch.float64}
    x = torch.randn(2, 5, 24, dtype=torch.float64)
    assert layer(x, x, x, average_attn_weights=True)[0].shape == x.shape


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"batch_first": False}, "batch_first=True"),
        ({"add_bias_kv": True}, "add_bias_kv=False"),
        ({"add_zero_attn": True}, "add_zero_attn=False"),
        ({"kdim": 8}, "kdim=24"),
        ({"vdim": 8}, "vdim=24"),
        ({"dtype": torch.int64}, "dtype as a floating-point type"),
        ({"clusters": 4}, "SBMAttention takes: .*n_clusters.*, got clusters"),
        ({"transform_heads": 3}, "transform_heads that can be called"),
    ],
)
def test_torchs_other_arguments_are_refused_by_name(arguments, words):
    with pytest.raises(SbmtError, match=words):
        MultiHeadAttention(24, 3, **arguments)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"is_causal": True}, "is_causal=False, since the mask has no order, got True"),
        ({"average_attn_weights": False}, "average_attn_weights=True"),
    ],
)
def test_what_no_mask_could_do_is_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        MultiHeadAttention(24, 3)(*torch.randn(3, 1, 4, 24), **arguments)


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

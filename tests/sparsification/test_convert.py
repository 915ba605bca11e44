"""Fitted masks in the place of full attention, with all weights as they were."""

import copy

import pytest
import torch
from torch import nn

import sbmt
from sbmt.layers import SBMAttention
from sbmt.sparsification.convert import DIFFERENT, fitted_layers

WIDTH, HEADS = 16, 2
SMALL = {"n_clusters": 16}


def tokens(n=12, batch=3, seed=0):
    return torch.randn(batch, n, WIDTH, generator=torch.Generator().manual_seed(seed))


def saturate(model):
    """Makes every edge certain, so that a mask holds all pairs."""
    for layer in fitted_layers(model).values():
        layer.log_start.fill_(30.0)


def torch_encoder(batch_first=True, n_layers=2):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=batch_first)
    return nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=batch_first).eval()


@pytest.mark.parametrize("batch_first", [True, False])
def test_with_all_edges_a_torch_encoder_answers_as_before(batch_first):
    torch.manual_seed(0)
    model = torch_encoder(batch_first)
    sparse = sbmt.sparsify(model, edges_per_query=4.0, **SMALL)
    saturate(sparse)
    x = tokens() if batch_first else tokens().transpose(0, 1)
    padding = torch.arange(12) >= torch.tensor([12, 7, 3])[:, None]
    for mask in (None, padding):
        wanted, found = (m(x, src_key_padding_mask=mask) for m in (model, sparse))
        real = torch.ones_like(padding) if mask is None else ~mask
        real = real if batch_first else real.T
        torch.testing.assert_close(found[real], wanted[real], rtol=0, atol=2e-5)
    assert len(fitted_layers(sparse)) == 2


def test_with_all_edges_a_model_of_ours_answers_as_before():
    torch.manual_seed(0)
    model = sbmt.SequenceClassifier(sbmt.Encoder(20, 12, d_model=WIDTH, d_hidden=16, n_heads=HEADS, n_layers=2,
                                                 attention="full"), 3, 16).eval()  # fmt: skip
    sparse = sbmt.sparsify(model, edges_per_query=4.0, **SMALL)
    saturate(sparse)
    ids = torch.randint(20, (3, 12))
    mask = torch.arange(12) < torch.tensor([12, 7, 3])[:, None]
    for is_real in (None, mask):
        torch.testing.assert_close(sparse(ids, is_real).values, model(ids, is_real).values, rtol=0, atol=2e-5)


def test_the_model_itself_is_left_alone():
    model = torch_encoder()
    before = copy.deepcopy(model.state_dict())
    sparse = sbmt.sparsify(model, edges_per_query=4.0, **SMALL)
    saturate(sparse)
    for p in sparse.parameters():
        p.data.add_(1.0)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert not any(isinstance(m, SBMAttention) for m in model.modules())


def test_weights_of_the_network_are_kept_and_those_of_masks_added():
    model = torch_encoder()
    sparse = sbmt.sparsify(model, edges_per_query=4.0, **SMALL)
    old, new = model.state_dict(), sparse.state_dict()
    assert all(torch.equal(new[name], t) for name, t in old.items())
    assert {name.split(".attention.")[1].split(".")[0] for name in set(new) - set(old)} == {
        "clusters",
        "log_rate",
        "log_start",
        "node_mlp",
    }


def test_settings_are_those_of_the_preset_but_for_what_is_said():
    layer = next(iter(fitted_layers(sbmt.sparsify(torch_encoder(), edges_per_query=5.0)).values()))
    assert (layer.learning, layer.reweight, layer.membership) == ("likelihood", True, "crossed")
    assert layer.sink is None and layer.window is None and layer.n_clusters == DIFFERENT["n_clusters"]
    assert layer.edges_per_query == 5.0
    layer = next(iter(fitted_layers(sbmt.sparsify(torch_encoder(), edges_per_query=5.0, window=4)).values()))
    assert layer.window == 4


@pytest.mark.parametrize("is_training", [True, False])
def test_single_attentions_and_modes(is_training):
    theirs = nn.MultiheadAttention(WIDTH, HEADS, dropout=0.3, batch_first=True).train(is_training)
    ours = sbmt.sparsify(theirs, edges_per_query=4.0, **SMALL)
    assert isinstance(ours, sbmt.MultiHeadAttention)
    assert ours.training is ours.attention.training is is_training and ours.attention.dropout == 0.3
    full = sbmt.build_attention("full", d_head=8, n_heads=2).train(is_training)
    assert sbmt.sparsify(full, edges_per_query=4.0, **SMALL).training is is_training


def test_attention_without_biases_and_in_double_precision():
    theirs = nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True, dtype=torch.float64).eval()
    ours = sbmt.sparsify(theirs, edges_per_query=4.0, **SMALL)
    saturate(ours)
    x = tokens().double()
    wanted, _ = theirs(x, x, x, need_weights=False)
    found, attended = ours(x, x, x)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-10)
    assert attended.density.mean() == 1


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (nn.Linear(3, 3), {}, "a model with full attention, got Linear without any"),
        (nn.MultiheadAttention(16, 2, add_bias_kv=True), {}, "without bias_k"),
        (nn.MultiheadAttention(16, 2, add_zero_attn=True), {}, "without add_zero_attn"),
        (nn.MultiheadAttention(16, 2, kdim=8), {}, "keys and values as wide as queries"),
        (sbmt.build_attention("full", d_head=8, n_heads=2, is_log_scaled=True), {}, "not scaled by ln n"),
        (nn.MultiheadAttention(16, 2), {"edges_per_query": 0.0}, "edges_per_query > 0"),
        (nn.MultiheadAttention(16, 2), {"n_cluster": 4}, "n_cluster"),
    ],
)
def test_what_cannot_be_sparsified_is_refused(model, arguments, words):
    with pytest.raises(sbmt.SbmtError, match=words):
        sbmt.sparsify(model, **{"edges_per_query": 4.0} | arguments)

"""Tests the replacement of full attention by fitted masks, with all weights unchanged."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import sbmt
from sbmt.layers import SBMAttention
from sbmt.sparsification import measure_masks
from sbmt.sparsification.convert import DIFFERENT, fitted_layers

WIDTH, HEADS = 16, 2
SMALL = {"n_clusters": 16}


def tokens(n=12, batch=3, seed=0):
    return torch.randn(batch, n, WIDTH, generator=torch.Generator().manual_seed(seed))


def saturate(model):
    """Makes every edge certain, so that a mask contains all pairs."""
    for layer in fitted_layers(model).values():
        layer.log_start.fill_(30.0)


def torch_encoder(batch_first=True, n_layers=2):
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=batch_first)
    return nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=batch_first).eval()


@pytest.mark.parametrize("batch_first", [True, False])
def test_with_all_edges_a_torch_encoder_gives_the_same_outputs(batch_first):
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


@pytest.mark.parametrize("causal", [False, True])
def test_with_all_edges_a_model_of_ours_gives_the_same_outputs(causal):
    torch.manual_seed(0)
    sizes = dict(d_model=WIDTH, d_hidden=16, n_heads=HEADS, n_layers=2, attention="full")
    encoder = sbmt.Encoder(20, 12, **sizes, **{"causal": True, "positions": "rotary"} if causal else {})
    model = (sbmt.CausalLM(encoder) if causal else sbmt.SequenceClassifier(encoder, 3, 16)).eval()
    sparse, ids = sbmt.sparsify(model, edges_per_query=4.0, **SMALL), torch.randint(20, (3, 12))
    saturate(sparse)
    for is_real in (None,) if causal else (None, torch.arange(12) < torch.tensor([12, 7, 3])[:, None]):
        torch.testing.assert_close(sparse(ids, is_real).values, model(ids, is_real).values, rtol=0, atol=2e-5)
    report = measure_masks(sparse, [ids])
    assert report.mean("attention_mass") == pytest.approx(1) and report.mean("density") == pytest.approx(1)


def test_weights_stay_the_same_masks_are_added_and_the_model_itself_does_not_change():
    model = torch_encoder()
    model.layers[0].self_attn.requires_grad_(False)
    model.layers[1].self_attn.out_proj.bias.requires_grad_(False)
    before = copy.deepcopy(model.state_dict())
    sparse = sbmt.sparsify(model, edges_per_query=4.0, **SMALL)
    new = dict(sparse.named_parameters())
    for name, p in model.named_parameters():
        kept = new.pop(name)
        assert torch.equal(kept, p) and kept.requires_grad == p.requires_grad
    assert {name.split(".attention.")[1].split(".")[0] for name in new} == {"clusters", "log_rate", "node_mlp"}
    assert all(p.requires_grad for p in new.values())
    for p in sparse.parameters():
        p.data.add_(1.0)
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())
    assert not any(isinstance(m, SBMAttention) for m in model.modules())


def test_settings_are_those_of_the_preset_except_for_given_ones():
    layer = next(iter(fitted_layers(sbmt.sparsify(torch_encoder(), edges_per_query=5.0)).values()))
    assert (layer.learning, layer.reweight, layer.membership) == ("likelihood", 0.005, "crossed")
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


def test_an_attention_in_several_places_stays_one():
    attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    sparse = sbmt.sparsify(nn.ModuleList([attention] * 3), edges_per_query=4.0, **SMALL)
    assert sparse[0] is sparse[1] is sparse[2] and isinstance(sparse[0], sbmt.MultiHeadAttention)
    for one in (attention, sbmt.build_attention("full", d_head=8, n_heads=2)):
        sparse = sbmt.sparsify(nn.ModuleList(nn.ModuleList([one]) for _ in range(2)), edges_per_query=4.0, **SMALL)
        assert sparse[0][0] is sparse[1][0] and len(fitted_layers(sparse)) == 1


def test_tied_projections_stay_tied():
    model = nn.ModuleList([nn.MultiheadAttention(WIDTH, HEADS) for _ in range(2)])
    model[1].in_proj_weight = model[0].in_proj_weight
    sparse = sbmt.sparsify(model, edges_per_query=4.0, **SMALL)
    assert sparse[0].in_proj_weight is sparse[1].in_proj_weight is not model[0].in_proj_weight


class Different(nn.MultiheadAttention):
    """A subclass that might compute a different attention."""


class DifferentFull(sbmt.baselines.FullAttention):
    """A module that might do anything."""


def adapt(attention):
    """Does what an adapter does: replaces a projection by another module."""
    attention.out_proj = nn.Sequential(attention.out_proj, nn.Identity())


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "change",
    [
        adapt,
        lambda attention: parametrizations.weight_norm(attention.out_proj),
        lambda attention: parametrizations.spectral_norm(attention, "in_proj_weight"),
        lambda attention: prune.random_unstructured(attention, "in_proj_weight", 0.5),
    ],
)
def test_projections_that_are_computed_are_refused(change):
    attention = nn.MultiheadAttention(WIDTH, HEADS)
    change(attention)
    with pytest.raises(sbmt.SbmtError, match=r"plain weights, got .* in model\.0\.1: merge adapters"):
        sbmt.sparsify(nn.Sequential(nn.Sequential(nn.Identity(), attention)), edges_per_query=4.0, **SMALL)


@pytest.mark.bad_input
@pytest.mark.parametrize("attention", [Different(WIDTH, HEADS), DifferentFull(8, 2)])
def test_subclasses_are_refused(attention):
    words = f"itself, not a subclass, got {type(attention).__name__} as "
    with pytest.raises(sbmt.SbmtError, match=f"{words}model.1"):
        sbmt.sparsify(nn.Sequential(nn.MultiheadAttention(WIDTH, HEADS), attention), edges_per_query=4.0, **SMALL)
    with pytest.raises(sbmt.SbmtError, match=f"{words}model"):
        sbmt.sparsify(attention, edges_per_query=4.0, **SMALL)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (nn.Linear(3, 3), {}, "a model with full attention, got Linear, which has none"),
        (nn.MultiheadAttention(16, 2, add_bias_kv=True), {}, "without add_bias_kv"),
        (nn.MultiheadAttention(16, 2, add_zero_attn=True), {}, "add_zero_attn"),
        (nn.MultiheadAttention(16, 2, kdim=8), {}, "kdim or vdim, got model with one of them"),
        (nn.MultiheadAttention(16, 2), {"edges_per_query": 0.0}, "edges_per_query > 0"),
        (nn.MultiheadAttention(16, 2), {"n_cluster": 4}, "n_cluster"),
    ],
)
def test_what_cannot_be_sparsified_is_refused(model, arguments, words):
    with pytest.raises(sbmt.SbmtError, match=words):
        sbmt.sparsify(model, **{"edges_per_query": 4.0} | arguments)

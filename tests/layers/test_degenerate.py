"""Tests inputs without keys that the conformance kit does not cover."""

import pytest
import torch

import sbmt
from sbmt.layers import MultiHeadAttention
from tests.layers.inputs import EVERY

NO_TOKENS = torch.zeros(0, 5, dtype=torch.int64)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("is_training", [True, False])
def test_an_empty_batch(is_training, name):
    """As in torch's own layer, outputs are empty and gradients are zeros, so sharded training continues."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(8, 2, **EVERY[name]).train(is_training)
    x = torch.zeros(0, 5, 8, requires_grad=True)
    output, attended = layer(x, x, x, torch.zeros(0, 5, dtype=torch.bool), return_edges=True)
    assert output.shape == x.shape and attended.values.shape == (0, 2, 5, 4) and attended.edges is None
    assert attended.density.shape == attended.expected_density.shape == (0, 2) and attended.auxiliary_loss == 0
    (output.sum() + attended.auxiliary_loss).backward()
    assert x.grad.shape == x.shape and all(not p.grad.any() for p in layer.parameters())
    query = torch.zeros(0, 2, 3, 4)
    assert layer.attention(query, query, query).values.shape == query.shape


@pytest.mark.bad_input
@pytest.mark.parametrize("name", EVERY)
def test_shapes_of_an_empty_batch_must_fit(name):
    query, key = torch.zeros(0, 2, 6, 4), torch.zeros(0, 2, 6, 4)
    with pytest.raises(sbmt.SbmtError, match="one value per key"):
        MultiHeadAttention(8, 2, **EVERY[name]).attention(query, key, key[:, :, :3])


@pytest.mark.parametrize("kind", ["TokenTagger", "SequenceClassifier", "SentenceClassifier", "MaskedLM", "CausalLM"])
@pytest.mark.parametrize("name", ["fitted", "full"])
def test_a_model_of_an_empty_batch(kind, name):
    causal = {"causal": True} if kind == "CausalLM" else {}
    sizes = dict(d_model=8, d_hidden=8, n_heads=2, n_layers=2)
    encoder = sbmt.Encoder(11, 16, **sizes, **EVERY[name] | causal)
    more = {"SequenceClassifier": (3, 8), "TokenTagger": (3,), "SentenceClassifier": (3,)}.get(kind, ())
    model = getattr(sbmt, kind)(encoder, *more)
    for mask in (None, NO_TOKENS.bool()):
        out = model(NO_TOKENS, mask)
        assert out.values.shape == model(NO_TOKENS.new_zeros(2, 5)).values[:0].shape
        assert sbmt.density_penalty(out.attention) == 0
        (out.values.sum() + sbmt.auxiliary_loss(out)).backward()
    if kind == "CausalLM":
        assert model.generate(NO_TOKENS, 2).shape == (0, 7)


def test_no_pairs_of_documents():
    encoder = sbmt.Encoder(11, 16, d_model=8, d_hidden=8, n_heads=2, n_layers=1, attention="full")
    assert sbmt.DualEncoder(encoder, 3, 8)(NO_TOKENS[:, None].expand(0, 2, 5)).values.shape == (0, 3)

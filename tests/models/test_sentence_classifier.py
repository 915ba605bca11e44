"""A label per sentence: both ways to pool, by hand, and the pipeline's head."""

import pytest
import torch
from torch import nn

from sbmt import SbmtError
from sbmt.models import Encoder, SentenceClassifier
from sbmt.models.sentence_classifier import first_of_real
from tests.layers.inputs import seeded

VOCABULARY, N, D_MODEL = 11, 9, 8
MASK = torch.arange(N) < torch.tensor([[N], [4], [1], [6]])
MASK[3, :2] = False  # padding in front, too
FIRST, COUNT = [0, 0, 0, 2], [9, 4, 1, 4]
every_pooling = pytest.mark.parametrize("pooling", ["mean", "first"])
every_attention = pytest.mark.parametrize("attention", ["full", "sbm"])


def make(pooling="mean", attention="full", **settings):
    torch.manual_seed(0)
    arguments = dict(d_model=D_MODEL, d_hidden=16, n_heads=2, n_layers=2, embedding_std=1.0, attention=attention)
    encoder = Encoder(VOCABULARY, N, **arguments | ({"n_clusters": 4, "window": 2} if attention == "sbm" else {}))
    return SentenceClassifier(encoder, 3, pooling=pooling, **settings)


def ids(seed=0):
    return torch.randint(VOCABULARY, (4, N), generator=seeded(seed))


@every_pooling
@every_attention
def test_logits_by_hand(attention, pooling):
    model = make(pooling, attention).double()
    encoded = model.encoder(ids(), MASK, generator=seeded()).values
    rows = [sum(encoded[b, i] for i in range(N) if MASK[b, i]) / COUNT[b] for b in range(4)]
    if pooling == "first":
        rows = [encoded[b, FIRST[b]] for b in range(4)]
    _, inner, _, _, outer = model.head
    expected = torch.tanh(torch.stack(rows) @ inner.weight.T + inner.bias) @ outer.weight.T + outer.bias
    out = model(ids(), MASK, generator=seeded(), return_edges=True)
    assert out.values.shape == (4, 3) and [a.edges.shape for a in out.attention] == [(4, 2, N, N)] * 2
    torch.testing.assert_close(out.values, expected, rtol=0, atol=1e-12)


def test_the_first_real_token():
    x = torch.randn(4, N, D_MODEL, generator=seeded())
    torch.testing.assert_close(first_of_real(x, MASK), torch.stack([x[b, i] for b, i in enumerate(FIRST)]))
    assert torch.equal(first_of_real(x, None), x[:, 0])
    assert not first_of_real(x, torch.zeros_like(MASK)).any()


def test_the_head_is_the_pipelines():
    head = [(x.in_features, x.out_features) if isinstance(x, nn.Linear) else type(x) for x in make().head]
    assert head == [nn.Dropout, (D_MODEL, D_MODEL), nn.Tanh, nn.Dropout, (D_MODEL, 3)]
    assert [x.p for x in make(dropout=0.3).head if isinstance(x, nn.Dropout)] == [0.3, 0.3]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("n_labels", "settings", "words"),
    [
        (0, {}, "n_labels ≥ 1"),
        (2, {"pooling": "max"}, "pooling among 'mean', 'first', got 'max'"),
        (2, {"dropout": 1.0}, r"dropout in \[0, 1\), got 1.0"),
    ],
)
def test_other_heads_are_refused(n_labels, settings, words):
    with pytest.raises(SbmtError, match=words):
        SentenceClassifier(make().encoder, n_labels, **settings)

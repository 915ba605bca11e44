"""Two documents, one encoder: what the head sees, by hand."""

import pytest
import torch
from torch import nn

from sbmt import SbmtError
from sbmt.models import DualEncoder, Encoder
from tests.layers.inputs import seeded

N, D_MODEL = 7, 8
LENGTHS = torch.tensor([[7, 3], [5, 7], [1, 6]])
MASK = torch.arange(N) < LENGTHS[..., None]  # 3 pairs, 2 documents, N tokens


def make(pair_features="products", **settings):
    torch.manual_seed(0)
    sizes = dict(d_model=D_MODEL, d_hidden=16, n_heads=2, n_layers=2)
    encoder = Encoder(11, N, **sizes, embedding_std=1.0, attention="full")
    return DualEncoder(encoder, 3, 6, pair_features=pair_features, **settings)


def ids(seed=0):
    return torch.randint(11, (3, 2, N), generator=seeded(seed))


def means(model, tokens, divisors):
    """The two documents' means, one document at a time."""
    found = torch.zeros(3, 2, D_MODEL)
    for pair in range(3):
        for side in range(2):
            n = int(LENGTHS[pair, side])
            values = model.encoder(tokens[pair, side, :n][None]).values[0]
            found[pair, side] = values.sum(0) / (divisors or n)
    return found.unbind(1)


@pytest.mark.parametrize("is_padded_mean", [False, True])
@pytest.mark.parametrize("pair_features", ["products", "concatenation"])
def test_the_head_compares_the_means_of_documents_that_were_read_alone(pair_features, is_padded_mean):
    model = make(pair_features, is_padded_mean=is_padded_mean)
    x, y = means(model, ids(), N if is_padded_mean else None)
    parts = [x, y, x * y, x - y] if pair_features == "products" else [x, y]
    torch.testing.assert_close(model(ids(), MASK).values, model.head(torch.cat(parts, 1)))


def test_heads_are_those_of_the_two_pipelines():
    def layers(head):
        return [(x.in_features, x.out_features) if isinstance(x, nn.Linear) else type(x) for x in head]

    assert layers(make().head) == [(4 * D_MODEL, 6), nn.ReLU, (6, 3)]
    assert layers(make("concatenation").head) == [(2 * D_MODEL, 6), nn.ReLU, (6, 3), nn.ReLU, (3, 3)]
    n_shared = sum(p.numel() for p in make().encoder.parameters())
    n_head = (4 * D_MODEL + 1) * 6 + 7 * 3
    assert sum(p.numel() for p in make().parameters()) == n_shared + n_head  # one encoder, not two


def test_the_order_of_a_pair_counts():
    model = make()
    swapped = model(ids().flip(1), MASK.flip(1)).values
    assert not torch.allclose(swapped, model(ids(), MASK).values)


@pytest.mark.bad_input
@pytest.mark.parametrize("shape", [(3, N), (3, 1, N), (3, 3, N), (2, N, 2)])
def test_documents_that_are_no_pairs_are_refused(shape):
    with pytest.raises(SbmtError, match=r"tokens of shape \(batch, 2, n\)"):
        make()(torch.zeros(shape, dtype=torch.int64))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "words"), [((3, 6, "sum"), "pair_features among"), ((0, 6, "products"), "n_labels ≥ 1")]
)
def test_other_heads_are_refused(settings, words):
    n_labels, d_hidden, pair_features = settings
    with pytest.raises(SbmtError, match=words):
        DualEncoder(make().encoder, n_labels, d_hidden, pair_features=pair_features)

"""The encoder by hand, what a classifier pools, and where dropout and randomness enter."""

import pytest
import torch

from sbmt.models import Encoder, SequenceClassifier, TokenTagger
from sbmt.models.classifier import mean_of_real
from tests.layers.inputs import seeded

VOCABULARY, N, D_MODEL = 11, 9, 8
LENGTHS = torch.tensor([[N], [4], [1]])
MASK = torch.arange(N).expand(3, N) < LENGTHS
SIZES = dict(d_model=D_MODEL, d_hidden=16, n_heads=2, n_layers=2)


def make(max_length=N, **settings):
    torch.manual_seed(0)
    return Encoder(VOCABULARY, max_length, **SIZES | dict(embedding_std=1.0, attention="full") | settings)


def ids():
    return torch.randint(VOCABULARY, (3, N), generator=seeded())


def test_full_attention_without_positions_knows_no_order():
    tokens = ids()
    order = torch.randperm(N, generator=seeded())
    blind, sighted = make(max_length=None), make()
    torch.testing.assert_close(blind(tokens[:, order]).values, blind(tokens).values[:, order])
    assert not torch.allclose(sighted(tokens[:, order]).values, sighted(tokens).values[:, order])


def test_a_block_is_pre_norm_with_residuals():
    model = make().double()
    x = torch.randn(3, N, D_MODEL, generator=seeded(), dtype=torch.float64)
    block = model.blocks[0]
    y = block.attention_norm(x)
    between = x + block.attention(y, y, y)[0]
    expected = between + block.mlp(block.mlp_norm(between))
    torch.testing.assert_close(block(x)[0], expected, rtol=0, atol=1e-12)
    embedded = model.token_embedding(ids()) + model.position_embedding.weight
    through = model.norm(model.blocks[1](block(embedded)[0])[0])
    torch.testing.assert_close(model(ids()).values, through, rtol=0, atol=1e-12)


def test_settings_reach_every_layer():
    distance = (torch.arange(N)[:, None] - torch.arange(N)).abs()
    model = make(attention="sbm", n_clusters=4, window=2, attention_dropout=0.3)
    for layer in model(ids(), return_edges=True).attention:
        assert layer.edges.to_dense()[:, :, distance <= 1].all()
    assert [block.attention.attention.dropout for block in model.blocks] == [0.3, 0.3]


def test_seeds_fix_training_and_eval_switches_dropout_off():
    model = TokenTagger(make(dropout=0.3, attention_dropout=0.3), 3)
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(model(ids(), MASK).values)
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    model.eval()
    assert torch.equal(*(model(ids(), MASK, generator=seeded()).values for _ in range(2)))


def test_dropout_follows_the_embedding_the_attentions_and_the_mlps():
    model = make(dropout=0.3)
    calls = []
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.register_forward_hook(lambda part, *_: calls.append(part.p))
    model(ids())
    assert calls == [0.3] * (1 + 3 * SIZES["n_layers"])  # a block's: inside its MLP, and on both residual branches


def test_layers_and_calls_draw_different_masks():
    model = make(attention="sbm", n_clusters=4).eval()
    generator = seeded()
    masks = [
        layer.edges.to_dense()
        for _ in range(2)
        for layer in model(ids(), None, generator=generator, return_edges=True).attention
    ]
    assert all(not torch.equal(masks[a], masks[b]) for a in range(4) for b in range(a))


def test_a_mean_is_over_real_tokens_or_over_all_places():
    x = torch.randn(4, N, D_MODEL, generator=seeded())
    mask = torch.arange(N) < torch.tensor([[N], [4], [1], [0]])
    sums = torch.stack([x[b, :n].sum(0) for b, n in enumerate((N, 4, 1, 0))])
    torch.testing.assert_close(mean_of_real(x, mask), sums / torch.tensor([[N], [4], [1], [1]]))
    torch.testing.assert_close(mean_of_real(x, mask, True), sums / N)
    for is_padded_mean in (False, True):
        torch.testing.assert_close(mean_of_real(x, None, is_padded_mean), x.mean(1))


@pytest.mark.parametrize("is_padded_mean", [False, True])
def test_a_classifier_pools_real_tokens_only(is_padded_mean):
    model = SequenceClassifier(make(), 5, 6, is_padded_mean=is_padded_mean)
    encoded = model.encoder(ids(), MASK).values
    sums = torch.stack([encoded[b, : int(LENGTHS[b])].sum(0) for b in range(3)])
    torch.testing.assert_close(model(ids(), MASK).values, model.head(sums / (N if is_padded_mean else LENGTHS)))

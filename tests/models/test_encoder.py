"""The encoder by hand: tokens of one id, of several ids, and vectors; blocks; where dropout and randomness enter."""

import pytest
import torch

from sbmt import SbmtError
from sbmt.models import Encoder
from tests.layers.inputs import seeded

VOCABULARY, N, D_MODEL = 11, 9, 8
SIZES = dict(d_model=D_MODEL, d_hidden=16, n_heads=2, n_layers=2)


def make(max_length=N, vocab_size=VOCABULARY, **settings):
    torch.manual_seed(0)
    return Encoder(vocab_size, max_length, **SIZES | dict(embedding_std=1.0, attention="full") | settings)


def ids(*shape):
    return torch.randint(VOCABULARY, shape or (3, N), generator=seeded())


def embedded(model, tokens):
    """What the first block is given."""
    seen = []
    handle = model.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model(tokens)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("n_ids", [1, 2])
def test_ids_are_looked_up_and_those_of_one_token_concatenated(n_ids):
    model, tokens = make(None, n_ids=n_ids), ids(3, 5, n_ids)
    table = model.token_embedding.weight
    by_hand = torch.cat([table[tokens[..., i]] for i in range(n_ids)], -1)
    assert table.shape == (VOCABULARY, D_MODEL // n_ids)
    assert torch.equal(embedded(model, tokens if n_ids > 1 else tokens[..., 0]), by_hand)


def test_vectors_are_mapped():
    model, tokens = make(None, None, d_input=3), torch.randn(2, 5, 3, generator=seeded())
    by_hand = sum(tokens[..., i, None] * model.token_embedding.weight[:, i] for i in range(3))
    torch.testing.assert_close(embedded(model, tokens), by_hand)


@pytest.mark.statistical(share=0.001)
def test_embeddings_have_the_given_initial_standard_deviation(judge):
    """The sum of squares over the variance has a chi-square law; of one linear map's entries, given its weights."""
    from scipy.stats import chi2

    p_values = []
    for model, std in (
        (make(None, 400, n_ids=2, embedding_std=0.3), 0.3),
        (make(None, None, d_input=100, embedding_std=0.3), 0.03),
    ):
        entries = model.token_embedding.weight.detach().double()
        law, statistic = chi2(entries.numel()), float((entries / std).pow(2).sum())
        p_values.append(2 * min(law.cdf(statistic), law.sf(statistic)))
    judge(p_values)


def test_a_block_is_pre_norm_with_residuals():
    model = make().double()
    x = torch.randn(3, N, D_MODEL, generator=seeded(), dtype=torch.float64)
    block = model.blocks[0]
    y = block.attention_norm(x)
    between = x + block.attention(y, y, y)[0]
    expected = between + block.mlp(block.mlp_norm(between))
    torch.testing.assert_close(block(x)[0], expected, rtol=0, atol=1e-12)
    first = model.token_embedding(ids()) + model.position_embedding.weight
    through = model.norm(model.blocks[1](block(first)[0])[0])
    torch.testing.assert_close(model(ids()).values, through, rtol=0, atol=1e-12)


def test_settings_reach_every_layer():
    distance = (torch.arange(N)[:, None] - torch.arange(N)).abs()
    model = make(attention="sbm", n_clusters=4, window=2, attention_dropout=0.3)
    for layer in model(ids(), return_edges=True).attention:
        assert layer.edges.to_dense()[:, :, distance <= 1].all()
    assert [block.attention.attention.dropout for block in model.blocks] == [0.3, 0.3]


def test_dropout_follows_the_embedding_the_attentions_and_the_mlps():
    model = make(dropout=0.3)
    calls = []
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.register_forward_hook(lambda part, *_: calls.append(part.p))
    model(ids())
    assert calls == [0.3] * (1 + 3 * SIZES["n_layers"])  # a block's: inside its MLP, and on both residual branches


def test_layers_and_calls_draw_different_masks():
    model, generator = make(attention="sbm", n_clusters=4).eval(), seeded()
    calls = [model(ids(), generator=generator, return_edges=True) for _ in range(2)]
    masks = [layer.edges.to_dense() for call in calls for layer in call.attention]
    assert all(not torch.equal(masks[a], masks[b]) for a in range(4) for b in range(a))


IDS, VECTORS = torch.zeros(2, 5, 1, dtype=torch.int64), dict(vocab_size=None, d_input=3)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "tokens", "words"),
    [
        ({}, IDS, r"int64 tensor \(batch, n ≥ 1\), got torch.int64 \(2, 5, 1\)"),
        ({}, IDS[..., 0].float(), "int64 tensor .*got torch.float32"),
        ({}, IDS[..., 0] - 1, r"token ids must be in \[0, 11\), got ids from -1"),
        (dict(max_length=4), IDS[..., 0], "at most 4 tokens, got 5"),
        (dict(n_ids=2), IDS[..., 0], r"n ≥ 1, 2\), got torch.int64 \(2, 5\)"),
        (dict(n_ids=2), IDS.expand(2, 5, 3), r"got torch.int64 \(2, 5, 3\)"),
        (dict(n_ids=2), IDS.expand(2, 5, 2) + 11, r"token ids must be in \[0, 11\)"),
        (VECTORS, IDS.expand(2, 5, 3), "floating-point tensor"),
        (VECTORS, torch.zeros(2, 5, 4), r"n ≥ 1, 3\), got torch.float32 \(2, 5, 4\)"),
        (VECTORS, torch.zeros(2, 0, 3), "n ≥ 1"),
        (VECTORS, [[[0.0, 0.0, 0.0]]], "got list"),
        (VECTORS, torch.zeros(2, 5, 3, device="meta"), "tokens must be on cpu, where the model is"),
        (dict(vocab_size=None), None, "either vocab_size or d_input, got neither"),
        (dict(d_input=3), None, "either vocab_size or d_input, got both"),
        (dict(n_ids=3), None, "n_ids must divide d_model = 8"),
        (dict(n_ids=0), None, "n_ids ≥ 1"),
        (dict(vocab_size=None, d_input=0), None, "d_input ≥ 1"),
    ],
)
def test_other_encoders_and_tokens_are_refused(settings, tokens, words):
    with pytest.raises(SbmtError, match=words):
        make(**dict(max_length=None) | settings)(tokens)


@pytest.mark.bad_input
@pytest.mark.parametrize("mask", [torch.ones(2, 5), [[True] * 5] * 2, torch.ones(2, 4).bool(), torch.ones(5).bool()])
def test_masks_that_do_not_fit_are_refused(mask):
    with pytest.raises(SbmtError, match="mask (as a bool tensor|of shape)"):
        make(None)(IDS[..., 0], mask)

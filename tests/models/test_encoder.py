"""Computes the encoder by hand: tokens of one or more ids, vectors, blocks, dropout and randomness."""

import pytest
import torch

from sbmt import SbmtError
from sbmt.layers.rotary import RotaryPositions, rotate
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
    """Returns the input of the first block."""
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
    """For one linear map, given its weights, the sum of squares over the variance has a chi-square law."""
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
    assert calls == [0.3] * (1 + 3 * SIZES["n_layers"])  # in each block: inside the MLP, and on both residual branches


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
        (VECTORS, torch.zeros(2, 5, 3, device="meta"), "tokens must be on cpu, like the model"),
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
    with pytest.raises(SbmtError, match="mask (to be a bool tensor|of shape)"):
        make(None)(IDS[..., 0], mask)


# --- rotary positions, compared with their definition by complex numbers ---


def vectors(n, d=6, seed=0, dtype=torch.float64):
    return torch.randn(2, 3, n, d, generator=seeded(seed), dtype=dtype)


def test_pairs_are_rotated_as_complex_numbers():
    x = vectors(9)
    theta = 10_000.0 ** (-2 * torch.arange(3, dtype=torch.float64) / 6)
    angle = torch.arange(9, dtype=torch.float64)[:, None] * theta
    expected = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(rotate(x), torch.view_as_real(expected).flatten(-2))


def test_scores_depend_on_the_distance_alone():
    query, key = (vectors(1, seed=seed).expand(-1, -1, 12, -1) for seed in (1, 2))
    scores = torch.matmul(*(x if i == 0 else x.mT for i, x in enumerate(RotaryPositions(6)(query, key))))
    torch.testing.assert_close(scores[..., 1:, 1:], scores[..., :-1, :-1])
    assert (scores[..., 0, 0] - scores[..., 0, 1]).abs().min() > 1e-3


def test_an_encoder_with_rotary_positions_sees_order_and_has_no_table():
    sizes = dict(d_model=8, d_hidden=8, n_heads=2, n_layers=1, attention="full", embedding_std=1.0)
    tokens = torch.tensor([[0, 1, 2, 3], [2, 1, 0, 3]])
    found = {}
    for positions in ("rotary", "none"):
        torch.manual_seed(0)
        encoder = Encoder(5, None, positions=positions, **sizes).eval()
        assert not any("position" in name for name in encoder.state_dict())
        found[positions] = encoder(tokens).values[:, -1]
    assert torch.allclose(*found["none"], atol=1e-6) and not torch.allclose(*found["rotary"], atol=1e-3)
    assert Encoder(5, 4, **sizes).positions == "learned" and Encoder(5, None, **sizes).positions == "none"
    with pytest.raises(SbmtError, match="at most 4 tokens"):
        Encoder(5, 4, positions="rotary", **sizes)(torch.zeros(1, 5, dtype=torch.int64))

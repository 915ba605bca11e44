"""Tokens of one id, of several ids, and vectors."""

import pytest
import torch

from sbmt import SbmtError
from sbmt.models import Encoder, MaskedLM, TokenTagger
from sbmt.models.embedding import IdEmbedding, VectorEmbedding
from tests.layers.inputs import seeded

SIZES = dict(d_model=8, d_hidden=8, n_heads=1, n_layers=1, attention="full")


def test_ids_of_one_token_stand_side_by_side():
    embedding = IdEmbedding(11, 8, 2, 1.0)
    assert embedding.weight.shape == (11, 4)
    tokens = torch.randint(11, (3, 5, 2), generator=seeded())
    vectors = embedding(tokens)
    for i in range(3):
        for j in range(5):
            first, second = (embedding.weight[t] for t in tokens[i, j])
            assert torch.equal(vectors[i, j], torch.cat([first, second]))


def test_one_id_is_looked_up():
    embedding = IdEmbedding(11, 8, 1, 1.0)
    tokens = torch.randint(11, (3, 5), generator=seeded())
    assert torch.equal(embedding(tokens), embedding.weight[tokens])


def test_vectors_are_mapped():
    embedding = VectorEmbedding(3, 8, 1.0)
    tokens = torch.randn(2, 5, 3, generator=seeded())
    by_hand = sum(tokens[..., i, None] * embedding.weight[:, i] for i in range(3))
    torch.testing.assert_close(embedding(tokens), by_hand)


@pytest.mark.statistical(share=0.001)
def test_the_standard_deviation_at_the_start_is_that_asked_for(judge):
    """The sum of squares over the variance has a chi-square law; of one linear map's entries, given its weights."""
    from scipy.stats import chi2

    table = IdEmbedding(400, 8, 2, 0.3).weight.detach().double()
    weight = VectorEmbedding(100, 16, 0.3).weight.detach().double()
    p_values = []
    for entries, std in ((table, 0.3), (weight, 0.03)):
        statistic = float((entries / std).pow(2).sum())
        law = chi2(entries.numel())
        p_values.append(2 * min(law.cdf(statistic), law.sf(statistic)))
    judge(p_values)


@pytest.mark.parametrize("kind", ["ids", "vectors"])
def test_a_tagger_of_some_tokens_answers_as_that_of_all(kind):
    inputs = {"ids": dict(vocab_size=11, n_ids=2), "vectors": dict(vocab_size=None, d_input=3)}
    tokens = {"ids": torch.randint(11, (2, 5, 2), generator=seeded()), "vectors": torch.randn(2, 5, 3)}
    model = TokenTagger(Encoder(max_length=None, **inputs[kind], **SIZES, embedding_std=1.0), 4)
    selected = torch.rand(2, 5, generator=seeded()) < 0.5
    whole, part = model(tokens[kind]).values, model(tokens[kind], selected=selected).values
    assert whole.shape == (2, 5, 4) and 0 < selected.sum() < 10
    torch.testing.assert_close(part, whole[selected])
    part.sum().backward()
    assert model.encoder.token_embedding.weight.grad.abs().sum() > 0


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("embedding", "tokens", "words"),
    [
        (IdEmbedding(11, 8, 2, 1.0), torch.zeros(2, 5, dtype=torch.int64), r"n ≥ 1, 2\), got torch.int64 \(2, 5\)"),
        (IdEmbedding(11, 8, 2, 1.0), torch.zeros(2, 5, 3, dtype=torch.int64), r"got torch.int64 \(2, 5, 3\)"),
        (IdEmbedding(11, 8, 1, 1.0), torch.zeros(2, 5, 1, dtype=torch.int64), r"n ≥ 1\), got torch.int64 \(2, 5, 1\)"),
        (IdEmbedding(11, 8, 2, 1.0), torch.full((2, 5, 2), 11), r"token ids in \[0, 11\)"),
        (VectorEmbedding(3, 8, 1.0), torch.zeros(2, 5, 3, dtype=torch.int64), "floating-point tensor"),
        (VectorEmbedding(3, 8, 1.0), torch.zeros(2, 5, 4), r"n ≥ 1, 3\), got torch.float32 \(2, 5, 4\)"),
        (VectorEmbedding(3, 8, 1.0), torch.zeros(5, 3), "one vector per token"),
        (VectorEmbedding(3, 8, 1.0), torch.zeros(2, 0, 3), "n ≥ 1"),
        (VectorEmbedding(3, 8, 1.0), [[[0.0, 0.0, 0.0]]], "got list"),
        (VectorEmbedding(3, 8, 1.0), torch.zeros(2, 5, 3, device="meta"), "tokens on cpu, where the model is"),
    ],
)
def test_other_tokens_are_refused(embedding, tokens, words):
    with pytest.raises(SbmtError, match=words):
        embedding(tokens)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(vocab_size=None), "either vocab_size or d_input, got neither"),
        (dict(vocab_size=11, d_input=3), "either vocab_size or d_input, got both"),
        (dict(vocab_size=11, n_ids=3), "n_ids that divides d_model 8"),
        (dict(vocab_size=11, n_ids=0), "n_ids ≥ 1"),
        (dict(vocab_size=None, d_input=0), "d_input ≥ 1"),
    ],
)
def test_other_encoders_are_refused(settings, words):
    with pytest.raises(SbmtError, match=words):
        Encoder(max_length=None, **settings, **SIZES)


@pytest.mark.bad_input
@pytest.mark.parametrize("settings", [dict(vocab_size=11, n_ids=2), dict(vocab_size=None, d_input=3)])
def test_only_single_ids_can_be_guessed(settings):
    with pytest.raises(SbmtError, match="an encoder of tokens with one id"):
        MaskedLM(Encoder(max_length=None, **settings, **SIZES))

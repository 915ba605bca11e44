"""Computes every head by hand, and tests the costs of heads."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, gelu, layer_norm

from sbmt import SbmtError
from sbmt.models import DualEncoder, Encoder, MaskedLM, SentenceClassifier, SequenceClassifier, TokenTagger
from tests.layers.inputs import seeded

VOCABULARY, N, D_MODEL = 11, 9, 8
SIZES = dict(d_model=D_MODEL, d_hidden=16, n_heads=2, n_layers=2, embedding_std=1.0, attention="full")
SBM = dict(attention="sbm", n_clusters=4, window=2)
LENGTHS = torch.tensor([[N], [4], [1]])
MASK = torch.arange(N) < LENGTHS
SELECTED = MASK & (torch.arange(3 * N).view(3, N) % 3 == 0)  # 3 + 2 + 1 tokens
FRONT = torch.cat([MASK, (torch.arange(N) >= 2)[None]])  # one more, with padding in front
COUNT = [N, 4, 1, N - 2]
DOCUMENTS = torch.arange(N) < torch.tensor([[9, 3], [5, 9], [1, 6]])[..., None]  # 3 pairs, 2 documents, N tokens


def encoder(**settings):
    torch.manual_seed(0)
    return Encoder(VOCABULARY, N, **SIZES | settings)


def masked_lm(**settings):
    model = MaskedLM(encoder(**settings))
    assert not model.bias.any()
    torch.nn.init.normal_(model.bias)
    return model.double()


def ids(*shape, seed=0):
    return torch.randint(VOCABULARY, shape or (3, N), generator=seeded(seed))


@pytest.mark.parametrize("is_padded_mean", [False, True])
def test_a_classifier_pools_real_tokens_only(is_padded_mean):
    model = SequenceClassifier(encoder(), 5, 6, is_padded_mean=is_padded_mean)
    sums = torch.stack([x[real].sum(0) for x, real in zip(model.encoder(ids(), MASK).values, MASK, strict=True)])
    torch.testing.assert_close(model(ids(), MASK).values, model.head(sums / (N if is_padded_mean else LENGTHS)))
    torch.testing.assert_close(model(ids()).values, model.head(model.encoder(ids()).values.mean(1)))


@pytest.mark.parametrize("settings", [{}, SBM], ids=["full", "sbm"])
def test_a_sentence_classifier_by_hand(settings):
    model = SentenceClassifier(encoder(**settings), 3).double()
    encoded = model.encoder(ids(4, N), FRONT, generator=seeded()).values
    rows = [sum(encoded[b, i] for i in range(N) if FRONT[b, i]) / COUNT[b] for b in range(4)]
    _, inner, _, _, outer = model.head
    expected = torch.tanh(torch.stack(rows) @ inner.weight.T + inner.bias) @ outer.weight.T + outer.bias
    torch.testing.assert_close(model(ids(4, N), FRONT, generator=seeded()).values, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("is_padded_mean", [False, True])
def test_a_dual_encoder_compares_the_means_of_separately_encoded_documents(is_padded_mean):
    model = DualEncoder(encoder(), 3, 6, is_padded_mean=is_padded_mean)
    tokens, rows = ids(3, 2, N), []
    for document, real in zip(tokens.flatten(0, 1), DOCUMENTS.flatten(0, 1), strict=True):
        rows.append(model.encoder(document[real][None]).values[0].sum(0) / (N if is_padded_mean else real.sum()))
    means = torch.stack(rows).unflatten(0, (3, 2))
    x, y = means.unbind(1)
    found = model(tokens, DOCUMENTS).values
    torch.testing.assert_close(found, model.head(torch.cat([x, y, x * y, x - y], 1)))
    assert not torch.allclose(model(tokens.flip(1), DOCUMENTS.flip(1)).values, found)  # the order of a pair counts


@pytest.mark.parametrize("kind", ["ids", "vectors"])
def test_selected_logits_equal_those_of_all_tokens(kind):
    inputs = {"ids": dict(vocab_size=VOCABULARY, n_ids=2), "vectors": dict(vocab_size=None, d_input=3)}
    tokens = {"ids": ids(3, N, 2), "vectors": torch.randn(3, N, 3)}[kind]
    model = TokenTagger(Encoder(max_length=None, **inputs[kind], **SIZES), 4)
    whole, part = model(tokens).values, model(tokens, selected=SELECTED).values
    assert whole.shape == (3, N, 4)
    torch.testing.assert_close(part, whole[SELECTED])
    part.sum().backward()
    assert model.encoder.token_embedding.weight.grad.abs().sum() > 0


def test_a_masked_language_model_by_hand():
    model = masked_lm()
    linear, _, norm = model.head
    x = model.encoder(ids(), MASK).values
    hidden = layer_norm(gelu(x @ linear.weight.T + linear.bias), (D_MODEL,), norm.weight, norm.bias)
    expected = hidden @ model.encoder.token_embedding.weight.T + model.bias
    torch.testing.assert_close(model(ids(), MASK).values, expected, rtol=0, atol=1e-12)


def test_the_output_layer_runs_only_on_selected_tokens_row_by_row():
    model, seen = masked_lm(**SBM), []
    everywhere = model(ids(), MASK, generator=seeded()).values
    by_hand = [everywhere[b, i] for b in range(3) for i in range(N) if SELECTED[b, i]]
    for part in model.head:
        part.register_forward_hook(lambda part, given, _: seen.append(tuple(given[0].shape)))
    out = model(ids(), MASK, selected=SELECTED, generator=seeded())
    torch.testing.assert_close(out.values, torch.stack(by_hand), rtol=0, atol=1e-12)
    assert seen == [(6, D_MODEL)] * 3


def test_the_output_layer_is_the_token_embedding_which_learns_from_both_uses():
    model, labels = masked_lm(), ids(seed=1)[SELECTED]
    sizes = [p.numel() for name, p in model.named_parameters() if not name.startswith("encoder.")]
    assert sum(sizes) == D_MODEL * D_MODEL + D_MODEL + 2 * D_MODEL + VOCABULARY
    table = model.encoder.token_embedding.weight
    cross_entropy(model(ids(), MASK, selected=SELECTED).values, labels).backward()
    together, table.grad = table.grad, None
    hidden = model.head(model.encoder(ids(), MASK).values[SELECTED])
    cross_entropy(hidden @ table.detach().T + model.bias, labels).backward()
    as_input, table.grad = table.grad, None
    cross_entropy(hidden.detach() @ table.T + model.bias, labels).backward()
    assert as_input.any() and table.grad.any()
    torch.testing.assert_close(together, as_input + table.grad, rtol=0, atol=1e-12)


def test_selecting_nothing_is_harmless():
    model = masked_lm(**SBM)
    logits = model(ids(), MASK, selected=torch.zeros_like(MASK)).values
    assert logits.shape == (0, VOCABULARY)
    logits.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())  # gradients are zeros, not None


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("selected", "words"),
    [
        (SELECTED.long(), r"selected must be a bool tensor \(3, 9\), got torch.int64 \(3, 9\)"),
        (SELECTED[:1], r"got torch.bool \(1, 9\)"),
        (SELECTED[:, :-1], r"got torch.bool \(3, 8\)"),
        ([0, 1], "got list"),
        (torch.ones_like(MASK), "13 selected tokens are padding"),
    ],
)
def test_other_selections_are_refused(selected, words):
    with pytest.raises(SbmtError, match=words):
        masked_lm()(ids(), MASK, selected=selected)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: DualEncoder(encoder(), 3, 6)(ids(3, N)), r"tokens .* shape \(batch, 2, n\)"),
        (lambda: DualEncoder(encoder(), 3, 6)(ids(3, 1, N)), r"tokens .* shape \(batch, 2, n\)"),
        (lambda: DualEncoder(encoder(), 3, 6)(ids(3, 2, N), MASK), r"mask .* shape \(batch, 2, n\)"),
        (lambda: DualEncoder(encoder(), 0, 6), "n_labels ≥ 1"),
        (lambda: SentenceClassifier(encoder(), 0), "n_labels ≥ 1"),
        (lambda: SentenceClassifier(encoder(), 2, dropout=1.0), r"dropout in \[0, 1\), got 1.0"),
        (lambda: MaskedLM(encoder(n_ids=2)), "one id each"),
        (lambda: MaskedLM(Encoder(None, None, d_input=3, **SIZES)), "one id each"),
        (lambda: TokenTagger(nn.Linear(2, 2), 2), "an Encoder, got Linear"),
    ],
)
def test_other_heads_and_documents_that_are_no_pairs_are_refused(build, words):
    with pytest.raises(SbmtError, match=words):
        build()

"""Properties of every model: shapes, no effect of padding or of other examples, and gradients everywhere."""

import pytest
import torch

from sbmt.models import DualEncoder, Encoder, MaskedLM, SentenceClassifier, SequenceClassifier, TokenTagger
from tests.layers.inputs import seeded

VOCABULARY, N, D_MODEL = 11, 9, 8
SIZES = dict(d_model=D_MODEL, d_hidden=16, n_heads=2, n_layers=2, embedding_std=1.0)
ATTENTIONS = {
    "full": dict(attention="full"),
    "random": dict(attention="random_mask", mask_density=0.5),
    "sbm": dict(n_clusters=4, window=2),
}
MODELS = {  # and the shape of its output for three inputs
    "encoder": (lambda encoder: encoder, (3, N, D_MODEL)),
    "tagger": (lambda encoder: TokenTagger(encoder, 4), (3, N, 4)),
    "masked language model": (MaskedLM, (3, N, VOCABULARY)),
    "classifier": (lambda encoder: SequenceClassifier(encoder, 5, d_hidden=6), (3, 5)),
    "sentences": (lambda encoder: SentenceClassifier(encoder, 4), (3, 4)),
    "pairs": (lambda encoder: DualEncoder(encoder, 4, 6), (3, 4)),
}
LENGTHS = torch.tensor([[N, 5], [4, N], [1, 6]])
every_model = pytest.mark.parametrize("name", MODELS)
every_attention = pytest.mark.parametrize("attention", ATTENTIONS)


def make(name, attention):
    torch.manual_seed(0)
    return MODELS[name][0](Encoder(VOCABULARY, N, **SIZES | ATTENTIONS[attention]))


def case(name, seed=0):
    """Returns ids and masks of three sequences, or of three pairs of documents."""
    mask = torch.arange(N) < LENGTHS[..., None]
    tokens = torch.randint(VOCABULARY, mask.shape, generator=seeded(seed))
    return (tokens, mask) if name == "pairs" else (tokens[:, 0], mask[:, 0])


def at_real(name, values, mask):
    """Returns the outputs at real tokens, or for whole inputs."""
    return values[mask] if len(MODELS[name][1]) == 3 and mask is not None else values


@every_attention
@every_model
def test_shapes_and_independence_of_padding_and_other_examples(name, attention):
    model, (tokens, mask) = make(name, attention), case(name)
    changed = tokens.where(mask, (tokens + 5) % VOCABULARY)
    first, second = (model(ids, mask, generator=seeded(), return_edges=True) for ids in (tokens, changed))
    n_read = len(tokens.flatten(0, -2))
    assert first.values.shape == MODELS[name][1]
    assert [layer.edges.shape for layer in first.attention] == [(n_read, 2, N, N)] * SIZES["n_layers"]
    assert torch.equal(at_real(name, first.values, mask), at_real(name, second.values, mask))
    assert all(torch.equal(a.density, b.density) for a, b in zip(first.attention, second.attention, strict=True))
    unmasked = [at_real(name, model(ids, generator=seeded()).values, mask) for ids in (tokens, changed)]
    assert not torch.equal(*unmasked)  # without the mask, it would
    others, _ = case(name, seed=1)
    others[0] = tokens[0]
    third = model(others, mask, generator=seeded()).values
    torch.testing.assert_close(third[0], first.values[0])
    assert not torch.allclose(third[1], first.values[1])


@every_attention
@every_model
def test_every_parameter_gets_a_gradient(name, attention):
    model, (tokens, mask) = make(name, attention), case(name)
    at_real(name, model(tokens, mask).values, mask).sin().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    assert all(p.grad.isfinite().all() for p in model.parameters())


@every_attention
@every_model
@pytest.mark.parametrize("n, n_real", [(N, 0), (N, 1), (1, 0)])
def test_examples_of_padding_only_are_harmless(name, attention, n, n_real):
    """Compares a whole batch with all but its first input."""
    model, (tokens, mask) = make(name, attention), case(name)
    mask = mask[..., :n].clone()
    mask[n_real:] = False
    out = model(tokens[..., :n], mask)
    assert all((layer.density.view(3, -1)[n_real:] == 0).all() for layer in out.attention)
    (out.values.square().sum() + sum(layer.density.sum() for layer in out.attention)).backward()
    assert out.values.isfinite().all()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@every_attention
@every_model
def test_padding_may_hold_anything_where_tokens_are_vectors(name, attention):
    if name in ("masked language model", "pairs"):
        pytest.skip("its tokens are ids")
    torch.manual_seed(0)
    model = MODELS[name][0](Encoder(None, N, d_input=3, **SIZES | ATTENTIONS[attention]))
    (ids, mask), found = case(name), []
    for anything in (0.0, torch.nan, torch.inf):
        model.zero_grad()
        vectors = torch.randn(*ids.shape, 3, generator=seeded()).masked_fill(~mask[..., None], anything)
        said = at_real(name, model(vectors, mask, generator=seeded()).values, mask)
        said.square().sum().backward()
        found.append([said, *(p.grad for p in model.parameters() if p.grad is not None)])
    for other in found[1:]:
        assert all(torch.equal(x, y) for x, y in zip(found[0], other, strict=True))

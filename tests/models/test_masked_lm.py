"""The token behind every mask: the head by hand, its tied output layer, and who pays for it."""

from math import log

import pytest
import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm

from sbmt import SbmtError
from sbmt.models import Encoder, MaskedLM, SentenceClassifier
from tests.layers.inputs import seeded

VOCABULARY, N, D_MODEL = 11, 9, 8
MASK = torch.arange(N) < torch.tensor([[N], [4], [1]])
SELECTED = MASK & (torch.arange(3 * N).view(3, N) % 3 == 0)  # 3 + 2 + 1 places
ATTENTIONS = {
    "full": dict(attention="full"),
    "sbm": dict(n_clusters=4, window=2),
    "random": dict(attention="random_mask", window=2, mask_density=0.5),
}
every_attention = pytest.mark.parametrize("attention", ATTENTIONS)


def make(attention="full", **settings):
    torch.manual_seed(0)
    sizes = dict(d_model=D_MODEL, d_hidden=16, n_heads=2, n_layers=2, embedding_std=1.0)
    model = MaskedLM(Encoder(VOCABULARY, N, **sizes | ATTENTIONS[attention] | settings))
    torch.nn.init.normal_(model.bias)  # which starts at zeros
    return model


def ids(seed=0):
    return torch.randint(VOCABULARY, (3, N), generator=seeded(seed))


def test_the_head_by_hand():
    model = make().double()
    linear, _, norm = model.head
    x = model.encoder(ids(), MASK).values
    hidden = layer_norm(gelu(x @ linear.weight.T + linear.bias), (D_MODEL,), norm.weight, norm.bias)
    expected = hidden @ model.encoder.token_embedding.weight.T + model.bias
    out = model(ids(), MASK)
    assert out.values.shape == (3, N, VOCABULARY) and len(out.attention) == 2
    torch.testing.assert_close(out.values, expected, rtol=0, atol=1e-12)


@every_attention
def test_selected_tokens_come_row_by_row(attention):
    model = make(attention).double()
    everywhere = model(ids(), MASK, generator=seeded()).values
    by_hand = [everywhere[b, i] for b in range(3) for i in range(N) if SELECTED[b, i]]
    out = model(ids(), MASK, selected=SELECTED, generator=seeded(), return_edges=True)
    assert out.values.shape == (6, VOCABULARY)
    torch.testing.assert_close(out.values, torch.stack(by_hand), rtol=0, atol=1e-12)
    assert all(layer.edges.shape == (3, 2, N, N) for layer in out.attention)


def test_only_selected_tokens_pay_for_the_output_layer():
    model, seen = make(), []
    for part in model.head:
        part.register_forward_hook(lambda part, given, _: seen.append(tuple(given[0].shape)))
    model(ids(), MASK, selected=SELECTED)
    assert seen == [(6, D_MODEL)] * 3


def test_the_output_layer_is_the_token_embedding():
    model = make()
    sizes = {name: p.numel() for name, p in model.named_parameters() if not name.startswith("encoder.")}
    assert sum(sizes.values()) == D_MODEL * D_MODEL + D_MODEL + 2 * D_MODEL + VOCABULARY
    tokens = ids() % (VOCABULARY - 1)  # the last token is never read, only scored
    before = model(tokens, MASK).values
    with torch.no_grad():
        model.encoder.token_embedding.weight[-1] += 1.0
    moved = model(tokens, MASK).values
    assert torch.equal(moved[..., :-1], before[..., :-1]) and not torch.allclose(moved[..., -1], before[..., -1])


def test_the_embedding_learns_from_both_of_its_uses():
    model = make().double()
    table = model.encoder.token_embedding.weight
    labels = ids(1)[SELECTED]
    cross_entropy(model(ids(), MASK, selected=SELECTED).values, labels).backward()
    together, table.grad = table.grad, None
    hidden = model.head(model.encoder(ids(), MASK).values[SELECTED])
    cross_entropy(hidden @ table.detach().T + model.bias, labels).backward()
    as_input, table.grad = table.grad, None
    cross_entropy(hidden.detach() @ table.T + model.bias, labels).backward()
    assert as_input.any() and table.grad.any()
    torch.testing.assert_close(together, as_input + table.grad, rtol=0, atol=1e-12)


@every_attention
def test_every_parameter_gets_a_gradient(attention):
    model = make(attention)
    model(ids(), MASK, selected=SELECTED).values.sin().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in model.parameters())


@every_attention
def test_asking_for_nothing_is_harmless(attention):
    model = make(attention)
    logits = model(ids(), MASK, selected=torch.zeros_like(MASK)).values
    assert logits.shape == (0, VOCABULARY)
    logits.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())  # zeros, not None


@every_attention
def test_padding_and_other_examples_stay_out(attention):
    model, tokens = make(attention), ids()
    changed = tokens.where(MASK, (tokens + 5) % VOCABULARY)
    assert not torch.equal(changed, tokens)
    values = model(tokens, MASK, selected=SELECTED, generator=seeded()).values
    assert torch.equal(model(changed, MASK, selected=SELECTED, generator=seeded()).values, values)
    other = ids(1)
    other[0] = tokens[0]
    values_of_other = model(other, MASK, selected=SELECTED, generator=seeded()).values
    torch.testing.assert_close(values_of_other[:3], values[:3])  # the first example's three
    assert not torch.allclose(values_of_other[3:], values[3:])


def test_the_first_loss_is_that_of_a_guess():
    torch.manual_seed(0)
    model = MaskedLM(Encoder(1000, N, d_model=32, d_hidden=64, n_heads=2, n_layers=2, attention="full"))
    tokens = torch.randint(1000, (64, N), generator=seeded())
    assert not model.bias.any()
    assert cross_entropy(model(tokens).values.flatten(0, 1), tokens.flatten()).item() == pytest.approx(
        log(1000), abs=0.1
    )


@pytest.mark.parametrize("attention", ["full", "sbm"])
def test_it_learns_to_fill_in_what_the_others_say(attention):
    torch.manual_seed(0)
    sizes = dict(d_model=16, d_hidden=32, n_heads=2, n_layers=1, embedding_std=1.0)
    model = MaskedLM(Encoder(VOCABULARY, N, **sizes | ATTENTIONS[attention]))
    optimizer, draw = torch.optim.Adam(model.parameters(), 0.01), seeded(3)
    for _ in range(80):
        labels = torch.randint(VOCABULARY - 1, (32,), generator=draw)
        selected = torch.arange(N) == torch.randint(N, (32, 1), generator=draw)
        tokens = labels[:, None].expand(32, N).masked_fill(selected, VOCABULARY - 1)
        logits = model(tokens, selected=selected, generator=draw).values
        optimizer.zero_grad()
        cross_entropy(logits, labels).backward()
        optimizer.step()
    assert (logits.argmax(1) == labels).float().mean() > 0.9


def test_its_encoder_goes_into_a_classifier():
    trained = make("sbm")
    fresh = make("sbm", embedding_std=0.5).encoder
    classifier = SentenceClassifier(fresh, 2)
    assert not torch.equal(classifier.encoder(ids(), generator=seeded()).values, trained.encoder(ids()).values)
    classifier.encoder.load_state_dict(trained.encoder.state_dict())
    values = (m.encoder(ids(), generator=seeded()).values for m in (classifier, trained))
    assert torch.equal(*values)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("selected", "words"),
    [
        (SELECTED.long(), r"selected as a bool tensor of shape \(3, 9\), got torch.int64 \(3, 9\)"),
        (SELECTED[:1], r"got torch.bool \(1, 9\)"),
        (SELECTED[:, :-1], r"got torch.bool \(3, 8\)"),
        ([0, 1], "got list"),
        (torch.ones_like(MASK), "only real tokens selected, got 13 at padding"),
    ],
)
def test_other_selections_are_refused(selected, words):
    with pytest.raises(SbmtError, match=words):
        make()(ids(), MASK, selected=selected)

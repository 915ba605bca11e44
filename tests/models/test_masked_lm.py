"""The token behind every mask: the head by hand, its tied output layer, and who pays for it."""

import pytest
import torch
from torch.nn.functional import cross_entropy, gelu, layer_norm

from sbmt import SbmtError
from sbmt.models import Encoder, MaskedLM
from tests.layers.inputs import seeded

VOCABULARY, N, D_MODEL = 11, 9, 8
MASK = torch.arange(N) < torch.tensor([[N], [4], [1]])
SELECTED = MASK & (torch.arange(3 * N).view(3, N) % 3 == 0)  # 3 + 2 + 1 places
SBM = dict(attention="sbm", n_clusters=4, window=2)


def make(**settings):
    torch.manual_seed(0)
    sizes = dict(d_model=D_MODEL, d_hidden=16, n_heads=2, n_layers=2, embedding_std=1.0, attention="full")
    model = MaskedLM(Encoder(VOCABULARY, N, **sizes | settings))
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


def test_selected_tokens_come_row_by_row():
    model = make(**SBM).double()
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


def test_asking_for_nothing_is_harmless():
    model = make(**SBM)
    logits = model(ids(), MASK, selected=torch.zeros_like(MASK)).values
    assert logits.shape == (0, VOCABULARY)
    logits.sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())  # zeros, not None


def test_it_learns_to_fill_in_what_the_others_say():
    torch.manual_seed(0)
    sizes = dict(d_model=16, d_hidden=32, n_heads=2, n_layers=1, embedding_std=1.0)
    model = MaskedLM(Encoder(VOCABULARY, N, **sizes | SBM))
    assert not model.bias.any()
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

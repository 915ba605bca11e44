"""Encoder, tagger, classifier: padding stays out, examples stay apart, everything learns."""

import pytest
import torch

from sbmt.models import Encoder, SequenceClassifier, TokenTagger
from sbmt.models.classifier import mean_of_real
from tests.layers.inputs import seeded

VOCABULARY, N, D_MODEL = 11, 9, 8
LENGTHS = torch.tensor([[N], [4], [1]])
MASK = torch.arange(N).expand(3, N) < LENGTHS
SIZES = dict(d_model=D_MODEL, d_hidden=16, n_heads=2, n_layers=2)
ATTENTIONS = {
    "full": dict(attention="full"),
    "random": dict(attention="random_mask", mask_density=0.5),
    "sbm": dict(n_clusters=4),
    "sbm, window": dict(n_clusters=4, window=2),
    "sbm, faithful": dict(n_clusters=4, preset="faithful", self_loops=True),
    "sbm, poisson": dict(n_clusters=4, link="poisson", gate_rule="weight"),
}
HEADS = {
    "encoder": lambda encoder: encoder,
    "tagger": lambda encoder: TokenTagger(encoder, 3),
    "classifier": lambda encoder: SequenceClassifier(encoder, 5, d_hidden=6),
}
every_attention = pytest.mark.parametrize("attention", ATTENTIONS)
every_head = pytest.mark.parametrize("head", HEADS)


def make(head="encoder", attention="sbm", max_length=N, **settings):
    torch.manual_seed(0)
    arguments = SIZES | dict(embedding_std=1.0) | ATTENTIONS[attention] | settings
    return HEADS[head](Encoder(VOCABULARY, max_length, **arguments))


def ids(seed=0, batch=3):
    return torch.randint(VOCABULARY, (batch, N), generator=seeded(seed))


def is_per_token(head):
    return head != "classifier"


@every_attention
@pytest.mark.parametrize("head, shape", [("encoder", (3, N, D_MODEL)), ("tagger", (3, N, 3)), ("classifier", (3, 5))])
def test_shapes(head, shape, attention):
    out = make(head, attention)(ids(), MASK, return_edges=True)
    assert out.values.shape == shape and len(out.attention) == 2
    for layer in out.attention:
        assert layer.density.shape == (3, 2) and layer.edges.shape == (3, 2, N, N)


@every_attention
@every_head
def test_padding_does_not_leak(head, attention):
    model, tokens = make(head, attention), ids()
    changed = tokens.where(MASK, (tokens + 5) % VOCABULARY)
    first, second = (model(t, MASK, generator=seeded()) for t in (tokens, changed))
    real = MASK if is_per_token(head) else slice(None)
    assert torch.equal(first.values[real], second.values[real])
    for mine, other in zip(first.attention, second.attention, strict=True):
        assert torch.equal(mine.density, other.density)
    unmasked = [model(t, generator=seeded()).values[real] for t in (tokens, changed)]
    assert not torch.equal(*unmasked)  # without the mask it would


@every_attention
@every_head
def test_examples_do_not_mix(head, attention):
    model, tokens = make(head, attention), ids()
    other = ids(seed=1)
    other[0] = tokens[0]
    first, second = (model(t, MASK, generator=seeded()).values for t in (tokens, other))
    torch.testing.assert_close(first[0], second[0])
    assert not torch.allclose(first[1], second[1])


def test_full_attention_without_positions_knows_no_order():
    tokens = ids()
    order = torch.randperm(N, generator=seeded())
    blind = make("encoder", "full", max_length=None)
    torch.testing.assert_close(blind(tokens[:, order]).values, blind(tokens).values[:, order])
    pooled = make("classifier", "full", max_length=None)
    torch.testing.assert_close(pooled(tokens[:, order]).values, pooled(tokens).values)
    sighted = make("encoder", "full")
    assert not torch.allclose(sighted(tokens[:, order]).values, sighted(tokens).values[:, order])


@every_attention
@every_head
def test_every_parameter_gets_a_gradient(head, attention):
    model = make(head, attention)
    out = model(ids(), MASK)
    real = MASK if is_per_token(head) else slice(None)
    out.values[real].sin().sum().backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None or not (p.grad != 0).any()]
    assert missing == []
    assert all(p.grad.isfinite().all() for p in model.parameters())


@every_attention
@every_head
@pytest.mark.parametrize("n", [1, N])
def test_a_batch_of_padding_is_harmless(n, head, attention):
    model = make(head, attention)
    out = model(ids()[:, :n], torch.zeros(3, n, dtype=torch.bool))
    assert all((layer.density == 0).all() for layer in out.attention)
    (out.values.square().sum() + sum(layer.density.sum() for layer in out.attention)).backward()
    assert out.values.isfinite().all()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("attention", ["full", "sbm"])
def test_a_classifier_pools_real_tokens_only(attention):
    model = make("classifier", attention)
    encoded = model.encoder(ids(), MASK, generator=seeded()).values
    by_hand = torch.stack([encoded[b, : int(LENGTHS[b])].mean(0) for b in range(3)])
    logits = model(ids(), MASK, generator=seeded()).values
    torch.testing.assert_close(logits, model.head(by_hand))
    short = model(ids()[1:2, :4], generator=seeded()).values
    if attention == "full":  # a sampled mask is drawn anew for another batch
        torch.testing.assert_close(short, logits[1:2])


def test_a_window_reaches_every_layer():
    distance = (torch.arange(N)[:, None] - torch.arange(N)).abs()
    for layer in make("encoder", "sbm, window")(ids(), return_edges=True).attention:
        assert layer.edges.to_dense()[:, :, distance <= 1].all()


def test_a_block_is_pre_norm_with_residuals():
    model = make("encoder", "full").double()
    x = torch.randn(3, N, D_MODEL, generator=seeded(), dtype=torch.float64)
    block = model.blocks[0]
    y = block.attention_norm(x)
    between = x + block.attention(y, y, y)[0]
    expected = between + block.mlp(block.mlp_norm(between))
    torch.testing.assert_close(block(x)[0], expected, rtol=0, atol=1e-12)
    embedded = model.token_embedding(ids()) + model.position_embedding.weight
    through = model.norm(model.blocks[1](block(embedded)[0])[0])
    torch.testing.assert_close(model(ids()).values, through, rtol=0, atol=1e-12)


@every_attention
def test_seeds_fix_training_and_eval_switches_dropout_off(attention):
    model = make("tagger", attention, dropout=0.3, attention_dropout=0.3)
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(model(ids(), MASK).values)
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    model.eval()
    quiet = [model(ids(), MASK, generator=seeded()).values for _ in range(2)]
    assert torch.equal(*quiet)
    assert all(block.attention.attention.dropout == 0.3 for block in model.encoder.blocks)


def test_dropout_follows_the_embedding_the_attentions_and_the_mlps():
    model = make("encoder", "full", dropout=0.3)
    calls = []
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.register_forward_hook(lambda part, *_: calls.append(part.p))
    model(ids())
    assert calls == [0.3] * (1 + 3 * SIZES["n_layers"])  # a block's: inside its MLP, and on both residual branches


def test_layers_and_calls_draw_different_masks():
    model = make("encoder", "sbm").eval()
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
        spoilt = x.masked_fill(~mask[..., None], 1e6)
        assert torch.equal(mean_of_real(spoilt, mask, is_padded_mean), mean_of_real(x, mask, is_padded_mean))


def test_a_classifier_may_divide_by_the_padded_length():
    plain, padded = make("classifier", "full"), make("classifier", "full")
    padded.is_padded_mean = True
    encoded = plain.encoder(ids(), MASK).values
    by_hand = torch.stack([encoded[b, : int(LENGTHS[b])].sum(0) / N for b in range(3)])
    torch.testing.assert_close(padded(ids(), MASK).values, padded.head(by_hand))
    assert torch.equal(padded(ids()).values, plain(ids()).values)
    assert not torch.allclose(padded(ids(), MASK).values[1:], plain(ids(), MASK).values[1:])
    built = SequenceClassifier(plain.encoder, 5, 6, is_padded_mean=True)
    built.head = plain.head
    assert torch.equal(built(ids(), MASK).values, padded(ids(), MASK).values)

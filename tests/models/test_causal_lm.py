"""Tests a causal language model, with and without a cache."""

import pytest
import torch

from sbmt import CausalLM, EdgeList, Encoder, SBMAttention, SbmtError, build_attention, edge_attention
from sbmt.attention.cache import Cache
from sbmt.block_model.model import probability, reweighting_bias
from sbmt.layers import functional
from tests.layers.inputs import seeded, tokens
from tests.statistics import binomial_p_values

SIZES = dict(d_model=16, d_hidden=20, n_heads=2, n_layers=2, embedding_std=1.0)
SETTINGS = {
    "fitted": dict(preset="fitted", n_clusters=36, edges_per_query=4.0),
    "window": dict(preset="fitted", n_clusters=36, window=6, reweight=False, sink=False),
    "recommended": dict(preset="recommended", n_clusters=5),
    "without loops": dict(preset="faithful", n_clusters=5, link="poisson"),
}
N = 30


def make_model(positions="rotary", **settings):
    torch.manual_seed(0)
    return CausalLM(Encoder(11, 64, positions=positions, causal=True, **SIZES, **settings)).double().eval()


def ids(batch=2, n=N):
    return torch.randint(11, (batch, n), generator=seeded(1))


@torch.no_grad()
@pytest.mark.parametrize(("positions", "convolution"), [("rotary", 0), ("learned", 0), ("rotary", 3)])
def test_full_attention_from_a_cache_is_full_attention(positions, convolution):
    model = make_model(positions, attention="full", convolution=convolution)
    expected = model(ids()).values
    caches = [Cache() for _ in model.encoder.blocks]
    found = [model(piece, caches=caches).values for piece in ids().split([7, 1, 1, 5, 1, 15], 1)]
    torch.testing.assert_close(torch.cat(found, 1), expected, rtol=1e-10, atol=1e-10)
    assert caches[0].length == N


@torch.no_grad()
@pytest.mark.parametrize("has_loops", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_along_the_drawn_edges_equals_a_pass_over_all_tokens(name, has_loops, monkeypatch):
    if not has_loops:  # of C++
        monkeypatch.setattr(functional, "can_run_on", lambda device: False)
    torch.manual_seed(0)
    layer = build_attention("sbm", d_head=4, n_heads=3, causal=True, **SETTINGS[name]).double().eval()
    if layer.log_rate is not None:
        layer.log_start.fill_(-3.0)  # as after training
    if layer.sink is not None:
        layer.sink.copy_(torch.tensor([0.5, -1.0, 2.0]))
    query, key, value = (3 * tokens(n=N, seed=seed, dtype=torch.float64) for seed in range(3))
    cache, values, masks = Cache(), [], []
    for first, last in ((0, 9), (9, 10), (10, 11), (11, 26), (26, 30)):
        new = (x[:, :, first:last] for x in (query, key, value))
        out = layer(*new, generator=seeded(first), return_edges=True, cache=cache)
        values.append(out.values)
        mask = out.edges.to_dense()
        assert not mask[..., last:].any()
        masks.append(torch.nn.functional.pad(mask[..., :last], (0, N - last)))
        visible = torch.ones(N, N, dtype=torch.bool).tril()[first:last].sum()
        torch.testing.assert_close(out.density, mask.sum((2, 3)) / visible, rtol=1e-6, atol=0)
    edges = EdgeList.from_dense(torch.cat(masks, 2), causal=True)
    model = layer.block_model(query, key)
    bias = None
    if layer.reweight:
        drawn_with = probability("poisson", model.edge_rate(edges))
        bias = reweighting_bias(drawn_with.masked_fill(edges.is_near(layer.window), 1.0))
    expected = edge_attention(query, key, value, edges, bias=bias, sink=layer.sink, backend="dense")
    torch.testing.assert_close(torch.cat(values, 2), expected, rtol=1e-10, atol=1e-12)
    if layer.window is not None:
        assert edges.union(edges.with_window(layer.window)).n_edges == edges.n_edges


@torch.no_grad()
@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("name", ["fitted", "recommended"])
def test_edges_of_a_step_have_the_law_of_a_pass_over_all_tokens(name, judge):
    n_copies, heads, d = 1500, 2, 4
    torch.manual_seed(0)
    layer = build_attention("sbm", d_head=d, n_heads=heads, causal=True, **SETTINGS[name]).double().eval()
    if layer.log_rate is not None:
        layer.log_start.fill_(-4.5)
    x = torch.randn(1, heads, N, d, generator=seeded(), dtype=torch.float64)
    law = layer.block_model(x, x).expected_mask()[0]
    law = law.masked_fill(torch.eye(N, dtype=torch.bool), 1.0)
    assert 0.05 < law.tril().sum() / law.tril().count_nonzero() < 0.6
    cache, copies = Cache(), x.expand(n_copies, -1, -1, -1)
    counts = torch.zeros(heads, N, N)
    for first, last in ((0, 18), (18, 19), (19, 24), (24, N)):
        new = copies[:, :, first:last]
        edges = layer(new, new, new, generator=seeded(first), return_edges=True, cache=cache).edges
        counts[:, first:last, :last] = edges.to_dense().sum(0)[..., :last].float()
    judge(binomial_p_values(counts.long(), n_copies, law))


def test_generation_is_reproducible_and_continues_the_beginning():
    for settings in ({"attention": "full"}, *SETTINGS.values()):
        model = make_model(**settings).train()
        first, again = (model.generate(ids(n=5), 6, temperature=9.0, generator=seeded(3)) for _ in range(2))
        assert torch.equal(first, again) and torch.equal(first[:, :5], ids(n=5)) and first.shape == (2, 11)
        other = model.generate(ids(n=5), 6, temperature=9.0, generator=seeded(4))
        assert model.training and not torch.equal(first, other)
    model = make_model(attention="full")
    greedy = model.generate(ids(n=5), 12, temperature=0.0)
    assert torch.equal(greedy[:, 5:], model(greedy).values.argmax(-1)[:, 4:-1])
    assert torch.equal(greedy, model.generate(ids(n=5), 12, top_k=1))


@pytest.mark.parametrize("convolution", [0, 3])
@pytest.mark.parametrize("positions", ["rotary", "learned", "none"])
@pytest.mark.parametrize("attention", [{"attention": "full"}, {"attention": "random_mask", "mask_density": 0.0}])
def test_each_sequence_of_a_padded_batch_is_continued_as_if_it_were_alone(attention, positions, convolution):
    window = {} if attention["attention"] == "full" else {"window": 6}
    model, lengths = make_model(positions, convolution=convolution, **attention, **window), (3, 8, 1, 3)
    mask = torch.arange(8) >= 8 - torch.tensor(lengths)[:, None]
    together = model.generate(ids(4, 8), 9, mask=mask, temperature=0.0)
    assert torch.equal(together[:, :8], ids(4, 8)) and together.shape == (4, 17)
    for row, n in enumerate(lengths):
        alone = model.generate(ids(4, 8)[row : row + 1, 8 - n :], 9, temperature=0.0)
        assert torch.equal(together[row, 8 - n :], alone[0])
    changed = model.generate(ids(4, 8).masked_fill(~mask, 7), 9, mask=mask, temperature=0.0)
    assert torch.equal(changed[:, 8:], together[:, 8:])


@torch.no_grad()
def test_a_convolution_is_causal_and_ignores_padding():
    model = make_model(attention="full", convolution=3)
    embedded = model.encoder.token_embedding(ids())
    weight, bias = model.encoder.convolution.weight[:, 0], model.encoder.convolution.bias
    expected = sum(embedded[:, 9 - back] * weight[:, 2 - back] for back in range(3)) + bias
    torch.testing.assert_close(model.encoder._convolve(embedded, None)[:, 9], expected)
    mask = torch.arange(N) >= torch.tensor([[4], [0]])
    other = ids().masked_fill(~mask, 7)
    torch.testing.assert_close(model(other, mask).values[mask], model(ids(), mask).values[mask])


def test_logits_are_products_with_the_embeddings_and_train_them():
    model = make_model(preset="fitted", n_clusters=16).train()
    out = model(ids())
    assert out.values.shape == (2, N, 11) and len(out.attention) == 2
    assert not any(name.startswith("head") for name, _ in model.named_parameters())
    loss = torch.nn.functional.cross_entropy(out.values[:, :-1].flatten(0, 1), ids()[:, 1:].flatten())
    (loss + sum(layer.auxiliary_loss for layer in out.attention)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.bad_input
def test_what_cannot_be_decoded_is_refused():
    x = tokens(n=5)
    with torch.no_grad():
        for layer, masks, words in (
            (SBMAttention(4, 3, 5).eval(), {}, "a cache requires causal attention"),
            (SBMAttention(4, 3, 5, causal=True), {}, "eval mode"),
            (SBMAttention(4, 3, 5, causal=True).eval(), {"key_mask": torch.ones(2, 5).bool()}, "not support padding"),
            (build_attention("full", d_head=4, n_heads=3).eval(), {}, "a cache requires causal attention"),
        ):
            with pytest.raises(SbmtError, match=words):
                layer(x, x, x, cache=Cache(), **masks)
        layer, cache = SBMAttention(4, 3, 5, causal=True).eval(), Cache()
        layer(x, x, x, cache=cache)
        with pytest.raises(SbmtError, match=r"as in the cache, got \(1, 3\)"):
            layer(*[x[:1]] * 3, cache=cache)
    with pytest.raises(SbmtError, match=r"torch.no_grad\(\) with a cache, got enabled gradients"):
        layer(x, x, x, cache=Cache())
    with pytest.raises(SbmtError, match="SBMAttention in the encoder is not causal"):
        CausalLM(Encoder(11, 64, n_clusters=5, **SIZES))
    model = make_model("none", attention="full", transform_heads=lambda query, key: (query, key))
    with pytest.raises(SbmtError, match="transform_heads that takes first="):
        model.generate(ids(), 2)
    model = make_model(attention="full")
    for options, words in (({"temperature": -1.0}, "temperature"), ({"top_k": 0}, "top_k"), ({"n_new": 0}, "n_new")):
        with pytest.raises(SbmtError, match=words):
            model.generate(ids(), **{"n_new": 1} | options)
    for given, words in ((ids() > 20, "elsewhere in row 0"), (torch.arange(N).expand(2, N) < 9, "elsewhere in row 0")):
        with pytest.raises(SbmtError, match=words):
            model.generate(ids(), 1, mask=given)
    with pytest.raises(SbmtError, match="mask of shape"):
        model.generate(ids(), 1, mask=torch.ones(2, 3).bool())
    with pytest.raises(SbmtError, match="at most 64 tokens, got 65"):
        make_model("learned", attention="full").generate(ids(), 40)

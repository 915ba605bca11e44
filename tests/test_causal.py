"""Tests causal masks: the law of the remaining pairs, and no effect of later tokens on earlier ones."""

import pytest
import torch
from torch import nn
from torch.nn.attention.flex_attention import create_mask

from sbmt import BlockModel, EdgeList, MultiHeadAttention, SBMAttention, SbmtError, build_attention, sample_edges
from sbmt.block_model.crossed import CrossedModel, part_memberships
from sbmt.graph.patterns import all_pairs, sliding_window
from sbmt.layers.registry import ATTENTIONS, parameters_of
from sbmt.samplers import SAMPLERS, Sampler
from sbmt.samplers.exact import sample_with_torch
from tests.gradients import assert_same_gradients
from tests.layers.inputs import seeded, tokens
from tests.statistics import binomial_p_values

HEADS, N, M = 2, 22, 26
KEYS = torch.arange(M).remainder(7) != 3  # padding before, between and after real keys
BLOCK = torch.tensor([[0.1, 0.02, 0.3], [0.01, 0.05, 0.02], [0.0, 0.3, 0.1]])
KINDS = ["bilinear", "poisson", "crossed"]
SETTINGS = {
    "faithful": dict(preset="faithful", n_clusters=5),
    "recommended": dict(preset="recommended", n_clusters=5, dropout=0.2),
    "fitted": dict(preset="fitted", n_clusters=64),
    "window": dict(preset="fitted", n_clusters=64, window=4, reweight=False, sink=False),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(params=[*SAMPLERS, "torch", "torch by candidates"])
def sampler(request, monkeypatch):
    """Runs a test with every sampler, and with the exact sampler where there is no compiler."""
    if "torch" not in request.param:
        return request.param
    monkeypatch.setitem(SAMPLERS, "torch", Sampler(sample_with_torch))
    if request.param != "torch":
        monkeypatch.setattr("sbmt.samplers.exact.DENSE_SHARE", float("inf"))
    return "torch"


def leaves(kind, n_queries=N, n_keys=M, seed=5, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    if kind == "crossed":
        shapes = [(1, HEADS, 4, 3, n) for n in (n_queries, n_keys)]
        query, key = (2 * torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes)
        block = torch.rand(HEADS, 4, 3, 3, generator=generator, dtype=dtype) / 2
    else:
        shapes = [(1, HEADS, n, 3) for n in (n_queries, n_keys)]
        query, key = (torch.rand(shape, generator=generator, dtype=dtype) ** 2 for shape in shapes)
        block = BLOCK.to(dtype).expand(HEADS, 3, 3).clone()
    return [leaf.requires_grad_() for leaf in (query, block, key)]


def model_of(kind, parts, n_examples=1, key_mask=None, causal=True):
    query, block, key = parts
    mask = None if key_mask is None else key_mask.expand(n_examples, -1)
    if kind != "crossed":
        query, key = (x.expand(n_examples, -1, -1, -1) for x in (query, key))
        return BlockModel(query, block, key, None, mask, kind, causal)
    chosen = [[x.expand(n_examples, -1, -1, -1) for x in part_memberships(part)] for part in (query, key)]
    return CrossedModel(tuple(chosen[0]), block, tuple(chosen[1]), None, mask, causal)


def rates(model):
    """Returns the probabilities of all pairs from dense memberships."""
    return model.query_membership @ model.block_matrix @ model.key_membership.mT


# --- the law ---


@each_kind
@pytest.mark.statistical(share=0.0002)
@pytest.mark.parametrize("exploration", [0.0, 0.05])
def test_pairs_up_to_a_query_keep_their_law_and_later_ones_are_none(kind, exploration, sampler, judge):
    n_masks = 1000
    model = model_of(kind, [leaf.detach() for leaf in leaves(kind)], n_masks, KEYS)
    edges = sample_edges(model, sampler, exploration=exploration, generator=seeded())
    EdgeList(edges.row_ptr, edges.keys, edges.shape, *edges.masks, check=True)
    rate = rates(model)[0] + exploration
    law = -torch.expm1(-rate) if sampler == "fastrg" or kind != "bilinear" else rate.clamp(max=1)
    law = (law * KEYS).tril(M - N)
    assert 0.001 < law[law > 0].min() < law.max() < 0.9
    judge(binomial_p_values(edges.to_dense().sum(0), n_masks, law))


@each_kind
def test_later_tokens_do_not_affect_earlier_edges(kind, sampler):
    first, second = (leaves(kind, N, N, seed) for seed in (1, 2))
    changed = 13
    axis = 4 if kind == "crossed" else 2
    for mine, other in ((first[0], second[0]), (first[2], second[2])):
        with torch.no_grad():
            other.narrow(axis, 0, changed).copy_(mine.narrow(axis, 0, changed))
    second[1] = first[1]
    n_drawn = 0
    for seed in range(2):
        drawn = [
            sample_edges(model_of(kind, x, 20), sampler, exploration=0.02, generator=seeded(seed))
            for x in (first, second)
        ]
        before, after = (edges.to_dense()[:, :, :changed] for edges in drawn)
        assert torch.equal(before, after)
        n_drawn += int(before.sum())
    assert n_drawn > 100


@each_kind
@pytest.mark.parametrize("numbers_at_once", [2 * HEADS * 71 * 2, 1 << 24])
def test_sums_and_densities_are_those_of_pairs_up_to_each_query(kind, numbers_at_once, monkeypatch):
    monkeypatch.setattr("sbmt.block_model.model._NUMBERS_AT_ONCE", numbers_at_once)
    parts = leaves(kind, 37, 71)
    model = model_of(kind, parts, 2, torch.arange(71) < torch.tensor([[60], [71]]))
    pairs = rates(model).tril(71 - 37)
    torch.testing.assert_close(model.sum_of_rates(), pairs.sum((2, 3)), rtol=1e-12, atol=0)
    assert_same_gradients(model.sum_of_rates(), pairs.sum((2, 3)), parts, rtol=1e-9)
    is_pair = torch.ones(2, 37, 71, dtype=torch.bool).tril(71 - 37) & model.key_mask[:, None]
    assert model.n_pairs.tolist() == is_pair.sum((1, 2)).tolist()
    assert not model.expected_mask()[:, :, ~torch.ones(37, 71, dtype=torch.bool).tril(71 - 37)].any()
    mean = model.expected_mask(0.1).sum((2, 3)) / model.n_pairs[:, None]
    torch.testing.assert_close(model.expected_density(0.1), mean, rtol=1e-10, atol=0)


# --- edges ---


def test_edge_lists_record_that_they_are_causal():
    mask = torch.rand(2, HEADS, 6, 9, generator=seeded()) < 0.4
    with pytest.raises(SbmtError, match="keys no later than the query"):
        EdgeList.from_dense(mask, causal=True)
    edges = EdgeList.from_dense(mask.tril(3), causal=True)
    every = all_pairs(edges.shape, causal=True)
    assert torch.equal(every.to_dense(), torch.ones_like(mask).tril(3)) and every.density().eq(1).all()
    torch.testing.assert_close(edges.density(), edges.to_dense().sum((2, 3)) / every.n_pairs[:, None])
    assert edges.union(every).causal and edges.to("cpu").causal and "causal" in repr(edges)
    with pytest.raises(SbmtError, match="the same causal"):
        edges.union(EdgeList.from_dense(mask))
    with pytest.raises(SbmtError, match="at least as many keys as queries with causal=True, got 6 queries and 5 keys"):
        all_pairs((1, 1, 6, 5), causal=True)


def test_windows_of_the_last_queries_are_around_their_positions():
    keys = torch.arange(9)[None] != 4
    edges = EdgeList.from_dense(torch.zeros(1, 2, 6, 9, dtype=torch.bool), key_mask=keys, causal=True).with_window(4)
    near = torch.ones(6, 9, dtype=torch.bool).tril(3).triu(1) & keys
    assert torch.equal(edges.to_dense(), near.expand(1, 2, 6, 9)) and edges.is_near(4).all()
    assert torch.equal(sliding_window(edges.shape, 4, None, edges.key_mask, True).to_dense(), edges.to_dense())
    layer = build_attention("sbm", preset="fitted", d_head=4, n_heads=3, n_clusters=16, causal=True, window=4)
    query, key = tokens(n=6), tokens(n=9)
    drawn = layer(query, key, key, key_mask=keys.expand(2, -1), return_edges=True).edges
    assert (drawn.to_dense() | ~near.expand(drawn.shape)).all()
    assert torch.equal(drawn.is_near(4), near.expand(drawn.shape)[drawn.to_dense()])


def test_flex_attention_uses_the_same_mask():
    edges = sample_edges(model_of("poisson", leaves("poisson", 40, 40)), generator=seeded())
    blocks = edges.to_block_mask(16)
    found = create_mask(blocks.mask_mod, 1, HEADS, 40, 40, device="cpu")
    assert torch.equal(found, edges.to_dense()) and 0 < edges.n_edges


# --- layers ---


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("backend", ["auto", "dense", "pyg"])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_earlier_outputs_stay_bit_for_bit_and_send_no_gradient_to_later_tokens(name, backend, padding):
    torch.manual_seed(0)
    layer = MultiHeadAttention(16, 4, causal=True, backend=backend, **SETTINGS[name])
    n, n_before = 24, 15
    mask = {"none": None, "left": torch.arange(n)[None] < 3, "right": torch.arange(n)[None] >= 20}[padding]
    first = torch.randn(1, n, 16)
    second = torch.cat([first[:, :n_before], torch.randn(1, n - n_before, 16)], 1)
    results = []
    for x in (first, second):
        x.requires_grad_()
        out, attended = layer(x, x, x, mask, generator=seeded(), return_edges=True)
        (grad,) = torch.autograd.grad(out[:, :n_before].sin().sum(), x)
        assert grad[:, n_before:].eq(0).all() and grad[:, :n_before].ne(0).any()
        results.append((out[:, :n_before], attended.edges.to_dense()[:, :, :n_before], grad[:, :n_before]))
    for mine, theirs in zip(*results, strict=True):
        assert torch.equal(mine, theirs)
    assert attended.edges.n_edges > n


def test_the_last_queries_attend_as_in_the_whole_sequence():
    layer = SBMAttention(4, 3, 5, causal=True, exploration=0.0).double()
    query, key, value = (tokens(n=N, seed=seed, dtype=torch.float64) for seed in range(3))
    every, last = layer.block_model(query, key), layer.block_model(query[:, :, -6:], key)
    torch.testing.assert_close(last.expected_mask(), every.expected_mask()[:, :, -6:])
    with pytest.raises(SbmtError, match="at least as many keys as queries"):
        layer(query, key[:, :, :5], value[:, :, :5])


def test_torch_s_layers_may_pass_is_causal():
    mask = nn.Transformer.generate_square_subsequent_mask(9)
    x = torch.randn(2, 9, 16)
    for module in (
        nn.TransformerEncoderLayer(16, 4, batch_first=True),
        nn.TransformerDecoderLayer(16, 4, batch_first=True),
    ):
        module.self_attn = MultiHeadAttention(16, 4, n_clusters=5, causal=True)
        inputs = (x,) if isinstance(module, nn.TransformerEncoderLayer) else (x, x)
        name = "src_mask" if len(inputs) == 1 else "tgt_mask"
        causal = {"is_causal": True} if len(inputs) == 1 else {"tgt_is_causal": True}
        assert module(*inputs, **{name: mask}, **causal).isfinite().all()
    layer = module.self_attn
    layer(x, x, x, attn_mask=mask == -torch.inf, is_causal=True)
    for wrong in (torch.zeros(9, 9), mask.mT, mask[:5]):
        with pytest.raises(SbmtError, match="no attn_mask"):
            layer(x, x, x, attn_mask=wrong, is_causal=True)
    with pytest.raises(SbmtError, match="is_causal=True requires a causal layer"):
        MultiHeadAttention(16, 4, n_clusters=5)(x, x, x, is_causal=True)


def causal_attentions():
    return [name for name, kind in ATTENTIONS.items() if "causal" in parameters_of(kind)]


@pytest.mark.parametrize("name", causal_attentions())
@pytest.mark.parametrize("n_keys", [70, 150])
def test_no_attention_reads_later_keys(name, n_keys):
    """Outputs of queries change with earlier tokens but not with later ones; padding is left out."""
    sizes = {"n_positions": n_keys} if "n_positions" in parameters_of(ATTENTIONS[name]) else {}
    layer = build_attention(name, d_head=4, n_heads=2, causal=True, **sizes).double().eval()
    query, key, value = (torch.randn(2, 2, n, 4, dtype=torch.float64) for n in (70, n_keys, n_keys))
    key_mask = torch.rand(2, n_keys) < 0.8
    query_mask = key_mask[:, -70:]
    end, found = n_keys - 30, []
    for changed in (slice(n_keys, None), slice(end, None), slice(0, 5)):
        keys, values = key.clone(), value.clone()
        keys[:, :, changed], values[:, :, changed] = 7.0, -7.0
        torch.manual_seed(0)
        out = layer(query, keys, values, query_mask=query_mask, key_mask=key_mask).values
        found.append(out[:, :, :40])
    torch.testing.assert_close(found[1], found[0])
    if name != "random_mask":  # its few edges may lead elsewhere
        assert not torch.allclose(found[2], found[0])


def test_causal_linear_attention_is_the_quotient_of_its_sums():
    layer = build_attention("linear", d_head=4, n_heads=2, causal=True).double()
    query, key, value = (torch.randn(2, 2, n, 4, dtype=torch.float64, requires_grad=True) for n in (70, 150, 150))
    key_mask = torch.rand(2, 150) < 0.5
    scores = layer.log_features(query).exp() @ layer.log_features(key).exp().mT
    scores = scores.tril(80) * key_mask[:, None, None]
    wanted = scores @ value / scores.sum(-1, keepdim=True)
    found = layer(query, key, value, key_mask=key_mask).values
    torch.testing.assert_close(found, wanted)
    assert_same_gradients(found, wanted, (query, key, value), rtol=1e-7, atol=1e-7)

"""Tests measures of how much of full attention masks cover."""

import pytest
import torch
from torch import nn

import sbmt
from sbmt.graph.patterns import sliding_window
from sbmt.sparsification import measure_masks
from sbmt.sparsification.fit import seen_heads

WIDTH, HEADS, N = 16, 2, 12


@pytest.fixture
def model():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, dropout=0.0, batch_first=True)
    return sbmt.sparsify(nn.TransformerEncoder(layer, 2).eval(), edges_per_query=4.0, n_clusters=16)


def batch(seed=0):
    x = torch.randn(3, N, WIDTH, generator=torch.Generator().manual_seed(seed))
    return {"src": x, "src_key_padding_mask": torch.arange(N) >= torch.tensor([N, 7, 1])[:, None]}


def window(model):
    """Returns windows in place of all masks."""
    return {
        name: sbmt.build_attention("random_mask", d_head=8, n_heads=HEADS, mask_density=0.0, window=4)
        for name in seen_heads(model, batch())
    }


def test_measures_are_those_of_their_definition(model):
    report = measure_masks(model, [batch(), batch(1)], window(model))
    sums = {name: torch.zeros(6, HEADS, dtype=torch.float64) for name in report.layers}
    n_queries = 0
    for b in (batch(), batch(1)):
        for name, heads in seen_heads(model, b).items():
            for example, n in enumerate((N, 7, 1)):
                q, k, v = (x[example, :, :n].double() for x in (heads.query, heads.key, heads.value))
                scores = q @ k.mT / q.shape[-1] ** 0.5
                near = sliding_window((1, 1, n, n), 4).to_dense()[0, 0]
                a, w = scores.softmax(-1), scores.masked_fill(~near, -torch.inf).softmax(-1)
                per_query = (
                    (a * near).sum(-1),
                    near.double().mean() * torch.ones(HEADS, n),
                    1 / w.square().sum(-1),
                    1 / a.square().sum(-1),
                    (w @ v - a @ v).square().sum(-1),
                    (a @ v).square().sum(-1),
                )
                sums[name] += torch.stack([x.double().sum(-1) for x in per_query])
        n_queries += N + 7 + 1
    for name, quality in report.layers.items():
        mass, density, effective, attended, missed, size = sums[name]
        for found, wanted in (
            (quality.attention_mass, mass / n_queries),
            (quality.density, density / n_queries),
            (quality.effective_keys, effective / n_queries),
            (quality.attended_keys, attended / n_queries),
            (quality.error, (missed / size).sqrt()),
        ):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)


def test_layers_get_the_inputs_of_full_attention(model):
    """Masks of lower layers do not affect the inputs on which higher layers are measured."""
    once, again = seen_heads(model, batch()), seen_heads(model, batch())
    assert all(torch.equal(once[name].query, again[name].query) for name in once)
    assert [heads.query.shape for heads in once.values()] == [(3, HEADS, N, 8)] * 2


@pytest.mark.parametrize(
    ("settings", "sees", "error"),
    [({"name": "full"}, 1.0, 0.0), ({"name": "random_mask", "mask_density": 0.0}, 0.0, 1.0)],
    ids=["full", "empty"],
)
def test_full_attention_sees_everything_and_an_empty_mask_nothing(model, settings, sees, error):
    masks = {name: sbmt.build_attention(d_head=8, n_heads=HEADS, **settings) for name in seen_heads(model, batch())}
    report = measure_masks(model, [batch()], masks)
    assert report.mean("attention_mass") == pytest.approx(sees) and report.mean("density") == pytest.approx(sees)
    assert report.mean("error") == pytest.approx(error, abs=1e-5)
    assert report.mean("effective_keys") == pytest.approx(sees * report.mean("attended_keys"), rel=1e-4)


def test_layers_may_differ_in_their_heads_and_lengths():
    layers = nn.Sequential(*(nn.TransformerEncoderLayer(WIDTH, h, 8, dropout=0.0, batch_first=True) for h in (2, 4)))
    report = measure_masks(sbmt.sparsify(layers.eval(), edges_per_query=4.0, n_clusters=16), [batch()["src"]])
    assert [len(quality.attention_mass) for quality in report.layers.values()] == [2, 4]
    assert len(str(report).splitlines()) == 1 + 2 + 4 and 0 < report.mean("attention_mass") <= 1
    model = nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True).eval()
    sparse = sbmt.sparsify(model, edges_per_query=4.0, n_clusters=16)
    source, target = torch.randn(2, 40, 16), torch.randn(2, 5, 16)
    heads = seen_heads(sparse, (source, target))
    assert sorted(h.query.shape[2] for h in heads.values()) == [5, 5, 40]
    full = {name: sbmt.build_attention("full", d_head=8, n_heads=2) for name in heads}
    assert measure_masks(sparse, [(source, target)], full).mean("density") == 1


def test_all_calls_of_a_shared_layer_are_measured():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 8, dropout=0.0, batch_first=True).eval()
    x = batch()["src"]
    near = sbmt.build_attention("random_mask", d_head=8, n_heads=HEADS, mask_density=0.0, window=4)
    found = []
    for model, inputs in ((nn.Sequential(layer, layer), [x]), (layer, [x, layer(x).detach()])):
        sparse = sbmt.sparsify(model, edges_per_query=4.0, n_clusters=16)
        (quality,) = measure_masks(sparse, inputs, dict.fromkeys(seen_heads(sparse, x), near)).layers.values()
        found.append(quality)
    for one, other in zip(*(vars(quality).values() for quality in found), strict=True):
        torch.testing.assert_close(one, other)


def test_measuring_does_not_change_the_model(model):
    model.layers[0].train()
    layer = model.layers[0].self_attn.attention
    layer.is_dense, layer.node_mlp.training = True, False
    modes = [module.training for module in model.modules()]
    before = {name: t.clone() for name, t in model.state_dict().items()}
    measure_masks(model, [batch()])
    assert layer.is_dense
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(t, before[name]) for name, t in model.state_dict().items())


@pytest.mark.bad_input
def test_layers_that_nothing_reaches_or_without_a_mask_are_named(model):
    masks = window(model)
    del masks["layers.1.self_attn.attention"]
    with pytest.raises(sbmt.SbmtError, match=r"a mask for every fitted layer, got none for layers\.1"):
        measure_masks(model, [batch()], masks)
    with pytest.raises(sbmt.SbmtError, match="batches that reach every fitted layer"):
        measure_masks(model, [])
    model.unused = sbmt.sparsify(nn.MultiheadAttention(WIDTH, HEADS), edges_per_query=4.0, n_clusters=16)
    with pytest.raises(sbmt.SbmtError, match=r"every fitted layer, got none that reach unused\.attention"):
        measure_masks(model, [batch()])

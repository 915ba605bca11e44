"""The static control draws its masks from positions: everything else is SBMAttention."""

import pytest
import torch

from sbmt.attention import edge_attention
from sbmt.errors import SbmtError
from sbmt.layers import SBMAttention
from sbmt.layers.sbm_static import StaticSBMAttention
from tests.layers.inputs import seeded, tokens
from tests.statistics import joint_p_values

MASK = torch.arange(8) < torch.tensor([[8], [3]])


def make(n_clusters=5, n_positions=10, **settings):
    torch.manual_seed(0)
    return StaticSBMAttention(4, 3, n_clusters, n_positions=n_positions, **settings)


def expected_mask(layer, query, key, *masks):
    return layer.block_model(query, key, *masks).expected_mask()


@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_the_block_model_is_that_of_the_tables(link):
    layer = make(link=link).double()
    query, key = tokens(2, 3, 8, dtype=torch.float64), tokens(2, 3, 6, seed=1, dtype=torch.float64)
    plain = SBMAttention(4, 3, 5, link=link).double()
    plain.load_state_dict({name: p for name, p in layer.state_dict().items() if "positions" not in name})
    tables = [t[None].expand(2, -1, -1, -1) for t in (layer.query_positions[:, :8], layer.key_positions[:, :6])]
    key_mask = MASK[:, :6]
    torch.testing.assert_close(
        expected_mask(layer, query, key, MASK, key_mask),
        expected_mask(plain, *tables, MASK, key_mask),
        rtol=0,
        atol=1e-12,
    )


def test_the_input_does_not_reach_the_masks():
    layer, x = make(), tokens()
    others = tokens(seed=1), x[:, :, torch.randperm(8)], x[[1, 0]], torch.full_like(x, torch.nan)
    for other in others:
        assert torch.equal(expected_mask(layer, x, x, MASK, MASK), expected_mask(layer, other, other, MASK, MASK))
        edges = [layer(y, y, y, generator=seeded(), return_edges=True).edges for y in (x, other)]
        assert torch.equal(edges[0].cells(), edges[1].cells())
    assert not torch.equal(*(SBMAttention(4, 3, 5).block_model(y, y).expected_mask() for y in (x, others[0])))


def test_it_attends_with_the_real_queries_and_keys():
    layer, query, key, value = make().eval(), *(tokens(seed=s).requires_grad_() for s in range(3))
    out = layer(query, key, value, query_mask=MASK, key_mask=MASK, return_edges=True)
    torch.testing.assert_close(out.values, edge_attention(query, key, value, out.edges))
    gradients = torch.autograd.grad(out.values.square().sum(), [query, key, value])
    assert all((g != 0).any() for g in gradients)


@pytest.mark.parametrize("what", ["values", "density", "expected_density"])
def test_gradients_reach_the_tables_where_there_are_tokens(what):
    layer, x = make(), tokens(n=7)
    real = torch.arange(7) < torch.tensor([[5], [4]])
    getattr(layer(x, x, x, query_mask=real, key_mask=real, generator=seeded()), what).square().sum().backward()
    for table in (layer.query_positions, layer.key_positions):
        reached = (table.grad != 0).any(-1)
        assert reached[:, :5].any(0).all() and not reached[:, 5:].any()  # a head may have met a dead ReLU
    assert all((p.grad != 0).any() for p in layer.parameters())


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("sampler", ["exact", "bernoulli"])
def test_every_example_draws_a_mask_of_its_own(sampler, judge):
    """Cells of neighbouring examples are both edges as often as independent ones are."""
    layer = make(sampler=sampler).eval()
    with torch.no_grad():
        layer.clusters.mul_(4)
    x = tokens(2000, 3, 4)
    edges = layer(x, x, x, generator=seeded(), return_edges=True).edges
    assert edges.shape == (2000, 3, 4, 4)
    masks, p = edges.to_dense().numpy(), expected_mask(layer, x[:1], x[:1])[0].detach().double().numpy()
    judge(joint_p_values(masks[::2], masks[1::2], p, p), joint_p_values(masks, masks, p**0.5, p**0.5))


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(
    "settings", [{}, dict(sampler="fastrg"), dict(sampler="bernoulli"), dict(exploration=0.2)], ids=str
)
def test_shapes_follow_the_batch(settings, batch):
    layer, x = make(**settings), tokens(batch, n=6)
    real = torch.arange(6) < torch.tensor([[3], [6], [0], [1], [6]])[:batch]
    for masks in ({}, dict(query_mask=real, key_mask=real), dict(key_mask=real)):
        out = layer(x, x, x, return_edges=True, **masks)
        assert out.values.shape == x.shape and out.edges.shape == (batch, 3, 6, 6)
        assert out.density.shape == out.expected_density.shape == (batch, 3)
        torch.testing.assert_close(out.density, out.edges.density())


@pytest.mark.parametrize("n_queries, n_keys", [(1, 6), (6, 1), (4, 7)])
def test_queries_and_keys_differ_in_number(n_queries, n_keys):
    layer, query, key = make(), tokens(n=n_queries), tokens(n=n_keys)
    out = layer(query, key, key, return_edges=True)
    assert out.edges.shape == (2, 3, n_queries, n_keys) and out.values.shape == query.shape


def test_every_edge_starts_near_one_quarter():
    torch.manual_seed(0)
    layer = StaticSBMAttention(d_head=32, n_heads=4, n_positions=64)
    x = tokens(2, 4, 64, 32)
    expected = expected_mask(layer, x, x)
    assert expected.min() > 0.2 and expected.max() < 0.3
    assert torch.allclose(layer(x, x, x, generator=seeded()).density, torch.tensor(0.26), atol=0.03)


def test_the_tables_are_parameters_and_start_standard_normal():
    torch.manual_seed(0)
    layer = StaticSBMAttention(16, 2, 4, n_positions=100)
    plain = {name for name, _ in SBMAttention(16, 2, 4).named_parameters()}
    assert {name for name, _ in layer.named_parameters()} - plain == {"query_positions", "key_positions"}
    for table in (layer.query_positions, layer.key_positions):
        assert table.shape == (2, 100, 16)
        assert abs(table.std() - 1) < 0.1 and abs(table.mean()) < 0.1
    assert not torch.equal(layer.query_positions, layer.key_positions)


def test_settings_reach_sbm_attention():
    layer, x = make(window=2, exploration=0.3, dropout=0.5, sampler="bernoulli", gate_rule="weight"), tokens()
    first, second = (layer(x, x, x, generator=seeded(), return_edges=True) for _ in range(2))
    assert torch.equal(first.values, second.values)
    dense = first.edges.to_dense()
    assert dense.diagonal(dim1=2, dim2=3).all() and (first.density > first.expected_density).all()
    assert not torch.allclose(first.values, edge_attention(x, x, x, first.edges))
    calm = layer.eval()(x, x, x, generator=seeded(), return_edges=True)
    torch.testing.assert_close(calm.values, edge_attention(x, x, x, calm.edges))
    shown = repr(layer)
    assert "n_positions=10" in shown and "sampler='bernoulli'" in shown and "n_clusters=5" in shown


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_number_types(dtype):
    layer, x = make().to(dtype), tokens().to(dtype)
    out = layer(x, x, x)
    assert out.values.dtype == dtype
    out.values.square().sum().backward()
    assert all((p.grad != 0).any() and p.grad.isfinite().all() for p in layer.parameters())


@pytest.mark.bad_input
def test_what_does_not_fit_is_refused():
    layer = make()
    short, long = tokens(n=10), tokens(n=11)
    layer(short, short, short)
    for query, key in ((long, long), (long, short), (short, long)):
        with pytest.raises(SbmtError, match="at most 10 tokens, got 11"):
            layer(query, key, key)
    for bad in (short[:, :2], short[..., :3]):
        with pytest.raises(SbmtError, match="3 heads of width 4"):
            layer(bad, bad, bad)
    with pytest.raises(SbmtError, match="n_positions"):
        make(n_positions=0)
    with pytest.raises(SbmtError, match="sampler among"):
        make(sampler="gumbel")
    with pytest.raises(TypeError, match="n_positions"):
        StaticSBMAttention(4, 3)

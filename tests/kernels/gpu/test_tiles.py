"""Attention whose mask is drawn in tiles equals the sampler ``bernoulli`` and attention along its edges."""

import pytest
import torch
import triton.language as tl

from sbmt import BlockModel, sample_edges, sbm_attention
from sbmt import edge_attention as attention_anywhere
from sbmt.attention.tiles import can_tile
from sbmt.block_model.density import sampled_density
from sbmt.graph.patterns import is_in_window, sliding_window
from sbmt.kernels.gpu import is_interpreted
from sbmt.kernels.gpu.tiles import launch as tile_launch
from sbmt.kernels.gpu.tiles.forward import poisson_link
from sbmt.kernels.gpu.toolchain import kernel
from tests.kernels.gpu.device import DEVICE

EXACT = torch.float64 if is_interpreted() else torch.float32  # Triton 3.6 builds no float64 tiles for GPUs
TOLERANCE = 1e-12 if EXACT == torch.float64 else 2e-5
THREE_TILES = dict(n_queries=37, n_keys=37, is_padded=True)
CASES = {
    "bipartite": dict(n_queries=20, n_keys=37),
    "padded": dict(n_queries=37, n_keys=20, is_padded=True, exploration=0.01, gate_rule="weight"),
    "poisson, window, dropout": dict(is_padded=True, link="poisson", window=4, dropout=0.2, exploration=0.01),
    "self-loops": dict(is_padded=True, window=0, dropout=0.1, link="poisson", gate_rule="weight"),
    "everything certain": dict(density=9.0),
    "no edge": dict(density=0.0),
    "one token": dict(n_queries=1, n_keys=1, d=1, d_value=1, n_clusters=1),
    "many clusters, wide values": dict(n_clusters=33, d=20, d_value=40, n_queries=18, n_keys=19),
}


@pytest.fixture
def small_tiles(monkeypatch):
    """Several tiles in either direction, however short the sequences."""
    monkeypatch.setattr(tile_launch, "TILE", 16)


def make_inputs(
    n_queries=20, n_keys=20, d=5, d_value=7, n_clusters=6, link="bilinear", is_padded=False, density=1.0, dtype=EXACT,
    seed=0, **_,
):  # fmt: skip
    """Tokens and memberships that require gradients, an asymmetric block matrix, and the block model."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(draw, *shape):
        return draw(*shape, generator=generator, dtype=torch.float64)

    tokens = [drawn(torch.randn, 2, 2, *shape) for shape in ((n_queries, d), (n_keys, d), (n_keys, d_value))]
    block = (drawn(torch.rand, 2, n_clusters, n_clusters) * 2 * density / n_clusters).clamp(max=1.0)
    memberships = [drawn(torch.rand, 2, 2, n, n_clusters) for n in (n_queries, n_keys)]
    leaves = [t.to(DEVICE, dtype).requires_grad_() for t in (*tokens, memberships[0], block, memberships[1])]
    masks = [None, None]
    if is_padded:  # the second example has no query
        masks = [torch.arange(n) < torch.tensor([[n - 3], [end]]) for n, end in ((n_queries, 0), (n_keys, n_keys))]
        masks = [mask.to(DEVICE) for mask in masks]
    return leaves, BlockModel(leaves[3], leaves[4], leaves[5], *masks, link=link)


def by_rows(leaves, model, edges_of, *, gate_rule="score", window=None, dropout=0.0, exploration=0.0, **_):
    """Values and density by the oracle's edges and messages along them."""
    edges = sample_edges(model, "bernoulli", exploration=exploration, generator=edges_of)
    if window is not None:
        edges = edges.union(
            sliding_window(edges.shape, window, edges.query_mask, edges.key_mask, device=edges.keys.device)
        )
    gate = model.gate(edges)
    if window is not None:
        gate = gate.masked_fill(is_in_window(edges, window), 1.0)
    settings = dict(gate_rule=gate_rule, dropout=dropout, generator=edges_of, backend="pyg")
    return attention_anywhere(*leaves[:3], edges, gate, **settings), sampled_density(edges, gate)


def seeded():
    return torch.Generator().manual_seed(5)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", CASES)
def test_values_density_and_gradients_are_those_along_rows(name):
    assert_tiles_are_rows(CASES[name])


def test_tiles_of_the_usual_size():
    assert_tiles_are_rows(dict(n_queries=70, n_keys=70, is_padded=True, exploration=0.01, density=0.1))


def assert_tiles_are_rows(case):
    leaves, model = make_inputs(**case)
    allowed = {k: case[k] for k in ("gate_rule", "window", "dropout", "exploration") if k in case}
    out = sbm_attention(*leaves[:3], model, sampler="bernoulli", backend="gpu", generator=seeded(), **allowed)
    values, density = by_rows(leaves, model, seeded(), **case)
    assert out.edges is None and "attend_tiles" in out.values.grad_fn.name()
    torch.testing.assert_close(out.values, values, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(out.density, density.to(EXACT), rtol=0, atol=1e-6)  # counts over a float32 number
    torch.testing.assert_close(out.expected_density, model.expected_density())

    def gradients(values, density):
        weight = torch.linspace(-1, 2, values.numel(), dtype=EXACT, device=DEVICE).view_as(values)
        per_graph = torch.linspace(10, 30, density.numel(), dtype=EXACT, device=DEVICE).view_as(density)
        total = (values * weight).sum() + (density * per_graph).sum()
        return torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True, retain_graph=True)

    for mine, theirs in zip(gradients(out.values, out.density), gradients(values, density), strict=True):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, theirs, rtol=TOLERANCE, atol=20 * TOLERANCE)


@pytest.mark.usefixtures("small_tiles")
def test_what_stands_at_padded_tokens_is_never_read():
    leaves, model = make_inputs(is_padded=True)
    settings = dict(sampler="bernoulli", backend="gpu")
    clean = sbm_attention(*leaves[:3], model, generator=seeded(), **settings)
    masks = model.query_mask, model.key_mask, model.key_mask
    spoilt = [
        torch.where(mask[:, None, :, None], t.detach(), torch.nan).requires_grad_()
        for t, mask in zip(leaves[:3], masks, strict=True)
    ]
    dirty = sbm_attention(*spoilt, model, generator=seeded(), **settings)
    torch.testing.assert_close(dirty.values, clean.values, rtol=0, atol=0)
    for grad in torch.autograd.grad(dirty.values.sum(), [*spoilt, *leaves[3:]]):
        assert grad.isfinite().all()


@pytest.mark.usefixtures("small_tiles")
def test_half_a_batch_draws_its_half():
    leaves, model = make_inputs()
    halves = BlockModel(leaves[3][1:], leaves[4], leaves[5][1:])
    settings = dict(sampler="bernoulli", backend="gpu", dropout=0.3)
    whole = sbm_attention(*leaves[:3], model, generator=seeded(), **settings)
    tokens = [t[1:] for t in leaves[:3]]
    half = sbm_attention(*tokens, halves, generator=seeded(), first_example=1, **settings)
    torch.testing.assert_close(half.values, whole.values[1:], rtol=0, atol=TOLERANCE)
    other = sbm_attention(*tokens, halves, generator=seeded(), **settings)
    assert not torch.equal(other.values, half.values)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    ("dtype", "gate_rule"), [(torch.bfloat16, "score"), (torch.float16, "weight"), (torch.float32, "score")]
)
def test_errors_are_at_most_twice_those_of_dense_attention(dtype, gate_rule):
    """By root mean square, against float64 along the same edges; memberships are float32 throughout."""
    leaves, _ = make_inputs(n_queries=48, n_keys=48, d=16, d_value=16, dtype=torch.float32, seed=3)
    rounded = [t.detach().to(dtype) for t in leaves[:3]]

    def results(how, kind):
        model_type = torch.promote_types(kind, torch.float32)
        new = [t.to(kind) for t in rounded] + [t.detach().to(model_type) for t in leaves[3:]]
        new = [t.requires_grad_() for t in new]
        model = BlockModel(*new[3:])
        if how == "tiles":
            settings = dict(sampler="bernoulli", backend="gpu", gate_rule=gate_rule)
            values = sbm_attention(*new[:3], model, generator=seeded(), **settings).values
        else:
            edges = sample_edges(model, "bernoulli", generator=seeded())
            values = attention_anywhere(*new[:3], edges, model.gate(edges), gate_rule=gate_rule, backend="dense")
        weight = torch.linspace(-1, 2, values.numel(), dtype=torch.float64, device=DEVICE).view_as(values)
        grads = torch.autograd.grad((values.double() * weight).sum(), new)
        return [x.detach().double() for x in (values, *grads)]

    exact, ours, theirs = results("dense", torch.float64), results("tiles", dtype), results("dense", dtype)
    names = ("values", "query", "key", "value", "query memberships", "blocks", "key memberships")
    for name, a, b, c in zip(names, exact, ours, theirs, strict=True):
        mine, yours = ((x - a).square().mean().sqrt() for x in (b, c))
        assert 0 < mine <= 2 * yours, (name, float(mine), float(yours))


@kernel
def write_link(rates, out, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(out + places, poisson_link(tl.load(rates + places)))


def test_small_rates_keep_their_digits():
    rates = torch.cat([torch.zeros(1), torch.logspace(-30, 4, 1023)]).to(DEVICE)
    out = torch.empty_like(rates)
    write_link[(1,)](rates, out, N=1024)
    torch.testing.assert_close(out, -torch.expm1(-rates), rtol=5e-7, atol=0)


@pytest.mark.usefixtures("small_tiles")
def test_edges_may_be_asked_for_and_other_samplers_and_many_clusters_go_along_rows():
    leaves, model = make_inputs()
    asked = sbm_attention(*leaves[:3], model, sampler="bernoulli", backend="gpu", generator=seeded(), return_edges=True)
    plain = sbm_attention(*leaves[:3], model, sampler="bernoulli", backend="gpu", generator=seeded())
    assert asked.edges is not None
    torch.testing.assert_close(asked.values, plain.values, rtol=0, atol=TOLERANCE)
    tokens, (_, many) = leaves[:3], make_inputs(n_clusters=257)
    assert not can_tile(tokens[0], tokens[2], many)
    for sampler, other in (("exact", model), ("bernoulli", many)):
        out = sbm_attention(*tokens, other, sampler=sampler, backend="gpu", generator=seeded())
        assert "attend_tiles" not in out.values.grad_fn.name()

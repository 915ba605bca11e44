"""The kernels of crossed partitions: which parts are chosen, the law of every edge, rates, and a layer as a whole."""

import numpy as np
import pytest
import torch

from sbmt import EdgeList
from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.link import find_link
from sbmt.block_model.model import blockwise
from sbmt.kernels.crossed import largest_parts
from sbmt.kernels.gpu import is_interpreted
from sbmt.layers import SBMAttention, functional
from sbmt.samplers import draw_edges
from sbmt.samplers.exact import sample_exact
from tests.block_model.crossed_models import N, both_models, edges_of, padding
from tests.kernels.gpu.device import DEVICE
from tests.statistics import binomial_p_values

SHARE = 0.001
N_KINDS, N_REPEATS, N_QUERIES = 6, 512, 4


@pytest.fixture(autouse=True)
def by_kernel(monkeypatch):
    """Always by these kernels, which draw more points at a time in the interpreter, whose time goes by operations."""
    for module in ("block_model.crossed", "block_model.fit", "samplers.exact", "attention.drawn", "attention.fitted"):
        monkeypatch.setattr(f"sbmt.{module}.can_run_on", lambda device: False)
    if is_interpreted():
        monkeypatch.setattr("sbmt.kernels.gpu.crossed.launch.POINTS", 1024)


@pytest.mark.parametrize(("size", "n_active"), [(16, 2), (5, 1), (5, 3), (2, 2), (1, 1)])
def test_the_largest_logits_are_chosen(size, n_active):
    logits = torch.randn(2, 3, 7, 4 * size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = largest_parts(logits.to(DEVICE), 4, n_active).cpu().long()
    best = logits.unflatten(-1, (4, size)).topk(n_active, -1).indices.sort(-1).values
    assert torch.equal(found, (best + size * torch.arange(4)[:, None]).flatten(-2))


def test_parts_are_valid_whatever_the_logits_are():
    logits = torch.tensor([[1.0, 1.0, 1.0], [-torch.inf, -torch.inf, -torch.inf], [torch.nan, 2.0, torch.nan]])
    found = largest_parts(logits.to(DEVICE), 1, 2).cpu()
    assert found.tolist() == [[0, 1], [0, 1], [0, 2]]


def repeated_model(masks=(None, None), scale=0.5):
    """Keys of a few kinds, each many times, so that one draw tells much about each probability."""
    generator = torch.Generator().manual_seed(1)
    size, partitions = 3, 4

    def members(n):
        part = torch.rand(1, 2, n, partitions, size, generator=generator).topk(2).indices.sort(-1).values
        weight = torch.rand(part.shape, generator=generator).softmax(-1)
        return (part + size * torch.arange(partitions)[:, None]).to(torch.int16).flatten(3), weight.flatten(3)

    query, kinds = members(N_QUERIES), members(N_KINDS)
    key = tuple(t.repeat(1, 1, N_REPEATS, 1) for t in kinds)
    blocks = scale * torch.rand(2, partitions, size, size, generator=generator)  # asymmetric
    sides = [tuple(t.to(DEVICE) for t in side) for side in (query, key)]
    masks = (mask if mask is None else mask.to(DEVICE) for mask in masks)
    return CrossedModel(sides[0], blocks.to(DEVICE), sides[1], *masks, find_link("poisson"))


def checked(edges):
    """The same edges after every check of :class:`EdgeList`, on the CPU."""
    tensors = (edges.row_ptr, edges.keys, edges.query_mask, edges.key_mask)
    row_ptr, keys, *masks = (t if t is None else t.cpu() for t in tensors)
    return EdgeList(row_ptr, keys, edges.shape, *masks, check=True)


@pytest.mark.statistical(share=SHARE)
@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("exploration", [0.0, 0.03])
def test_every_kind_of_pair_has_its_probability(exploration, is_padded, judge):
    masks, n_repeats = (None, None), N_REPEATS - 5 * is_padded
    if is_padded:
        is_real = torch.arange(N_KINDS * N_REPEATS) < N_KINDS * n_repeats
        masks = (torch.arange(N_QUERIES) != 1)[None], is_real[None]
    model = repeated_model(masks)
    mask = checked(sample_exact(model, exploration, 123456789, 3)).to_dense()[0]
    probability = model.expected_mask(exploration)[0, :, :, :N_KINDS].double().cpu().numpy()
    found = mask[..., : n_repeats * N_KINDS].unflatten(2, (n_repeats, N_KINDS)).sum(2).numpy()
    assert 0.02 < probability.mean() < 0.9
    judge(binomial_p_values(found, n_repeats, np.round(probability, 7)))


def test_edges_depend_on_seed_and_address_alone():
    model, _, _ = both_models(padding(), device=DEVICE)
    whole = checked(sample_exact(model, 0.02, 5, 0)).to_dense()
    parts = (model.query_part[1:], model._query[1:]), (model.key_part[1:], model._key[1:])
    masks = (mask[1:] for mask in (model.query_mask, model.key_mask))
    last = CrossedModel(parts[0], model.part_blocks, parts[1], *masks, model.link)
    assert torch.equal(checked(sample_exact(last, 0.02, 5, 1)).to_dense()[0], whole[1]) and whole[1].any()
    assert torch.equal(checked(sample_exact(model, 0.02, 5, 0)).to_dense(), whole)
    assert not torch.equal(checked(sample_exact(model, 0.02, 6, 0)).to_dense(), whole)


@pytest.mark.parametrize("n_points", [4, 1024])
@pytest.mark.parametrize("window", [0, 5, 1000])
@pytest.mark.parametrize("is_padded", [False, True])
def test_a_window_is_drawn_along_as_if_it_were_added(is_padded, window, n_points, monkeypatch):
    monkeypatch.setattr("sbmt.kernels.gpu.crossed.launch.POINTS", n_points)
    model, _, _ = both_models(device=DEVICE)
    key = tuple(t[:, :, :N] for t in (model.key_part, model._key))
    masks = [padding()[0].to(DEVICE), (torch.arange(N) < torch.tensor([[6], [N]])).to(DEVICE)]
    masks = masks if is_padded else (None, None)
    model = CrossedModel((model.query_part, model._query), 0.3 * model.part_blocks, key, *masks, model.link)
    alone, found = (checked(sample_exact(model, 0.02, 5, 0, width)) for width in (None, window))
    expected = alone.with_window(window)
    assert 0 < alone.n_edges < expected.n_edges
    assert torch.equal(found.row_ptr, expected.row_ptr) and torch.equal(found.keys, expected.keys)


def test_batches_of_points_continue_each_other(monkeypatch):
    """A row's points do not depend on how many are drawn at a time."""
    model, _, _ = both_models(scale=2.0, device=DEVICE)
    usual = sample_exact(model, 0.02, 5, 0)
    monkeypatch.setattr("sbmt.kernels.gpu.crossed.launch.POINTS", 4)
    again = sample_exact(model, 0.02, 5, 0)
    assert usual.n_edges > 100 and torch.equal(usual.keys, again.keys) and torch.equal(usual.row_ptr, again.row_ptr)


@pytest.mark.parametrize("offset", [-1, 1])
@pytest.mark.parametrize("exploration", [0.0, 0.02])
def test_as_many_points_are_written_as_were_counted(exploration, offset, monkeypatch):
    """Whatever the second pass would count: it may round otherwise."""
    model, _, _ = both_models(scale=2.0, device=DEVICE)
    usual, kept = checked(sample_exact(model, exploration, 5, 0)).to_dense().flatten(0, 2), torch.Tensor.cumsum

    def miscounted(counts, dim):
        if counts.shape == usual.shape[:1]:
            counts[7] += offset
        return kept(counts, dim)

    monkeypatch.setattr(torch.Tensor, "cumsum", miscounted)
    other = checked(sample_exact(model, exploration, 5, 0)).to_dense().flatten(0, 2)
    others = torch.arange(len(usual)) != 7
    assert usual[7].sum() > 1 and torch.equal(usual[others], other[others])


@pytest.mark.parametrize("value", [0.0, 1e15])
def test_rates_beyond_all_bounds_draw_every_key_and_rates_of_zero_none(value):
    model, _, _ = both_models(device=DEVICE)
    sides = (model.query_part, model._query), (model.key_part, model._key)
    model = CrossedModel(sides[0], torch.full_like(model.part_blocks, value), sides[1], None, None, model.link)
    assert checked(sample_exact(model, 0.0, 1, 0)).n_edges == (np.prod(model.shape) if value else 0)
    nobody = [torch.zeros(model.shape[0], n, dtype=torch.bool, device=DEVICE) for n in model.shape[2:]]
    model = CrossedModel(sides[0], model.part_blocks, sides[1], *nobody, model.link)
    assert checked(sample_exact(model, 0.1, 1, 0)).n_edges == 0


@pytest.mark.parametrize("is_padded", [False, True])
def test_rates_to_parts_and_their_gradients_are_products_with_the_blocks(is_padded):
    model, _, leaves = both_models(padding() if is_padded else (None, None), device=DEVICE)
    mine, theirs = model.part_rates(), blockwise(model._in_parts(model.query_part, model._query), model.part_blocks)
    torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-13)
    factors = torch.linspace(-1, 2, mine.numel(), dtype=mine.dtype, device=DEVICE).view_as(mine)
    used = [leaf for i, leaf in enumerate(leaves) if i != 1]  # all but the keys' tokens
    for x, y in zip(
        *(torch.autograd.grad((r * factors).sum(), used, retain_graph=True) for r in (mine, theirs)), strict=True
    ):
        assert y.abs().max() > 1e-3
        torch.testing.assert_close(x, y, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("density", [0.0, 0.3])
def test_rates_and_their_gradients_are_those_of_the_dense_model(density, is_padded):
    model, plain, leaves = both_models(padding() if is_padded else (None, None), device=DEVICE)
    edges, results = edges_of(model, density), []
    for one in (model, plain):
        rate = one.edge_rate(edges)
        factors = torch.linspace(-1, 2, rate.numel(), dtype=rate.dtype, device=DEVICE)
        results.append((rate, *torch.autograd.grad((rate * factors).sum(), leaves, allow_unused=True)))
    for mine, theirs in zip(*results, strict=True):
        assert density == 0 or theirs.abs().max() > 1e-3
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-11)


def test_rows_longer_than_a_block_of_edges(monkeypatch):
    monkeypatch.setattr("sbmt.kernels.gpu.crossed.launch.EDGES", 4)
    test_rates_and_their_gradients_are_those_of_the_dense_model(0.9, False)


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_layer_and_its_gradients_are_those_of_the_cpu(is_shared, monkeypatch):
    settings = dict(membership="crossed", link="poisson", n_groups=2, learning="likelihood", edges_per_query=3.0)
    layer = SBMAttention(4, 2, 18, **settings, reweight=True, sink=True, shared_graph=is_shared, window=2).double()
    leaves = [torch.randn(2, 2, 8, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    is_real = torch.tensor([[True] * 8, [True] * 5 + [False] * 3])
    drawn, found = [], []

    def results(device):
        mask = is_real.to(device)
        output = layer.to(device)(*(leaf.to(device) for leaf in leaves), query_mask=mask, key_mask=mask)
        total = output.values.square().sum() + 3 * output.auxiliary_loss
        grads = torch.autograd.grad(total, [*leaves, *layer.parameters()])
        found.append([t.cpu() for t in (output.values, output.auxiliary_loss, output.expected_density, *grads)])

    def draw_once(model, *arguments):
        drawn[:] = drawn or [draw_edges(model, *arguments)]
        return drawn[0].to(model.device)

    monkeypatch.setattr(functional, "draw_edges", draw_once)
    results(DEVICE)
    monkeypatch.undo()
    monkeypatch.setattr(functional, "draw_edges", draw_once)
    results(torch.device("cpu"))
    assert drawn[0].n_edges > 40 and all(t.abs().max() > 1e-6 for t in found[1])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-10)

"""Compares the kernels of the paper's masks with plain PyTorch, on a GPU if there is one, or else interpreted."""

import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from sbmt import BlockModel, build_attention
from sbmt.attention.dense import attend_dense
from sbmt.attention.inputs import EdgeTerms
from sbmt.block_model.fit import sampled_density
from sbmt.graph.edges import EdgeList
from sbmt.samplers.bernoulli import sample_bernoulli
from tests.kernels.on_gpu import CLOSE, DEVICE, random, without_shape_checks
from tests.statistics import binomial_p_values

pytest.importorskip("triton")
with without_shape_checks():
    from sbmt.kernels.gpu.edges import prepare_edges
    from sbmt.kernels.gpu.pairs import attend_pairs, can_attend, list_pairs, prepare_pairs

CASES = {  # n_queries, n_keys, sampler, gate rule, δ, reach, causal, masked, with a sink
    "recommended": (33, 33, "exact", "score", 0.02, 0, False, False, False),
    "padded, by weight, with a sink": (34, 36, "exact", "weight", 0.0, -1, False, True, True),
    "causal, padded, with a window": (5, 36, "exact", "score", 0.02, 1, True, True, False),
    "the law of Algorithm 1": (20, 9, "fastrg", "score", 0.02, -1, False, False, False),
    "edges, padded, by weight, with a sink": (4, 60, "exact", "weight", 0.02, -1, False, True, True),
    "edges with a window": (13, 13, "exact", "score", 0.02, 1, False, False, False),
    "edges by the law of Algorithm 1": (4, 60, "fastrg", "score", 0.0, -1, False, False, False),
}


@pytest.fixture
def draw_below(monkeypatch):
    """Sets the share of pairs up to which graphs of any size are drawn by edges."""
    monkeypatch.setattr("sbmt.kernels.gpu.pairs.FEWEST_KEYS", 1)
    return lambda share: monkeypatch.setattr("sbmt.kernels.gpu.edges.SPARSE_SHARE", share)


@pytest.mark.parametrize("case", CASES)
def test_values_densities_and_gradients_are_those_of_the_dense_twin(draw_below, case):
    """Uses tiles, along the edges of the Bernoulli sampler, which has the same uniform numbers."""
    is_tiled = not case.startswith("edges")
    draw_below(0.0 if is_tiled else 1.0)
    n, n_keys, sampler, rule, extra, reach, causal, masked, has_sink = CASES[case]
    query, key, value = random(2, 1, n, 3), random(2, 1, n_keys, 3), random(2, n_keys, 1, 5).transpose(1, 2)
    sink = random(1) if has_sink else None
    leaves = [query, key, value, random(2, 1, n, 2), random(2, 1, n_keys, 2), random(1, 2, 2), sink]
    leaves, masks = [x for x in leaves if x is not None], [None, None]
    if masked:  # padding, which is never read
        key_mask = torch.arange(n_keys, device=DEVICE) % 4 != torch.tensor([[1], [2]], device=DEVICE)
        masks = [key_mask[:, n_keys - n :], key_mask]
        value = value.masked_fill(~key_mask[:, None, :, None], torch.nan)
    block_matrix = (3 * leaves[5]).flatten(1).softmax(1).view(1, 2, 2)  # not symmetric
    largest = 1 if is_tiled and (masked or reach == 0) else 0.2
    given = largest * leaves[3].sigmoid(), block_matrix, leaves[4].sigmoid(), *masks
    model = BlockModel(*given, causal=causal)
    drawn_from = BlockModel(*given, "poisson", causal) if sampler == "fastrg" else model
    rest = torch.tensor(7, device=DEVICE), 3, extra, reach

    edges = EdgeList(*list_pairs(model, sampler == "fastrg", *rest), model.shape, *model.masks, check=True)
    known, window = sample_bernoulli(drawn_from, extra, 7, 3), None if reach < 0 else 2 * reach
    if is_tiled:
        assert torch.equal(edges.cells(), (known if window is None else known.with_window(window)).cells())
    else:
        alone = BlockModel(given[0][1:], block_matrix, given[2][1:], *(x if x is None else x[1:] for x in masks))
        _, keys = list_pairs(alone, sampler == "fastrg", rest[0], 4, extra, reach)
        assert torch.equal(keys, edges.keys[edges.row_ptr[n] :])
    assert bool((edges.degrees() == 0).any()) == (masked or reach < 0) and 0 < edges.n_edges < 0.6 * edges.cell_count

    settings = SimpleNamespace(sink=sink, sampler=sampler, gate_rule=rule)
    found = attend_pairs((query, key, value), model, settings, *rest)
    gate = model.gate(edges).masked_fill(edges.is_near(window), 1.0)
    values, _ = attend_dense(query, key, value, edges, EdgeTerms(gate, rule, None, sink))
    expected = values, sampled_density(edges, gate)
    gradients = [torch.randn_like(x) for x in expected]
    both = (torch.autograd.grad(outputs, leaves, gradients, retain_graph=True) for outputs in (found, expected))
    for one, other in zip((*found, *next(both)), (*expected, *next(both)), strict=True):
        torch.testing.assert_close(one, other, atol=CLOSE, rtol=CLOSE, check_dtype=False)
    assert has_sink or (found[0][edges.degrees().view(edges.shape[:3]) == 0] == 0).all()


N_KEYS = [4, 50, 1000, 946]  # of each kind
RATES = [[1.0, 0.0, 0.002, 0.0], [0.0, 0.5, 0.1, 0.0], [0.3, 0.3, 0.3, 0.1], [0.0] * 4]
N_ROWS = [2, 8, 1, 2]  # with the rates above for each kind of keys; the third row is drawn key by key


@pytest.mark.statistical(share=0.001)
@pytest.mark.parametrize("is_poisson", [False, True])
def test_edges_have_the_law(judge, monkeypatch, draw_below, is_poisson):
    monkeypatch.setattr("sbmt.kernels.gpu.pairs.TILE", 128)
    draw_below(1.0)
    rows, keys = (torch.eye(4).repeat_interleave(torch.tensor(n), 0) for n in (N_ROWS, N_KEYS))
    given = rows.expand(1, 1, -1, -1), torch.tensor([RATES]), keys.expand(1, 1, -1, -1)
    model, extra = BlockModel(*(x.to(DEVICE) for x in given), link="poisson" if is_poisson else "bilinear"), 0.003
    drawn = list_pairs(model, is_poisson, torch.tensor(7, device=DEVICE), 3, extra, -1)
    edges = EdgeList(*drawn, model.shape, check=True)  # every edge occurs once
    counts, rate = rows.T @ edges.to_dense()[0, 0].float().cpu() @ keys, torch.tensor(RATES).double() + extra
    chance = -torch.expm1(-rate) if is_poisson else rate.clamp(max=1)
    judge(binomial_p_values(counts.round(), np.outer(N_ROWS, N_KEYS), chance))


def test_sparse_graphs_are_drawn_by_edges_unless_they_are_causal_or_short():
    members, rates = torch.ones(1, 2, 100, 1, device=DEVICE), torch.tensor([0.015, 0.016], device=DEVICE)
    rates = rates[None, :, None, None].expand(1, 2, 3, 1)  # equally many candidates for each pair, in two heads
    for extra, known in ((0.0, [[True, False]]), (0.002, [[False, False]])):
        assert prepare_edges(rates, members, extra, True).is_sparse.tolist() == known
    for n, causal, known in ((100, False, False), (512, False, True), (512, True, False)):
        x, seed = torch.ones(1, 1, n, 1, device=DEVICE), torch.tensor(7, device=DEVICE)
        model = BlockModel(x, x[0, :, :1], x, causal=causal)
        assert prepare_pairs(x, model, (x, x, x), None, False, seed, 0, 0.0, -1)[3].has_edges == known


@pytest.mark.parametrize("preset", ["recommended", "faithful"])
def test_a_layer_is_served_and_follows_the_sampled_edges(monkeypatch, preset):
    for place in ("layers.functional", "samplers.exact"):
        monkeypatch.setattr(f"sbmt.{place}.has_kernels_for", lambda x: True)
    layer = build_attention("sbm", preset=preset, d_head=3, n_heads=1, n_clusters=2).to(DEVICE)
    x = torch.randn(1, 1, 7, 3, device=DEVICE, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    with monkeypatch.context() as only_here:
        only_here.setattr("sbmt.layers.functional.draw_edges", None)  # of the general method
        found = layer(x, x, x, generator=generator)
    loss = found.values.sum() + found.density.sum() + found.expected_density.sum()
    gradients = torch.autograd.grad(loss, [x, *layer.parameters()])
    assert all(x.isfinite().all() for x in gradients) and gradients[-1].abs().max() > 0
    if preset == "faithful":  # edges record how often each was drawn, so this is Algorithm 1 itself
        return
    known = layer(x, x, x, generator=generator.manual_seed(0), return_edges=True)
    loss = known.values.sum() + known.density.sum() + known.expected_density.sum()
    expected = torch.autograd.grad(loss, [x, *layer.parameters()])
    for one, other in zip((*found[:3], *gradients), (*known[:3], *expected), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("change", [{"dropout": 0.1}, {"reweight": True}, {"link": "poisson"}, {"n_clusters": 200}])
def test_other_settings_take_the_general_way(monkeypatch, change):
    monkeypatch.setattr("sbmt.layers.functional.has_kernels_for", lambda x: True)
    monkeypatch.setattr("sbmt.kernels.gpu.pairs.attend_pairs", None)
    layer, x = build_attention("sbm", preset="recommended", d_head=3, n_heads=1, **change), torch.randn(1, 1, 7, 3)
    assert layer(x, x, x).values.isfinite().all()


def test_inputs_of_several_types_and_wide_ones_are_not_served():
    x = torch.randn(1, 1, 2, 128)
    model = SimpleNamespace(n_clusters=128)
    assert can_attend((x, x, x), model) and not can_attend((x, x, x.half()), model)
    assert not can_attend((x, x, torch.randn(1, 1, 2, 129)), model) and not can_attend((x.double(),) * 3, model)


BUILD = """
import sys
from unittest import mock
import torch
from results.measure.gpu import built_for
from sbmt import build_attention
from sbmt.kernels.gpu import pairs

def build(kernel, *args, grid, warmup, **options):
    built_for(int(sys.argv[1]), kernel, args, options)
    print(kernel.__name__)
    for x in args[2:]:  # as if there were no edges
        isinstance(x, torch.Tensor) and x.zero_()

layer, x = build_attention("sbm", d_head=16, n_heads=1, n_clusters=16, sink=True), torch.randn(1, 1, 40, 16)
mask = torch.ones(1, 40, dtype=torch.bool)
mock.patch("sbmt.layers.functional.has_kernels_for", lambda x: True).start()
pairs.FEWEST_KEYS = 1
with mock.patch("triton.JITFunction.run", build):
    pairs.list_pairs(layer.block_model(x, x, mask, mask), False, torch.tensor(7), 0, 0.01, 0)
    layer(*[x.bfloat16().requires_grad_()] * 3, query_mask=mask, key_mask=mask).values.sum().backward()
"""


@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_build_for_both_capabilities(capability):
    environment = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    order = [sys.executable, "-c", BUILD, str(capability)]
    done = subprocess.run(order, env=environment, capture_output=True, text=True)
    names = ["_list_kernel", "list_by_edges_kernel"] * 2 + ["_attend_kernel", "attend_by_edges_kernel"]
    names += ["_backward_kernel"] * 2 + ["backward_by_edges_kernel"]
    assert done.returncode == 0 and done.stdout.split() == names, done.stderr

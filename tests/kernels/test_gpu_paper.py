"""Compares the kernels of the paper's masks with plain PyTorch, on a GPU if there is one, or else interpreted."""

import os
import subprocess
import sys
from types import SimpleNamespace

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
    "edges, causal, padded, with a window": (5, 60, "exact", "score", 0.02, 1, True, True, False),
    "both, causal, padded": (40, 70, "exact", "score", 0.02, -1, True, True, True),
}


@pytest.fixture
def draw_below(monkeypatch):
    """Sets the share of the pairs, and the fewest keys, from which rows are drawn by edges."""

    def change(share, fewest=1):
        monkeypatch.setattr("sbmt.kernels.gpu.edges.SPARSE_SHARE", share)
        for module in ("pairs", "edges"):
            monkeypatch.setattr(f"sbmt.kernels.gpu.{module}.FEWEST_KEYS", fewest)

    return change


@pytest.mark.parametrize("case", CASES)
def test_values_densities_and_gradients_are_those_of_the_dense_twin(monkeypatch, draw_below, case):
    """Uses tiles, along the edges of the Bernoulli sampler, which has the same uniform numbers."""
    is_tiled = not case.startswith(("edges", "both"))
    is_mixed = case.startswith("both")
    draw_below(0.0 if is_tiled else 0.06 if is_mixed else 1.0)
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
    if is_mixed:
        monkeypatch.setattr("sbmt.kernels.gpu.pairs.TILE", 16)
        largest = torch.tensor([0.1, 1.0, 0.1], device=DEVICE).repeat_interleave(16)[:n, None]
    given = largest * leaves[3].sigmoid(), block_matrix, leaves[4].sigmoid(), *masks
    model = BlockModel(*given, causal=causal)
    drawn_from = BlockModel(*given, "poisson", causal) if sampler == "fastrg" else model
    rest = torch.tensor(7, device=DEVICE), 3, extra, reach

    edges = EdgeList(*list_pairs(model, sampler == "fastrg", *rest), model.shape, *model.masks, check=True)
    known, window = sample_bernoulli(drawn_from, extra, 7, 3), None if reach < 0 else 2 * reach
    if is_tiled:
        assert torch.equal(edges.cells(), (known if window is None else known.with_window(window)).cells())
    else:
        second, *rest_of_second = (x if x is None else x[1:] for x in (given[0], given[2], *masks))
        alone = BlockModel(second, block_matrix, *rest_of_second, causal=causal)
        _, keys = list_pairs(alone, sampler == "fastrg", rest[0], 4, extra, reach)
        assert torch.equal(keys, edges.keys[edges.row_ptr[n] :])
    assert bool((edges.degrees() == 0).any()) == (masked or reach < 0) and 0 < edges.n_edges < 0.6 * edges.cell_count

    if is_mixed:
        found = prepare_edges(model.query_rates, model.key_membership, extra, False, n_keys - n, 16)
        assert found.is_sparse.tolist() == [[[True, False, True]], [[True] * 3]]  # row 16 of the second is padding
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
@pytest.mark.parametrize(("is_poisson", "causal"), [(False, False), (True, False), (False, True)])
def test_edges_have_the_law(judge, monkeypatch, draw_below, is_poisson, causal):
    monkeypatch.setattr("sbmt.kernels.gpu.pairs.TILE", 128)
    draw_below(1.0)
    rows, keys = (torch.eye(4).repeat_interleave(torch.tensor(n), 0) for n in (N_ROWS, N_KEYS))
    visible = torch.ones(len(rows), len(keys))
    if causal:  # the last rows see some of the last keys, with which they have certain edges
        rows, keys, visible = rows.flip(0), keys.flip(0), visible.tril(len(keys) - len(rows))
    given = rows.expand(1, 1, -1, -1), torch.tensor([RATES]), keys.expand(1, 1, -1, -1)
    link, extra = "poisson" if is_poisson else "bilinear", 0.003
    model = BlockModel(*(x.to(DEVICE) for x in given), link=link, causal=causal)
    drawn = list_pairs(model, is_poisson, torch.tensor(7, device=DEVICE), 3, extra, -1)
    edges = EdgeList(*drawn, model.shape, *model.masks, check=True)  # every edge occurs once
    counts, rate = rows.T @ edges.to_dense()[0, 0].float().cpu() @ keys, torch.tensor(RATES).double() + extra
    chance = -torch.expm1(-rate) if is_poisson else rate.clamp(max=1)
    judge(binomial_p_values(counts.round(), rows.T @ visible @ keys, chance))


@pytest.mark.parametrize("is_poisson", [False, True])
def test_later_tokens_do_not_change_how_earlier_rows_are_drawn(monkeypatch, draw_below, is_poisson):
    monkeypatch.setattr("sbmt.kernels.gpu.pairs.TILE", 16)
    draw_below(0.5, 10)
    members, block = torch.rand(2, 1, 1, 45, 3, device=DEVICE), torch.rand(1, 3, 3, device=DEVICE) * 0.3
    members[:, :, :, :33] /= 2  # so that later keys have larger rates
    seed, listed = torch.tensor(7, device=DEVICE), []
    for n in (45, 33):
        model = BlockModel(members[0, :, :, :n], block, members[1, :, :, :n], causal=True)
        listed.append(list_pairs(model, is_poisson, seed, 0, 0.01, -1))
    is_sparse = prepare_edges(model.query_rates, model.key_membership, 0.01, is_poisson, 0, 16).is_sparse
    assert is_sparse.tolist() == [[[False, True, True]]]
    row_ptr, keys = listed[0]
    assert torch.equal(row_ptr[:34], listed[1][0]) and torch.equal(keys[: row_ptr[33]], listed[1][1])


def test_sparse_rows_are_drawn_by_edges_unless_they_see_few_keys(draw_below):
    draw_below(1 / 64)
    members, rates = torch.ones(1, 2, 100, 1, device=DEVICE), torch.tensor([0.015, 0.016], device=DEVICE)
    rates = rates[None, :, None, None].expand(1, 2, 3, 1)  # equally many candidates for each pair, in two heads
    for extra, known in ((0.0, [[True, False]]), (0.002, [[False, False]])):
        found = prepare_edges(rates, members, extra, True, None, 2).is_sparse
        assert found.tolist() == [[[is_sparse] * 2 for is_sparse in known[0]]]
    rates = rates[:, :1, :1] * torch.tensor([1.0, 1.2, 1.2, 1.0, 1.0], device=DEVICE)[:, None]
    for fewest, known, n_tiled in ((1, [True, False, True], 4), (98, [False, False, True], 4), (101, [False] * 3, 6)):
        draw_below(1 / 64, fewest)
        found = prepare_edges(rates, members[:, :1], 0.0, True, 95, 2)  # by the first row of two
        assert found.is_sparse.tolist() == [[known]] and found.n_tiled.tolist() == [[n_tiled]]
    draw_below(1 / 64, 99)
    for n, known in ((98, False), (99, True)):
        x, seed = torch.ones(1, 1, n, 1, device=DEVICE), torch.tensor(7, device=DEVICE)
        model = BlockModel(x, x[0, :, :1], x)
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
from results.measure.kernels import built_for
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

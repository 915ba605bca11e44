"""The number of threads changes nothing, not even the last bit, while several parts are really at work."""

import pytest
import torch

from sbmt import sbm_attention
from sbmt.attention import edge_attention
from sbmt.block_model.pair_products import edge_dot
from sbmt.graph.patterns import is_in_window
from sbmt.kernels import poisson
from tests.attention.drawn import model_of, tokens
from tests.attention.row_loop import make_case
from tests.kernels.cpu.samples import uneven_model
from tests.samplers.laws import Draw

COUNTS = (1, 2, 3)


def for_each_count(compute, set_threads, part_counts):
    """What ``compute`` gives with one thread, compared with what it gives with more of them."""
    results = []
    for n_threads in COUNTS:
        set_threads(n_threads)
        part_counts.clear()
        results.append(compute())
        assert part_counts and (max(part_counts) > n_threads) == (n_threads > 1)
    for result in results[1:]:
        assert all(torch.equal(x, y) for x, y in zip(result, results[0], strict=True))
    return results[0]


@pytest.mark.parametrize("way", ["exact", "exact by skipping", "exact by clusters"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_edges(way, dtype, link, set_threads, part_counts, monkeypatch):
    model = uneven_model(3, 2, 37, 71, 5, dtype=dtype, link=link, is_padded=True)
    draw = Draw(way, monkeypatch)

    def edges():
        drawn = draw.edges(model, 0.05)
        return drawn.row_ptr, drawn.keys

    _row_ptr, keys = for_each_count(edges, set_threads, part_counts)
    assert 0 < keys.numel() < 3 * 2 * 37 * 71


@pytest.mark.parametrize("way", ["exact by skipping", "exact by clusters"])
def test_edges_for_which_room_must_be_made_again(way, set_threads, part_counts, monkeypatch):
    monkeypatch.setattr("sbmt.kernels.cpu.draws.pieces._ROOM", 1)
    model, draw = uneven_model(2, 2, 30, 40, 3), Draw(way, monkeypatch)
    _, keys = for_each_count(lambda: (draw.edges(model).row_ptr, draw.edges(model).keys), set_threads, part_counts)
    assert keys.numel() > 30


@pytest.mark.parametrize("has_terms", [False, True])
@pytest.mark.parametrize("graphs", [(2, 3), (1, 1)], ids=["many graphs", "fewer graphs than threads"])
def test_attention_and_its_gradients(graphs, has_terms, set_threads, part_counts):
    def compute():
        case = make_case(*graphs, 29, 43, 7, 33, density=0.3)
        leaves, terms = case.leaves[:3], {}
        if has_terms:
            bias, sink = case.gate.detach().log().requires_grad_(), torch.linspace(-1, 2, graphs[1]).requires_grad_()
            terms = dict(gate=case.gate, bias=bias, sink=sink)
        options = dict(dropout=0.4 * has_terms, generator=torch.Generator().manual_seed(0), return_weights=True)
        out, weights = edge_attention(*leaves, case.edges, **terms, **options, backend="cpu")
        factors = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
        loss = (out * factors).sum() + weights.square().sum() * has_terms
        return out, weights, *torch.autograd.grad(loss, [*leaves, *terms.values()])

    out, weights, *_ = for_each_count(compute, set_threads, part_counts)
    assert (out != 0).any() and (weights != 0).any()


def test_memberships_and_attention_along_edges_drawn_meanwhile(set_threads, part_counts):
    def compute():
        with torch.no_grad():
            model = model_of()
            settings = dict(window=4, exploration=0.1, reweight=True, generator=torch.Generator().manual_seed(0))
            out = sbm_attention(*tokens(), model, **settings)
        return model.query_part, *model.factors(), out.values, out.density, out.expected_density

    assert (for_each_count(compute, set_threads, part_counts)[-3] != 0).any()


def test_attention_that_is_fitted_meanwhile(set_threads, part_counts):
    def compute():
        model = model_of()  # whose memberships have gradients already
        factors = model._query, model.part_blocks.requires_grad_(), model._key
        inputs, sink = [t.requires_grad_() for t in tokens()], torch.zeros(3).requires_grad_()
        settings = dict(window=4, exploration=0.1, reweight=True, generator=torch.Generator().manual_seed(0))
        out = sbm_attention(*inputs, model, sink=sink, learning="likelihood", edges_per_query=9.0, **settings)
        results = out.values, out.auxiliary_loss, out.expected_density
        factor = torch.linspace(-1, 2, out.values.numel()).view_as(out.values)
        loss = (out.values * factor).sum() + out.auxiliary_loss
        return *(t.detach() for t in results), *torch.autograd.grad(loss, [*inputs, sink, *factors])

    assert all((t != 0).any() for t in for_each_count(compute, set_threads, part_counts))


def test_products_along_edges_and_their_gradients(set_threads, part_counts):
    def compute():
        case = make_case(2, 3, 29, 43, 7, 5, density=0.3)
        product = edge_dot(case.query, case.key, case.edges)
        weight = torch.linspace(-1, 2, product.numel(), dtype=product.dtype)
        return product, *torch.autograd.grad((product * weight).sum(), (case.query, case.key))

    for_each_count(compute, set_threads, part_counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_edges_weigh_and_teach(dtype, set_threads, part_counts):
    def compute():
        edges = make_case(3, 2, 29, 43, 2, 2, density=0.2).edges
        rate, weights = (torch.linspace(0, most, edges.n_edges, dtype=dtype) for most in (3, 1))
        mask = edges.row_ptr, edges.keys, *edges.shape[2:]
        gain, _ = poisson.gain(rate.requires_grad_(), weights, *mask, 0.1, 2, False)
        (slope,) = torch.autograd.grad(gain.square(), rate)
        return *poisson.weigh(rate.detach(), *mask, 0.1, 2, 0.05, False), gain.detach(), slope

    for_each_count(compute, set_threads, part_counts)


def test_transposes_unions_windows_and_copies(set_threads, part_counts):
    def compute():
        first, second = (make_case(3, 2, 29, 43, 2, 2, density=0.2, seed=seed).edges for seed in (0, 1))
        square, one = (make_case(3, h, 29, 29, 2, 2, density=0.2).edges for h in (2, 1))
        both, wide, (many, source) = first.union(second), square.with_window(6), one.for_heads(4)
        lists = [x for edges in (both, wide, many) for x in (edges.row_ptr, edges.keys)]
        return *first.by_key, *lists, source, is_in_window(both, 4)

    for_each_count(compute, set_threads, part_counts)

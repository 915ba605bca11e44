"""The number of threads does not change a single bit, although several ranges are processed in parallel."""

import os
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sbmt import build_attention
from sbmt.kernels import operators
from sbmt.kernels.operators import ranges_of
from tests.layers.inputs import seeded, tokens
from tests.processes import run_python

LAYERS = {
    "recommended": dict(preset="recommended", n_clusters=5),
    "fitted": dict(preset="fitted", n_clusters=64, window=6),
    "faithful": dict(preset="faithful", n_clusters=5, gate_rule="weight"),
}


@pytest.fixture
def ranges(monkeypatch):
    """Records the number of ranges of each call of a loop; even a few rows are divided."""
    noted, cut = [], ranges_of
    monkeypatch.setattr(operators, "ranges_of", lambda costs: noted.append(cut(costs, 1.0)) or noted[-1])
    return noted


def everything(layer, dtype):
    """Returns edges, values and gradients of a step, and the parameters' gradients; one example has padding."""
    inputs = [tokens(n=40, seed=seed, dtype=dtype).requires_grad_() for seed in range(3)]
    mask = torch.arange(40) < torch.tensor([[40], [17]])
    out = layer(*inputs, query_mask=mask, key_mask=mask, generator=seeded(), return_edges=True)
    out.values.square().sum().add(out.auxiliary_loss + out.density.sum()).backward()
    gradients = [[x.grad for x in some] for some in (inputs, layer.parameters())]
    return [out.edges.row_ptr, out.edges.keys, out.values, out.auxiliary_loss, *gradients[0]], gradients[1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_a_step_of_training_is_the_same_bit_for_bit(name, dtype, set_threads, ranges):
    found = []
    for n_threads in (1, 2, 3):
        set_threads(n_threads)
        torch.manual_seed(0)
        layer = build_attention("sbm", d_head=4, n_heads=3, dropout=0.3, backend="cpu", **LAYERS[name]).to(dtype)
        ranges.clear()
        found.append(everything(layer, dtype))
        assert max(of_call.number for of_call in ranges) == n_threads
    (first, of_parameters), *others = found
    assert 0 < first[1].numel() < 2 * 3 * 40 * 40
    for other, gradients in others:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(first, other, strict=True))
        torch.testing.assert_close(gradients, of_parameters)  # torch's own products differ in the last bit


costs_of_rows = st.lists(st.one_of(st.integers(0, 3), st.sampled_from([10_000, 10**7])), min_size=1, max_size=60)


@given(costs_of_rows, st.integers(1, 10**6), st.integers(1, 4))
def test_ranges_cover_all_rows_in_order(costs, least, n_threads):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: n_threads)
        found = ranges_of((len(costs), [0, *accumulate(costs)].__getitem__), float(least))
    ends = found.ends.tolist()
    assert len(ends) - 1 == found.number <= min(n_threads, max(1, sum(costs) // least))
    assert ends[0] == 0 and ends[-1] == len(costs) and ends == sorted(ends)


def test_ranges_cost_about_the_same_and_little_work_is_not_shared(set_threads):
    set_threads(4)
    costs = torch.randint(1000, (5001,), generator=torch.Generator().manual_seed(0)).cumsum(0)
    costs -= costs[0].clone()
    shares = costs[ranges_of((5000, costs.tolist().__getitem__)).ends].diff()
    assert shares.numel() == 4 and shares.max() - shares.min() <= 2000
    assert ranges_of((2, [0, 3, 8].__getitem__)).ends.tolist() == [0, 2]


def test_callers_from_several_threads_do_not_disturb_each_other(set_threads, ranges):
    set_threads(2)
    layer = build_attention("sbm", preset="recommended", d_head=4, n_heads=3, n_clusters=5, backend="cpu")
    xs = [tokens(n=20, seed=seed) for seed in range(4)]

    def attend(x):
        with torch.no_grad():
            return layer(x, x, x, generator=seeded()).values

    expected = [attend(x) for x in xs]
    with ThreadPoolExecutor(4) as callers:
        found = list(callers.map(attend, xs * 8))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected * 8, strict=True))


FORK = """
    import multiprocessing, os, torch
    from sbmt import BlockModel, sample_edges
    from sbmt.kernels import operators

    torch.set_num_threads(2)
    whole = operators.ranges_of
    operators.ranges_of = lambda costs: whole(costs, 1.0)
    ones = torch.ones(2, 1, 40, 1)

    def draw(n_threads):
        torch.set_num_threads(n_threads)
        model = BlockModel(ones, torch.full((1, 1, 1), 0.3), ones)
        edges = sample_edges(model, generator=torch.Generator().manual_seed(0))
        return os.getpid(), edges.row_ptr.tolist(), edges.keys.tolist()

    parent, *expected = draw(2)
    with multiprocessing.get_context("fork").Pool(2) as children:
        for child, *found in children.map_async(draw, [1] * 4).get(timeout=300):
            assert child != parent and found == expected
    assert draw(2) == (parent, *expected)
    print("the same")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_forked_child_with_one_thread_computes_the_same():
    assert run_python(FORK) == ["the same"]

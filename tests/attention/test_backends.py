"""Compares the values and gradients of every backend with the row loop."""

import pytest
import torch

from sbmt.attention import dispatch, edge_attention, slots
from sbmt.attention.dispatch import dropout_scale
from sbmt.counter_rng import draw_seed
from sbmt.graph.edges import EdgeList
from tests.attention.row_loop import attend_and_weigh, make_case
from tests.gradients import weighted_sum
from tests.layers.inputs import seeded

BACKENDS = ["dense", "pyg", "cpu", "slots"]

CASES = {
    "bipartite": dict(batch=2, heads=2, n_queries=5, n_keys=9, d=3, d_value=5, seed=1),
    "more queries": dict(batch=1, heads=1, n_queries=9, n_keys=2, d=4, d_value=1, seed=2),
    "padded": dict(batch=2, heads=2, n_queries=5, n_keys=6, d=4, d_value=3, seed=3, padded=True),
    "dense": dict(batch=1, heads=2, n_queries=8, n_keys=8, d=4, d_value=2, density=1.0, seed=4),
    "no edge": dict(batch=2, heads=2, n_queries=3, n_keys=4, d=4, d_value=2, density=0.0, seed=6),
    "one token": dict(batch=1, heads=1, n_queries=1, n_keys=1, d=1, d_value=1, seed=7),
    "skewed": dict(batch=2, heads=1, n_queries=4, n_keys=9, d=3, d_value=2, density=0.2, seed=8, skewed=True),
    "very skewed": dict(batch=1, heads=2, n_queries=30, n_keys=40, d=3, d_value=2, density=0.02, skewed=True),
}
USED = {  # the gate rule, and whether there are a gate, a bias, a sink and dropout
    "none": ("score", False, False, False, False),
    "gate": ("score", True, False, False, False),
    "gate of weights": ("weight", True, False, False, False),
    "bias": ("score", False, True, False, False),
    "sink": ("score", False, False, True, False),
    "bias, sink, dropout": ("score", False, True, True, True),
    "all": ("score", True, True, True, True),
    "all, gate of weights": ("weight", True, True, True, True),
}
backends = pytest.mark.parametrize("backend", BACKENDS)


@pytest.fixture(autouse=True)
def slots_anywhere(monkeypatch):
    """Uses the backend ``gpu`` on any device, since it is plain PyTorch under another name."""
    monkeypatch.setattr(dispatch, "BACKENDS", dispatch.BACKENDS | {"slots": slots.attend_in_slots})


def leaves_of(case):
    """Returns query, key, value, gate, a bias for each edge, and a sink for each head."""
    generator, sizes = seeded(), (case.edges.n_edges, case.edges.shape[1])
    terms = (2 * torch.randn(n, generator=generator, dtype=torch.float64) for n in sizes)
    return [*case.leaves, *(x.requires_grad_() for x in terms)]


def gradients(found, leaves):
    """Returns the gradients of weighted sums of values and weights."""
    loss = sum(map(weighted_sum, found))
    if not loss.requires_grad:  # without edges
        loss = loss + 0 * sum(leaf.sum() for leaf in leaves)
    return torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True, materialize_grads=True)


def assert_close(found, expected, tolerance=1e-10):
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance)


def attend(leaves, used, edges, backend, **options):
    """Returns values and weights. A backend of None stands for the row loop."""
    gate_rule, *has_terms, is_dropped = USED[used]
    gate, bias, sink = (x if is_there else None for x, is_there in zip(leaves[3:], has_terms, strict=True))
    options |= dict(gate_rule=gate_rule, bias=bias, sink=sink)
    if backend is None:
        scale = dropout_scale(edges, 0.4, draw_seed(seeded()), 0, torch.float64) if is_dropped else None
        return attend_and_weigh(*leaves[:3], edges.to_dense(), gate, scale=scale, **options)
    options |= dict(dropout=0.4 * is_dropped, generator=seeded(), backend=backend)
    return edge_attention(*leaves[:3], edges, gate, **{"return_weights": True} | options)


@backends
@pytest.mark.parametrize(
    ("name", "used"),
    [*(("bipartite", used) for used in USED), *((name, "all") for name in CASES if name != "bipartite")],
)
def test_values_weights_and_gradients_equal_the_row_loop(name, used, backend):
    case = make_case(**CASES[name])
    leaves = leaves_of(case)
    ours, loop = (attend(leaves, used, case.edges, kind) for kind in (backend, None))
    assert_close(ours, loop)
    assert_close(gradients(ours, leaves), gradients(loop, leaves))


@backends
def test_values_and_weights_have_separate_gradients(backend):
    case = make_case(**CASES["bipartite"])
    leaves = leaves_of(case)
    ours, loop = (attend(leaves, "all", case.edges, kind) for kind in (backend, None))
    assert_close(gradients(ours[1:], leaves), gradients(loop[1:], leaves))
    alone = attend(leaves, "all", case.edges, backend, return_weights=False)
    assert_close([alone], loop[:1])
    assert_close(gradients([alone], leaves), gradients(loop[:1], leaves))


@backends
@pytest.mark.parametrize(
    ("size", "gate_rule"), [(-torch.inf, "score"), (-1e3, "weight"), (1e3, "score"), (1e30, "weight")]
)
def test_sinks_and_scores_of_any_size(size, gate_rule, backend):
    """A sink far below all scores has no effect, one far above them leaves no weight, and neither causes a NaN."""
    case = make_case(batch=1, heads=1, n_queries=3, n_keys=5, d=4, d_value=3, density=0.6)
    big = [(30 * t.detach()).requires_grad_() for t in (case.query, case.key)]
    leaves = [*big, case.value, case.gate, torch.full((1,), size, dtype=torch.float64, requires_grad=True)]
    options = dict(gate_rule=gate_rule, backend=backend, return_weights=True)
    for tokens in (big, case.leaves[:2]):
        found = edge_attention(*tokens, case.value, case.edges, case.gate, sink=leaves[4], **options)
        grads = gradients(found, [*tokens, *leaves[2:]])
        assert all(x.isfinite().all() for x in (*found, *grads))
        without = edge_attention(*tokens, case.value, case.edges, case.gate, **options)
        assert (without[0][case.mask.any(-1)].abs().sum(-1) > 0).all()
        if size <= -1e3 and tokens is not big:
            assert_close(found, without, 0)
        if size == 1e30 or (size == 1e3 and tokens is not big):  # down to the smallest normal number
            assert all((x.abs() < 1e-300).all() for x in (*found, *grads))
    assert (found[0][~case.mask.any(-1)] == 0).all()


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types(dtype, backend):
    """Values have the type of the inputs. Weights, which sum to at most one, have at least 32 bits."""
    case = make_case(**CASES["bipartite"])
    *tokens, gate, bias, sink = leaves_of(case)
    tokens = [t.detach().to(dtype) for t in tokens]
    terms = [t.detach().float() for t in (gate, bias, sink)]
    options = dict(bias=terms[1], sink=terms[2])
    values, weights = edge_attention(*tokens, case.edges, terms[0], **options, backend=backend, return_weights=True)
    assert values.dtype == dtype and weights.dtype == torch.float32
    exact = attend_and_weigh(
        *(t.double() for t in tokens), case.mask, terms[0].double(), bias=terms[1].double(), sink=terms[2].double()
    )
    assert_close([values.double(), weights.double()], exact, 30 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(("has_compiler", "sparse"), [(True, "cpu"), (False, "pyg")])
def test_auto_picks_by_density_and_size(has_compiler, sparse, monkeypatch):
    monkeypatch.setattr(dispatch, "can_run_on", lambda device: has_compiler)
    full, half, empty = (EdgeList.from_dense(torch.rand(1, 1, 32, 32) < density) for density in (1.0, 0.5, 0.0))
    dense = sparse if has_compiler else "dense"
    assert [dispatch.pick_backend(edges) for edges in (full, half, empty)] == [dense, dense, sparse]
    monkeypatch.setattr(dispatch, "DENSE_CELLS", 1000)
    assert dispatch.pick_backend(full) == sparse


@backends
def test_large_float16_scores_stay_finite(backend):
    query, value = torch.full((1, 1, 8, 32), 70.0).half(), torch.randn(1, 1, 8, 32).half()
    edges = EdgeList.from_dense(torch.ones(1, 1, 8, 8, dtype=torch.bool))
    expected = value.float().mean(2, keepdim=True).expand_as(value)
    torch.testing.assert_close(
        edge_attention(query, query, value, edges, backend=backend).float(), expected, rtol=0, atol=2e-3
    )


@backends
def test_gradcheck(backend):
    case = make_case(batch=1, heads=2, n_queries=3, n_keys=3, d=2, d_value=2, density=0.5)
    assert torch.autograd.gradcheck(lambda *leaves: attend(leaves, "all", case.edges, backend), leaves_of(case))

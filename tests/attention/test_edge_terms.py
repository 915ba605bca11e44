"""Biases of edges, sinks of heads and the weights after the softmax: every backend does what the row loop does."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sbmt.attention.dropout import dropout_scale
from sbmt.counter_rng import draw_seed
from sbmt.kernels.gpu import is_interpreted
from tests.attention.row_loop import attend_and_weigh, make_case
from tests.attention.test_backends import CASES
from tests.kernels.gpu.device import BACKENDS, edge_attention

backends = pytest.mark.parametrize("backend", BACKENDS)
# What follows from equality with the row loop is asked of kernels that run at full speed, not of Triton's interpreter.
fast_backends = pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "gpu" or not is_interpreted()])
rules = pytest.mark.parametrize("gate_rule", ["score", "weight"])
USED = {  # whether there are a gate, a bias, a sink and dropout
    "none": (False, False, False, False),
    "gate": (True, False, False, False),
    "bias": (False, True, False, False),
    "sink": (False, False, True, False),
    "gate, bias": (True, True, False, False),
    "bias, sink, dropout": (False, True, True, True),
    "all": (True, True, True, True),
}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def leaves_of(case):
    """Query, key, value and gate, a bias for each edge, and a sink for each head."""
    generator, sizes = seeded(), (case.edges.n_edges, case.edges.shape[1])
    terms = (2 * torch.randn(n, generator=generator, dtype=torch.float64) for n in sizes)
    return [*case.leaves, *(x.requires_grad_() for x in terms)]


def gradients(found, leaves):
    """Of a sum over values and weights in which no two have the same factor."""
    loss = sum((x * torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x)).sum() for x in found)
    if not loss.requires_grad:  # without edges
        loss = loss + 0 * sum(leaf.sum() for leaf in leaves)
    return torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True, materialize_grads=True)


def assert_close(found, expected, tolerance=1e-10):
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance)


def attend(leaves, used, edges, gate_rule, backend, **options):
    """Values and weights; a backend of None stands for the row loop."""
    *has_terms, is_dropped = USED[used]
    gate, bias, sink = (x if is_there else None for x, is_there in zip(leaves[3:], has_terms, strict=True))
    options |= dict(gate_rule=gate_rule, bias=bias, sink=sink)
    if backend is None:
        scale = dropout_scale(edges, 0.4, draw_seed(seeded()), 0, torch.float64) if is_dropped else None
        return attend_and_weigh(*leaves[:3], edges.to_dense(), gate, scale=scale, **options)
    options |= dict(dropout=0.4 * is_dropped, generator=seeded(), backend=backend)
    return edge_attention(*leaves[:3], edges, gate, **{"return_weights": True} | options)


@backends
@rules
@pytest.mark.parametrize(
    ("name", "used"),
    [*(("bipartite", used) for used in USED), *((name, "all") for name in CASES if name != "bipartite")],
)
def test_values_weights_and_gradients_equal_the_row_loop(name, used, gate_rule, backend):
    case = make_case(**CASES[name])
    leaves = leaves_of(case)
    ours, loop = (attend(leaves, used, case.edges, gate_rule, kind) for kind in (backend, None))
    assert_close(ours, loop)
    assert_close(gradients(ours, leaves), gradients(loop, leaves))


@backends
def test_values_and_weights_have_gradients_of_their_own(backend):
    case = make_case(**CASES["bipartite"])
    leaves = leaves_of(case)
    ours, loop = (attend(leaves, "all", case.edges, "score", kind) for kind in (backend, None))
    assert_close(gradients(ours[1:], leaves), gradients(loop[1:], leaves))
    alone = attend(leaves, "all", case.edges, "score", backend, return_weights=False)
    assert_close([alone], loop[:1])
    assert_close(gradients([alone], leaves), gradients(loop[:1], leaves))


@fast_backends
@rules
def test_gradcheck(gate_rule, backend):
    case = make_case(batch=1, heads=2, n_queries=3, n_keys=3, d=2, d_value=2, density=0.5)
    assert torch.autograd.gradcheck(
        lambda *leaves: attend(leaves, "all", case.edges, gate_rule, backend), leaves_of(case)
    )


@fast_backends
@settings(max_examples=10)
@given(seed=st.integers(0, 1 << 30), density=st.sampled_from([0.1, 0.5, 1.0]), has_sink=st.booleans())
def test_a_bias_is_the_gate_of_its_exponential_under_the_weight_rule(backend, seed, density, has_sink):
    case = make_case(batch=1, heads=2, n_queries=3, n_keys=4, d=2, d_value=3, density=density, seed=seed)
    *tokens, _, bias, sink = leaves_of(case)
    options = dict(sink=sink if has_sink else None, backend=backend, return_weights=True)
    ours = edge_attention(*tokens, case.edges, bias=bias, **options)
    theirs = edge_attention(*tokens, case.edges, bias.exp(), gate_rule="weight", **options)
    assert_close(ours, theirs)
    leaves = [*tokens, bias, sink]
    assert_close(gradients(ours, leaves), gradients(theirs, leaves))


@fast_backends
def test_a_sink_is_one_more_key_whose_value_is_zero(backend):
    """With the same score for all queries, which needs one more feature."""
    case = make_case(batch=2, heads=2, n_queries=5, n_keys=6, d=3, d_value=4)
    query, key, value = (t.detach() for t in case.leaves[:3])
    sink = torch.tensor([-0.7, 1.3], dtype=torch.float64)
    ours = edge_attention(query, key, value, case.edges, sink=sink, backend=backend)
    pad = torch.nn.functional.pad
    row = (sink * 3**0.5).view(1, 2, 1, 1).expand(2, -1, -1, -1)
    longer_query = pad(query, (0, 1), value=1.0)
    longer_key = torch.cat([pad(key, (0, 1)), pad(row, (3, 0))], 2) * (4 / 3) ** 0.5
    mask = pad(case.mask, (0, 1), value=True)
    theirs = attend_and_weigh(longer_query, longer_key, pad(value, (0, 0, 0, 1)), mask)[0]
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@backends
@rules
@pytest.mark.parametrize("size", [-torch.inf, -1e30, -1e3, 1e3, 1e30])
def test_sinks_and_scores_of_any_size(size, gate_rule, backend):
    """A sink far below all scores is none, one far above them leaves nothing, and neither makes a NaN."""
    case = make_case(batch=1, heads=1, n_queries=3, n_keys=5, d=4, d_value=3, density=0.6)
    big = [(30 * t.detach()).requires_grad_() for t in (case.query, case.key)]
    leaves = [*big, case.value, case.gate, torch.full((1,), size, dtype=torch.float64, requires_grad=True)]
    options = dict(gate_rule=gate_rule, backend=backend, return_weights=True)
    for tokens in (big, case.leaves[:2]):
        found = edge_attention(*tokens, case.value, case.edges, case.gate, sink=leaves[4], **options)
        grads = gradients(found, [*tokens, *leaves[2:]])
        assert all(x.isfinite().all() for x in (*found, *grads))
        without = edge_attention(*tokens, case.value, case.edges, case.gate, **options)
        if size <= -1e3 and tokens is not big:
            assert_close(found, without, 0)
        if size == 1e30 or (size == 1e3 and tokens is not big):  # up to the smallest number that is not denormal
            assert all((x.abs() < 1e-300).all() for x in (*found, *grads))
    assert (found[0][~case.mask.any(-1)] == 0).all()


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_types(dtype, backend):
    """Values have their inputs' type; weights, which sum to one at most, at least that of 32 bits."""
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


@fast_backends
def test_weights_fill_their_rows_up_to_the_sink(backend):
    case = make_case(**CASES["bipartite"])
    *tokens, _, bias, sink = (t.detach() for t in leaves_of(case))
    rows = case.edges.rows()
    totals = []
    for options in (dict(bias=bias), dict(bias=bias, sink=sink), dict(bias=bias, sink=sink + 1)):
        _, weights = edge_attention(*tokens, case.edges, **options, backend=backend, return_weights=True)
        totals.append(torch.zeros(case.mask[..., 0].numel(), dtype=torch.float64).index_add(0, rows, weights))
    full, less, least = (total[case.mask.any(-1).flatten()] for total in totals)
    torch.testing.assert_close(full, torch.ones_like(full))
    assert (full > less).all() and (less > least).all()
    odds = (1 - least) / least * less / (1 - less)  # of the sink against all edges: a sink is a logit
    torch.testing.assert_close(odds, torch.full_like(odds, torch.e))

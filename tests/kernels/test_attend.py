"""Tests compiled attention: accuracy, any layout and type of input, and correct gradients."""

import pytest
import torch

from sbmt.attention import edge_attention
from sbmt.graph.edges import EdgeList
from tests.attention.row_loop import attend_row_by_row, make_case
from tests.gradients import weighted_sum


def results(leaves, edges, backend="cpu", gate_rule="score", return_weights=False):
    """Returns the output, optional weights, and gradients. Leaves may end with a gate, a bias and sinks."""
    (query, key, value), terms = leaves[:3], dict(zip(("gate", "bias", "sink"), leaves[3:], strict=False))
    options = dict(gate_rule=gate_rule, backend=backend, return_weights=return_weights)
    found = edge_attention(query, key, value, edges, **terms, **options)
    found = found if return_weights else (found,)
    return *found, *torch.autograd.grad(sum(map(weighted_sum, found)), leaves)


def assert_close(found, expected, tolerance=1e-10):
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("gate_rule", ["score", "weight"])
@pytest.mark.parametrize(
    ("size", "scale", "density"),
    [
        ((4, 4, 64, 64, 32, 32), 0.1, 0.02),
        ((2, 2, 100, 300, 8, 16), 5.0, 0.3),
        ((2, 1, 60, 60, 128, 64), 1.0, 1.0),
        ((1, 2, 300, 300, 16, 16), 1.0, 0.3),
    ],
)
def test_float32_is_as_accurate_as_dense_attention(size, scale, density, gate_rule):
    """Root mean squares agree within a factor of two, except for the few sinks. Edge probabilities are 0.001 to 1."""
    deviations, expected = {"cpu": [], "dense": []}, []
    for seed in (0, 1, 2):
        case = make_case(*size, density=density, seed=seed)
        bias, sink = -torch.linspace(0.001, 1, case.edges.n_edges).log(), torch.linspace(0, 3, size[1])
        large = [scale * t.detach() for t in (case.query, case.key)]
        rounded = [t.detach().float() for t in (*large, case.value, case.gate, bias, sink)]
        exact = results([t.double().requires_grad_() for t in rounded], case.edges, "dense", gate_rule, True)
        expected.append([t.detach().flatten() for t in exact])
        for backend, mine in deviations.items():
            found = results([t.requires_grad_() for t in rounded], case.edges, backend, gate_rule, True)
            mine.append([(x.double() - y).detach().flatten() for x, y in zip(found, exact, strict=True)])
    mine, theirs, sizes = (
        [float(torch.cat(parts).square().mean().sqrt()) for parts in zip(*pooled, strict=True)]
        for pooled in (*deviations.values(), expected)
    )
    names = ("out", "weights", "query", "key", "value", "gate", "bias", "sink")
    for i, name in enumerate(names):
        assert 0 < mine[i] <= (1e-5 * sizes[i] if name == "sink" else 2 * theirs[i]), (name, mine[i], theirs[i])


LAYOUTS = {
    "heads last": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "every other number": lambda t: torch.stack([t, torch.full_like(t, torch.nan)], -1).flatten(-2)[..., ::2],
    "a part of something larger": lambda t: torch.nn.functional.pad(t, (1, 2, 3, 1), value=torch.nan)[..., 3:-1, 1:-2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout(layout):
    case = make_case(2, 3, 5, 7, 4, 6, density=0.5)
    leaves = [LAYOUTS[layout](t.detach()).requires_grad_() for t in case.leaves[:3]]
    assert not any(t.is_contiguous() for t in leaves)
    leaves.append(torch.stack([case.gate.detach()] * 2, -1)[:, 0].requires_grad_())
    row_ptr, keys = (torch.stack([t, t + 1000], -1)[:, 0] for t in (case.edges.row_ptr, case.edges.keys))
    assert not keys.is_contiguous()
    assert_close(results(leaves, EdgeList(row_ptr, keys, case.edges.shape)), results(case.leaves, case.edges), 0)


def test_inputs_of_different_types_keep_theirs():
    """Numbers are rounded on input and output only: gradients have the types and precision of the inputs."""
    case = make_case(2, 2, 6, 9, 8, 5, density=0.5)
    types = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    leaves = [t.detach().to(dtype).requires_grad_() for t, dtype in zip(case.leaves, types, strict=True)]
    found = results(leaves, case.edges)
    exact = results([t.detach().double().requires_grad_() for t in leaves], case.edges, "dense")
    for mine, theirs, dtype in zip(found, exact, (torch.float32, *types), strict=True):
        assert mine.dtype == dtype
        atol = max(1e-5, 2 * torch.finfo(dtype).eps) * float(theirs.detach().abs().max())
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=atol)


@pytest.mark.parametrize("where", ["query", "key", "value"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_not_a_number_reaches_the_rows_that_lead_to_it_and_no_others(where, bad):
    case = make_case(2, 2, 8, 9, 3, 5, density=0.4)
    inputs = {name: getattr(case, name).detach().clone() for name in ("query", "key", "value")}
    inputs[where][0, 1, 4, 2] = bad
    out = edge_attention(**inputs, edges=case.edges, backend="cpu")
    loop = attend_row_by_row(inputs["query"], inputs["key"], inputs["value"], case.mask)
    assert 0 < loop.isfinite().sum() < loop.numel() and torch.equal(out.isfinite(), loop.isfinite())
    torch.testing.assert_close(out[out.isfinite()], loop[out.isfinite()], rtol=0, atol=1e-10)


def test_only_what_requires_a_gradient_gets_one():
    case = make_case(2, 2, 6, 9, 4, 5)
    expected = results(case.leaves, case.edges)[1:]
    for i, gradient in enumerate(expected):
        leaves = [t.detach().requires_grad_(place == i) for place, t in enumerate(case.leaves)]
        query, key, value, gate = leaves
        out = edge_attention(query, key, value, case.edges, gate, backend="cpu")
        assert_close(torch.autograd.grad(weighted_sum(out), leaves[i]), [gradient], 0)


def test_an_incoming_gradient_in_any_layout():
    case = make_case(2, 2, 6, 9, 4, 5)
    out = edge_attention(case.query, case.key, case.value, case.edges, backend="cpu")
    turned = torch.randn(out.shape[::-1], dtype=out.dtype).permute(3, 2, 1, 0)
    for grad in (torch.ones((), dtype=out.dtype).expand(out.shape), turned):
        expected = torch.autograd.grad(out, case.leaves[:3], grad.contiguous(), retain_graph=True)
        assert_close(torch.autograd.grad(out, case.leaves[:3], grad, retain_graph=True), expected, 0)

"""What the compiled backend owes PyTorch: accuracy, any layout and type of input, and no silent wrong gradient."""

from itertools import product

import pytest
import torch

from sbmt import SbmtError
from sbmt.attention import edge_attention
from sbmt.graph.edges import EdgeList
from sbmt.kernels.cpu import launch
from tests.attention.row_loop import attend_row_by_row, make_case

rules = pytest.mark.parametrize("gate_rule", ["score", "weight"])


def results(leaves, edges, backend, gate_rule="score"):
    """Output and gradients."""
    query, key, value, gate = leaves
    out = edge_attention(query, key, value, edges, gate, gate_rule=gate_rule, backend=backend)
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return out, *torch.autograd.grad((out * weight).sum(), leaves)


def assert_close(found, expected, tolerance=1e-10):
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=tolerance)


# --- accuracy ----------------------------------------------------------------------------------------------------

SIZES = [(4, 4, 64, 64, 32, 32), (2, 2, 100, 300, 8, 16), (2, 1, 60, 60, 128, 64), (1, 2, 300, 300, 16, 16)]


def errors(size, density, scale, gate_rule, backend, seeds=(0, 1, 2)):
    """Root mean square and maximum, over a few draws, of what float32 gets wrong: in outputs and each gradient."""
    deviations = []
    for seed in seeds:
        case = make_case(*size, density=density, seed=seed)
        large = [scale * t.detach() for t in (case.query, case.key)]
        rounded = [t.detach().float() for t in (*large, case.value, case.gate)]
        exact = results([t.double().requires_grad_() for t in rounded], case.edges, "dense", gate_rule)
        found = results([t.requires_grad_() for t in rounded], case.edges, backend, gate_rule)
        deviations.append([(x.double() - y).detach().flatten() for x, y in zip(found, exact, strict=True)])
    pooled = [torch.cat(parts) for parts in zip(*deviations, strict=True)]
    return [float(x.square().mean().sqrt()) for x in pooled], [float(x.abs().max()) for x in pooled]


@rules
@pytest.mark.parametrize(("size", "scale"), [*product(SIZES, (0.1, 1.0)), *product(SIZES[1::2], (5.0,))])
@pytest.mark.parametrize("density", [0.02, 0.3, 1.0])
def test_float32_is_as_accurate_as_dense_attention(size, density, scale, gate_rule):
    """Root mean squares within a factor of two; maxima, which one unlucky number decides, within eight."""
    ours, theirs = (errors(size, density, scale, gate_rule, backend) for backend in ("cpu", "dense"))
    for factor, mine, yours in zip((2, 8), ours, theirs, strict=True):
        for name, x, y in zip(("out", "query", "key", "value", "gate"), mine, yours, strict=True):
            assert 0 < x <= factor * y, (name, factor, x, y)


@rules
@pytest.mark.parametrize(("size", "scale"), [*product(SIZES[1::2], (1.0, 5.0))])
def test_it_is_so_with_biases_sinks_and_weights(size, scale, gate_rule):
    """Biases are those of edges that were drawn with probabilities from .001 to 1."""

    def deviations(backend):
        deviations = []
        for seed in (0, 1, 2):
            case = make_case(*size, density=0.3, seed=seed)
            bias, sink = -torch.linspace(0.001, 1, case.edges.n_edges).log(), torch.linspace(0, 3, size[1])
            large = [scale * t.detach() for t in (case.query, case.key)]
            rounded = [t.detach().float() for t in (*large, case.value, case.gate, bias, sink)]
            exact = results_with_terms([t.double().requires_grad_() for t in rounded], case.edges, "dense", gate_rule)
            found = results_with_terms([t.requires_grad_() for t in rounded], case.edges, backend, gate_rule)
            deviations.append([(x.double() - y).detach().flatten() for x, y in zip(found, exact, strict=True)])
        return [float(torch.cat(parts).square().mean().sqrt()) for parts in zip(*deviations, strict=True)]

    names = ("out", "weights", "query", "key", "value", "gate", "bias", "sink")
    for name, mine, yours in zip(names, deviations("cpu"), deviations("dense"), strict=True):
        assert 0 < mine <= 2 * yours, (name, mine, yours)


def results_with_terms(leaves, edges, backend, gate_rule):
    """Output, weights, and gradients of all inputs."""
    *inputs, gate, bias, sink = leaves
    options = dict(gate_rule=gate_rule, bias=bias, sink=sink, backend=backend, return_weights=True)
    found = edge_attention(*inputs, edges, gate, **options)
    loss = sum((x * torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view_as(x)).sum() for x in found)
    return *found, *torch.autograd.grad(loss, leaves)


# --- layouts and types -------------------------------------------------------------------------------------------

LAYOUTS = {
    "heads last": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "width first": lambda t: t.permute(3, 0, 1, 2).contiguous().permute(1, 2, 3, 0),
    "every other number": lambda t: torch.stack([t, torch.full_like(t, torch.nan)], -1).flatten(-2)[..., ::2],
    "a part of something larger": lambda t: torch.nn.functional.pad(t, (1, 2, 3, 1), value=torch.nan)[..., 3:-1, 1:-2],
}


@rules
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_memory_layout(layout, gate_rule):
    case = make_case(2, 3, 5, 7, 4, 6, density=0.5)
    leaves = [LAYOUTS[layout](t.detach()).requires_grad_() for t in case.leaves[:3]]
    assert not any(t.is_contiguous() for t in leaves)
    leaves.append(torch.stack([case.gate.detach()] * 2, -1)[:, 0].requires_grad_())
    row_ptr, keys = (torch.stack([t, t + 1000], -1)[:, 0] for t in (case.edges.row_ptr, case.edges.keys))
    assert not keys.is_contiguous()
    found = results(leaves, EdgeList(row_ptr, keys, case.edges.shape), "cpu", gate_rule)
    assert_close(found, results(case.leaves, case.edges, "cpu", gate_rule), 0)


def test_expanded_inputs_gather_their_gradients():
    case = make_case(2, 3, 5, 7, 4, 6, density=0.5)
    one = [t.detach()[:1, :1].clone().requires_grad_() for t in case.leaves[:3]]
    found, expected = [], []
    for backend, numbers in (("cpu", found), ("dense", expected)):
        out = edge_attention(*(t.expand(2, 3, -1, -1) for t in one), case.edges, backend=backend)
        numbers += [out, *torch.autograd.grad(out.square().sum(), one)]
    assert_close(found, expected)


@rules
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits(dtype, gate_rule):
    """Rounded on the way in and out, and never between: gradients have their inputs' types and their precision."""
    case = make_case(2, 3, 6, 9, 8, 5, density=0.5)
    leaves = [t.detach().to(dtype).requires_grad_() for t in case.leaves]
    exact = results([t.detach().double().requires_grad_() for t in leaves], case.edges, "dense", gate_rule)
    found = results(leaves, case.edges, "cpu", gate_rule)
    for mine, theirs in zip(found, exact, strict=True):
        assert mine.dtype == dtype
        atol = 2 * torch.finfo(dtype).eps * float(theirs.detach().abs().max())
        torch.testing.assert_close(mine.double(), theirs, rtol=0, atol=atol)


def test_inputs_of_different_types_keep_theirs():
    case = make_case(2, 2, 6, 9, 8, 5, density=0.5)
    types = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    leaves = [t.detach().to(dtype).requires_grad_() for t, dtype in zip(case.leaves, types, strict=True)]
    out, *gradients = results(leaves, case.edges, "cpu")
    assert out.dtype == torch.float32 and [grad.dtype for grad in gradients] == list(types)
    exact, *_ = results([t.detach().double().requires_grad_() for t in leaves], case.edges, "dense")
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-5)


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


# --- autograd ----------------------------------------------------------------------------------------------------


def test_only_what_requires_a_gradient_gets_one():
    case = make_case(2, 2, 6, 9, 4, 5)
    expected = results(case.leaves, case.edges, "cpu")[1:]
    for i, (leaf, gradient) in enumerate(zip(case.leaves, expected, strict=True)):
        leaves = [t.detach() for t in case.leaves]
        leaves[i] = leaf
        query, key, value, gate = leaves
        out = edge_attention(query, key, value, case.edges, gate, backend="cpu")
        weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
        assert_close(torch.autograd.grad((out * weight).sum(), leaf), [gradient], 0)


def test_an_incoming_gradient_in_any_layout():
    case = make_case(2, 2, 6, 9, 4, 5)
    out = edge_attention(case.query, case.key, case.value, case.edges, backend="cpu")
    turned = torch.randn(out.shape[::-1], dtype=out.dtype).permute(3, 2, 1, 0)
    for grad in (torch.ones((), dtype=out.dtype).expand(out.shape), turned):
        expected = torch.autograd.grad(out, case.leaves[:3], grad.contiguous(), retain_graph=True)
        assert_close(torch.autograd.grad(out, case.leaves[:3], grad, retain_graph=True), expected, 0)


def test_what_is_differentiable_once_says_so_when_asked_twice():
    case = make_case(2, 2, 6, 9, 4, 5)
    out = edge_attention(case.query, case.key, case.value, case.edges, case.gate, backend="cpu")
    gradients = torch.autograd.grad(out.square().sum(), case.leaves, create_graph=True)
    for gradient in gradients:
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            torch.autograd.grad(gradient.square().sum(), case.query, retain_graph=True)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients_the_values_are_the_same(mode):
    case = make_case(2, 2, 6, 9, 4, 5)
    expected = edge_attention(case.query, case.key, case.value, case.edges, case.gate, backend="cpu")
    with mode():
        found = edge_attention(case.query, case.key, case.value, case.edges, case.gate, backend="cpu")
    assert torch.equal(found, expected) and expected.requires_grad and not found.requires_grad


def test_tensors_elsewhere_are_refused():
    case = make_case(1, 1, 3, 3, 2, 2)
    inputs = (t.detach().to("meta") for t in case.leaves[:3])
    with pytest.raises(SbmtError, match="edges on meta, as the query, got cpu"):
        edge_attention(*inputs, case.edges, backend="cpu")


@pytest.mark.parametrize("is_needed", [True, False])
def test_no_gradient_of_a_bias_is_computed_unless_it_is_needed(is_needed, monkeypatch):
    made, whole = [], launch.Gradients
    monkeypatch.setattr(launch, "Gradients", lambda *fields: made.append(whole(*fields)) or made[-1])
    case = make_case(2, 2, 6, 9, 4, 5)
    bias = case.gate.detach().requires_grad_(is_needed)
    edge_attention(*case.leaves[:3], case.edges, bias=bias, backend="cpu").sum().backward()
    assert made[0].bias.numel() == is_needed * case.edges.n_edges
    assert (bias.grad is not None) == is_needed and (case.query.grad != 0).any()

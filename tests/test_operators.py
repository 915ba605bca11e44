"""What torch.library asks of an operator: a truthful schema, shapes without data, gradients the compiler can trace."""

import pytest
import torch
from torch.testing._internal.optests.generate_tests import OpCheckError

import sbmt
from sbmt import BlockModel, EdgeList
from sbmt.attention import dropout
from sbmt.kernels import crossed, draws, fit, poisson, rows, tiles
from sbmt.kernels.gpu import is_interpreted
from sbmt.kernels.operator import operator
from tests.attention.row_loop import make_case

DENSITIES = [0.4, 0.0]


def small_case(density, seed=0):
    return make_case(2, 2, 5, 7, 3, 4, density=density, seed=seed)


def mask_and_by_key(edges):
    return edges.row_ptr, edges.keys, *edges.by_key, 5, 7


def padding():
    return torch.arange(5) < torch.tensor([[5], [3]]), torch.arange(7) < torch.tensor([[4], [7]])


def attend(density, is_gated=True, is_dropped=True, is_score_rule=True, has_terms=True, dtype=torch.float64):
    case = small_case(density)
    tokens = [t.detach().to(dtype).flatten(0, 2).requires_grad_() for t in (case.query, case.key, case.value)]
    none = tokens[0].new_empty(0).detach()
    gate = case.gate.detach().to(dtype).requires_grad_() if is_gated else none
    scale = (torch.arange(case.edges.n_edges) % 3).to(dtype) if is_dropped else none
    bias, sink = ((torch.arange(n) % 5).to(dtype).requires_grad_() for n in (case.edges.n_edges, 4))
    terms = (bias, sink) if has_terms else (none, none)
    return *tokens, gate, *terms, scale, *mask_and_by_key(case.edges), is_score_rule, has_terms, False


def edge_products(density):
    case = small_case(density)
    return (
        *(t.detach().flatten(0, 2).requires_grad_() for t in (case.query, case.key)),
        *mask_and_by_key(case.edges),
        False,
    )


def attend_tiles(density, is_poisson=False):
    tokens = [torch.randn(2, 2, n, 4, requires_grad=True) for n in (5, 7, 7)]
    rates = [(torch.rand(2, 2, n, 3) * density).requires_grad_() for n in (5, 7)]
    return *tokens, *rates, *padding(), torch.tensor([20, 21]), -5, 7, 3, 0.01, -1, 0.1, is_poisson, True


def merge_rows(density):
    edges, other = small_case(density).edges, small_case(0.3, seed=1).edges
    return edges.row_ptr, edges.keys, other.row_ptr, other.keys


def two_pointers(density, *rest):
    edges = small_case(density).edges
    return edges.row_ptr, edges.keys, *rest


def with_window(density):
    """A window that holds some of the edges; the masks are those of :func:`padding`, though edges touch padding."""
    return two_pointers(density, 5, 7, 1, 2, *padding())


def part_tokens():
    """Two heads of two examples, 5 queries in two parts of each of four partitions into three, and their blocks."""
    generator = torch.Generator().manual_seed(0)
    part = torch.tensor([0, 2] * 4) + 3 * torch.arange(4).repeat_interleave(2)
    weight = torch.rand(20, 8, dtype=torch.float64, generator=generator).requires_grad_()
    blocks = torch.rand(2, 4, 3, 3, dtype=torch.float64, generator=generator).requires_grad_()
    return part.repeat(20, 1), weight, blocks


def crossed_factors():
    """Those of :func:`part_tokens` as queries, and 7 keys of each example and head."""
    part, query, blocks = part_tokens()
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(28, 8, dtype=torch.float64, generator=generator).requires_grad_()
    return part, query, blocks, part[:1].repeat(28, 1), weight


def pair_totals():
    return *crossed_factors()[3:], 4, 3, 4


def part_memberships(reads_detached):
    """Queries and keys of width 4, and their map to twelve logits in each of two heads."""
    shapes = (2, 2, 5, 4), (2, 2, 7, 4), (2, 4 + 1, 12)
    leaves = [torch.randn(shape, dtype=torch.float64).requires_grad_() for shape in shapes]
    return *(x.detach() if reads_detached else x for x in leaves[:2]), leaves[2], 3, 2


def crossed_rates(density):
    edges = small_case(density).edges
    return *crossed_factors(), edges.row_ptr, edges.keys, 5, 7


def rated_edges(density, has_weights):
    """Rates, and perhaps weights, of edges, some of which a window of reach 1 makes certain."""
    edges = small_case(density).edges
    rate = torch.linspace(0, 2, edges.n_edges, dtype=torch.float64).requires_grad_(has_weights)
    weights = (torch.linspace(0, 1, edges.n_edges, dtype=torch.float64),) if has_weights else ()
    return rate, *weights, edges.row_ptr, edges.keys, 5, 7, 0.1, 1


def rates_by_parts(density):
    _, _, _, part, weight = crossed_factors()
    rate = torch.rand(20, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    return rate, part, weight, 4, *mask_and_by_key(small_case(density).edges)


def sample_crossed(density):
    return *(x.detach() for x in crossed_factors()), [2, 2, 5, 7], *padding(), density, 1, -5, 3


def attend_drawn(density):
    """Three copies of each graph of :func:`sample_crossed`."""
    generator = torch.Generator().manual_seed(2)
    shapes = (3 * 20, 4), (3 * 28, 4), (3 * 28, 6), (6,)
    inputs = (torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes)
    return *inputs, 0.05, *sample_crossed(density)


def attend_and_fit(density):
    """Three copies of each graph; some of its edges a window of reach 1 makes certain."""
    *inputs, _ = attend_drawn(density)[:5]
    edges = crossed_rates(density)
    scale = torch.linspace(0, 2, 3 * edges[6].numel(), dtype=torch.float64)
    return *(x.requires_grad_() for x in inputs), scale, *edges, 0.1, 1, 0.05, 4.0


def sample(density):
    return torch.rand(2, 3, 5, 4) * density, torch.rand(2, 3, 7, 4), *padding(), 0.0, density == 0.4, -5, 3


GATES = [
    dict(is_gated=True, is_dropped=True, is_score_rule=True, has_terms=True),
    dict(is_gated=True, is_dropped=False, is_score_rule=False, has_terms=True, dtype=torch.float32),
    dict(is_gated=False, is_dropped=True, is_score_rule=True, has_terms=False),
]
CASES = {  # for each operator, where it is defined, and arguments; torch traces those of backward passes through these
    "attend": (rows.attend, lambda density: [attend(density, **gate) for gate in GATES]),
    "edge_dot": (rows.edge_dot, lambda density: [edge_products(density)]),
    "edge_gate": (rows.edge_gate, lambda density: [edge_products(density)]),
    "transpose": (rows.transpose, lambda density: [two_pointers(density, 5, 7)]),
    "attend_tiles": (tiles.attend_tiles, lambda density: [attend_tiles(density), attend_tiles(density, True)]),
    "merge_rows": (rows.merge_rows, lambda density: [merge_rows(density)]),
    "with_window": (rows.with_window, lambda density: [with_window(density)]),
    "repeat": (rows.repeat, lambda density: [two_pointers(density, 5, 7, 3)]),
    "near": (rows.near, lambda density: [two_pointers(density, 5, 7, 1)]),
    "cell_uniforms": (dropout._uniforms_on_cpu, lambda density: [two_pointers(density, -5, 5, 2, 3)]),
    "sample_exact": (draws.draw_on_cpu, lambda density: [sample(density)]),
    "part_memberships": (crossed.part_memberships, lambda density: [part_memberships(True), part_memberships(False)]),
    "crossed_rates": (crossed.crossed_rates, lambda density: [crossed_rates(density)]),
    "weigh": (poisson.weigh, lambda density: [(*rated_edges(density, False), 0.05, False)]),
    "gain": (poisson.gain, lambda density: [(*rated_edges(density, True), False)]),
    "pair_totals": (crossed.pair_totals, lambda density: [pair_totals()]),
    "sample_crossed": (draws.draw_crossed, lambda density: [sample_crossed(density)]),
    "attend_and_fit": (fit.attend_and_fit, lambda density: [attend_and_fit(density)]),
    "attend_drawn": (draws.attend_drawn, lambda density: [attend_drawn(density)]),
    "largest_parts": (crossed.largest_parts, lambda density: [(torch.rand(2, 3, 5, 12) * density, 4, 2)]),
    "part_rates": (crossed.part_rates, lambda density: [(*crossed_factors()[:3], 5)]),
    "rates_by_parts": (crossed.rates_by_parts, lambda density: [rates_by_parts(density)]),
}
GPU_ALONE = ["attend_tiles", "largest_parts", "part_rates", "rates_by_parts"]
ON_GPU = [*GPU_ALONE, "attend", "edge_dot", "edge_gate", "weigh", "gain"]  # that Triton's interpreter can run


def test_every_operator_of_the_library_is_listed():
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("sbmt::")}
    assert {name for name in registered if not name.endswith("_backward")} == {f"sbmt::{name}" for name in CASES}


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("name", [name for name in CASES if name not in GPU_ALONE])
def test_operators_keep_torch_s_rules(name, density):
    operator, arguments = CASES[name]
    for given in arguments(density)[: None if density else 1]:
        torch.library.opcheck(operator.overload, given)


@pytest.mark.parametrize("name", [name for name in CASES if name not in GPU_ALONE])
def test_a_plain_call_gives_what_the_dispatcher_gives(name):
    operator, arguments = CASES[name]
    for given in arguments(0.4):
        leaves = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
        found = []
        for call in (operator, operator.overload):
            out = call(*given)
            out = out if isinstance(out, tuple) else (out,)
            factors = [torch.linspace(-1, 2, t.numel(), dtype=t.dtype).view_as(t) for t in out if t.requires_grad]
            total = sum((t * f).sum() for t, f in zip([t for t in out if t.requires_grad], factors, strict=True))
            grads = torch.autograd.grad(total, leaves, allow_unused=True) if leaves else ()
            found.append([*(t.detach() for t in out), *grads])
        for plain, dispatched in zip(*found, strict=True):
            assert (plain is None) == (dispatched is None)
            assert plain is None or torch.equal(plain, dispatched)


def test_modes_and_profilers_see_operators():
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    operator, given = crossed.pair_totals, pair_totals()
    with Watch():
        operator(*given)
    assert "sbmt.pair_totals.default" in seen
    with torch.profiler.profile() as profiler:
        operator(*given)
    assert "sbmt::pair_totals" in {event.key for event in profiler.key_averages()}


@pytest.mark.skipif(not is_interpreted(), reason="needs TRITON_INTERPRET=1: see make gpu-test")
@pytest.mark.parametrize("name", ON_GPU)
def test_operators_keep_them_on_the_gpu(name):
    operator, arguments = CASES[name]
    for given in arguments(0.4)[:2]:
        given = given if name in GPU_ALONE else (*given[:-1], True)  # the last one is use_gpu
        torch.library.opcheck(operator.overload, given)


def copy(x):
    return x.clone()


def change_in_place(x):
    return x.mul_(2).clone()


@pytest.mark.parametrize(
    ("function", "fake", "words"),
    [(copy, lambda x: x.new_empty(x.numel() + 1), "FakeTensor"), (change_in_place, torch.empty_like, "mutat")],
)
def test_a_broken_operator_is_noticed(function, fake, words):
    broken = operator(f"sbmt_tests::{function.__name__}", schema="(Tensor x) -> Tensor")(function)
    broken.register_fake(fake)
    with pytest.raises(OpCheckError, match=words):
        torch.library.opcheck(broken.overload, (torch.ones(3),))


def first_of(output):
    """And of a fit its loss, too, without which the block model gets no gradient."""
    if isinstance(output, tuple) and output[1].dim() == 0:
        return torch.cat([output[0].flatten(), output[1][None]])
    return output[0] if isinstance(output, tuple) else output


@pytest.mark.parametrize("name", ["attend", "edge_dot", "edge_gate", "gain", "attend_and_fit"])
def test_a_second_backward_pass_gives_the_same_and_a_second_derivative_is_refused(name):
    operator, arguments = CASES[name]
    for given in arguments(0.4):
        leaves = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
        out = first_of(operator(*given))
        first, second = (torch.autograd.grad(out.sum(), leaves, retain_graph=kept) for kept in (True, False))
        assert all(torch.equal(x, y) and (x != 0).any() for x, y in zip(first, second, strict=True))
        with pytest.raises(RuntimeError, match="second time"):
            torch.autograd.grad(out.sum(), leaves)
        out = first_of(operator(*given))
        for gradient in torch.autograd.grad(out.square().sum(), leaves, create_graph=True):
            with pytest.raises(RuntimeError, match="no autograd formula was registered"):
                torch.autograd.grad(gradient.sum(), leaves, retain_graph=True)


def test_gradients_go_through_the_operators_of_a_whole_layer():
    """The tensors that a gated attention saves and differentiates are those of the operators, not of fallbacks."""
    model = BlockModel(*(torch.rand(shape, requires_grad=True) for shape in ((1, 1, 6, 2), (1, 2, 2), (1, 1, 6, 2))))
    edges = EdgeList.from_dense(torch.ones(1, 1, 6, 6, dtype=torch.bool))
    x = torch.rand(1, 1, 6, 3)
    out = sbmt.edge_attention(x, x, x, edges, model.gate(edges), backend="cpu")
    names, todo = set(), [out.grad_fn]
    while todo:
        node = todo.pop()
        names.add(node.name())
        todo += [following for following, _ in node.next_functions if following is not None]
    assert any("sbmt_attend" in name for name in names) and any("sbmt_edge_gate" in name for name in names)

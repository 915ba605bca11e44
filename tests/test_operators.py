"""What torch.library asks of an operator: a truthful schema, shapes without data, gradients the compiler can trace."""

import pytest
import torch

import sbmt
from sbmt import BlockModel, EdgeList
from sbmt.attention import dispatch
from sbmt.kernels import draws, rows, tiles
from sbmt.kernels.gpu import is_interpreted
from tests.attention.row_loop import make_case

DENSITIES = [0.4, 0.0]


def differentiable(tensors):
    return [t.detach().requires_grad_() for t in tensors]


def rows_and_columns(edges):
    return edges.row_ptr, edges.keys, *edges.by_key


def attend(density, is_gated=True, is_dropped=True, is_score_rule=True, dtype=torch.float64, use_gpu=False):
    """Arguments of ``sbmt::attend``."""
    case = make_case(2, 2, 5, 7, 3, 4, density=density)
    given = [t.detach().to(dtype).flatten(0, 2) for t in (case.query, case.key, case.value)]
    n_edges = case.edges.n_edges
    gate = case.gate.detach().to(dtype) if is_gated else given[0].new_empty(0)
    scale = (torch.arange(n_edges) % 3).to(dtype) if is_dropped else given[0].new_empty(0)
    return *differentiable((*given, gate)), scale, *rows_and_columns(case.edges), 5, 7, is_score_rule, use_gpu


def attend_backward(density, **options):
    arguments = [x.detach() if isinstance(x, torch.Tensor) else x for x in attend(density, **options)]
    results = list(rows.attend(*arguments))
    return torch.randn_like(results[0]), results, [*arguments[:5]], [*arguments[5:10]], *arguments[10:]


def edge_products(density, is_differentiable=True, use_gpu=False):
    """Arguments of ``sbmt::edge_dot`` and ``sbmt::edge_gate``."""
    case = make_case(2, 2, 5, 7, 3, 4, density=density)
    given = [t.detach().flatten(0, 2) for t in (case.query, case.key)]
    given = differentiable(given) if is_differentiable else given
    return *given, *rows_and_columns(case.edges), 5, 7, use_gpu


def edge_dot_backward(density, use_gpu=False):
    query, key, *mask_and_by_key, n_queries, n_keys, _ = edge_products(density, is_differentiable=False)
    grad = torch.randn(mask_and_by_key[1].shape, dtype=torch.float64)
    return grad, [query, key], mask_and_by_key, n_queries, n_keys, use_gpu


def attend_tiles(density, is_poisson=False):
    """Arguments of ``sbmt::attend_tiles``."""
    tokens = [torch.randn(2, 2, n, 4) for n in (5, 7, 7)]
    rates = [torch.rand(2, 2, n, 3) * density for n in (5, 7)]
    masks = torch.arange(5) < torch.tensor([[5], [3]]), torch.arange(7) < torch.tensor([[4], [7]])
    drawing = (-5, 7, 3, 0.01, -1, 0.1, is_poisson, True)
    return *differentiable((*tokens, *rates)), *masks, torch.tensor([20, 21]), *drawing


def attend_tiles_backward(density):
    arguments = [x.detach() if isinstance(x, torch.Tensor) else x for x in attend_tiles(density)]
    out, density, log_total, largest = tiles.attend_tiles(*arguments)
    grads = torch.randn_like(out), torch.randn_like(density)
    return *grads, [out, log_total, largest], [*arguments[:7]], *arguments[7:]


def transpose(density, use_gpu=False):
    edges = make_case(2, 2, 5, 7, 3, 4, density=density).edges
    return edges.row_ptr, edges.keys, 5, 7, use_gpu


def merge_rows(density):
    edges, other = (make_case(2, 2, 5, 7, 3, 4, density=p, seed=seed).edges for seed, p in enumerate((density, 0.3)))
    return edges.row_ptr, edges.keys, other.row_ptr, other.keys


def cell_uniforms(density):
    edges = make_case(2, 2, 5, 7, 3, 4, density=density).edges
    return edges.row_ptr, edges.keys, -5, 5, 2, 3


def sample(density):
    rates, key = torch.rand(2, 3, 5, 4) * density, torch.rand(2, 3, 7, 4)
    masks = torch.arange(5) < torch.tensor([[5], [3]]), torch.arange(7) < torch.tensor([[4], [7]])
    return rates, key, *masks, 0.0, density == 0.4, -5, 3


GATES = [
    dict(is_gated=is_gated, is_dropped=is_dropped, is_score_rule=is_score_rule)
    for is_gated in (True, False)
    for is_dropped in (True, False)
    for is_score_rule in (True, False)
]
ON_GPU = {  # those whose kernels Triton's interpreter can run
    "attend": lambda density: [attend(density, use_gpu=True), attend(density, is_gated=False, use_gpu=True)],
    "attend_backward": lambda density: [attend_backward(density, use_gpu=True)],
    "edge_dot": lambda density: [edge_products(density, use_gpu=True)],
    "edge_gate": lambda density: [edge_products(density, use_gpu=True)],
    "edge_dot_backward": lambda density: [edge_dot_backward(density, use_gpu=True)],
    "transpose": lambda density: [transpose(density, use_gpu=True)],
    "attend_tiles": lambda density: [attend_tiles(density), attend_tiles(density, is_poisson=True)],
    "attend_tiles_backward": lambda density: [attend_tiles_backward(density)],
}
CASES = {  # operator by operator: where it is defined, and arguments
    "attend": (rows.attend, lambda density: [attend(density, **gate) for gate in GATES]),
    "attend_backward": (
        rows.attend_backward,
        lambda density: [attend_backward(density, **gate) for gate in GATES],
    ),
    "edge_dot": (rows.edge_dot, lambda density: [edge_products(density)]),
    "edge_gate": (rows.edge_gate, lambda density: [edge_products(density)]),
    "edge_dot_backward": (rows.edge_dot_backward, lambda density: [edge_dot_backward(density)]),
    "attend_tiles": (tiles.attend_tiles, lambda density: []),
    "attend_tiles_backward": (tiles.attend_tiles_backward, lambda density: []),
    "transpose": (rows.transpose, lambda density: [transpose(density)]),
    "merge_rows": (rows.merge_rows, lambda density: [merge_rows(density)]),
    "cell_uniforms": (dispatch._uniforms_on_cpu, lambda density: [cell_uniforms(density)]),
    "sample_exact": (draws.draw_on_cpu, lambda density: [sample(density)]),
}


def test_every_operator_of_the_library_is_listed():
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("sbmt::")}
    assert registered == {f"sbmt::{name}" for name in CASES}


@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("name", CASES)
def test_operators_keep_torch_s_rules(name, density):
    operator, arguments = CASES[name]
    for given in arguments(density):
        torch.library.opcheck(operator, given)


@pytest.mark.skipif(not is_interpreted(), reason="needs TRITON_INTERPRET=1: see make gpu-test")
@pytest.mark.parametrize("density", DENSITIES)
@pytest.mark.parametrize("name", ON_GPU)
def test_operators_keep_them_on_the_gpu(name, density):
    for given in ON_GPU[name](density):
        torch.library.opcheck(CASES[name][0], given)


def test_operators_keep_them_in_float32_too():
    torch.library.opcheck(rows.attend, attend(0.4, dtype=torch.float32))
    torch.library.opcheck(rows.attend_backward, attend_backward(0.4, dtype=torch.float32))


def test_a_broken_rule_is_noticed():
    @torch.library.custom_op("sbmt_tests::wrong_shape", mutates_args=(), device_types="cpu")
    def wrong_shape(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    wrong_shape.register_fake(lambda x: x.new_empty(x.numel() + 1))
    with pytest.raises(torch.testing._internal.optests.generate_tests.OpCheckError):
        torch.library.opcheck(wrong_shape, (torch.ones(3),))


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

"""Tests operators as torch.library requires: truthful schemas, fake tensors, gradients that can be traced."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sbmt import EdgeList, SbmtError, build_attention, edge_attention
from tests.gradients import weighted_sum
from tests.layers.inputs import seeded, tokens

N = 9
PADDING = torch.arange(N) < torch.tensor([[N], [5]])
NOBODY = torch.zeros(2, N, dtype=torch.bool)
LAYERS = {
    "gated": dict(preset="recommended", n_clusters=5, dropout=0.2, backend="cpu"),
    "fitted": dict(preset="fitted", n_clusters=64, dropout=0.2, backend="cpu"),
}


def make(name):
    torch.manual_seed(0)
    return build_attention("sbm", d_head=4, n_heads=3, **LAYERS[name])


def total(out):
    """Computes a loss that uses every output of an attention layer."""
    return weighted_sum(out.values) + out.density.sum() + out.expected_density.sum() + out.auxiliary_loss


def inputs(**options):
    return [tokens(n=N, seed=seed, **options).requires_grad_() for seed in range(3)]


class Calls(TorchDispatchMode):
    """Records each call of one of the library's operators, with its overload and arguments."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "sbmt":
            kept = [
                x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in args
            ]
            self.kept.append((function, kept))
        return function(*args, **(kwargs or {}))


def every_call():
    """Returns the calls in forward and backward passes of layers that use all operators, some without edges."""
    with Calls() as calls:
        for name in LAYERS:
            for mask in (PADDING, NOBODY):
                total(make(name)(*inputs(), query_mask=mask, key_mask=mask)).backward()
        edges = EdgeList.from_dense(torch.ones(2, 3, N, N, dtype=torch.bool))
        terms = [torch.linspace(0.5, 2, n).requires_grad_() for n in (edges.n_edges, edges.n_edges, 3)]
        options = dict(gate_rule="weight", bias=terms[1], sink=terms[2], backend="cpu", return_weights=True)
        values, weights = edge_attention(*inputs(), edges, terms[0], **options)
        (values.square().sum() + weights.square().sum()).backward()
    return calls.kept


def kind_of(x):
    """Returns what an operator may treat differently: a tensor's type and emptiness, and the types of numbers."""
    if isinstance(x, torch.Tensor):
        return x.dtype, x.requires_grad, x.numel() == 0
    return x if isinstance(x, str | bool | None) else type(x)


def test_operators_keep_torch_s_rules():
    checked, registered = set(), {x for x in torch._C._dispatch_get_all_op_names() if x.startswith("sbmt::")}
    kinds = {(function, *map(kind_of, given)): (function, given) for function, given in every_call()}
    for function, given in kinds.values():
        has_gradients = f"{function.name()}_backward" in registered
        if not has_gradients or function.name() == "sbmt::choose_parts":
            given = (x.detach() if isinstance(x, torch.Tensor) else x for x in given)
        torch.library.opcheck(function, tuple(given))  # this sums outputs, so outputs with gradients cannot be integers
        checked.add(function.name())
    assert checked == registered


@pytest.mark.parametrize("name", LAYERS)
def test_a_second_backward_pass_gives_the_same_and_a_second_derivative_is_refused(name):
    layer, given = make(name), inputs()
    leaves = [*given, *layer.parameters()]
    loss = total(layer(*given, generator=seeded()))
    first, second = (torch.autograd.grad(loss, leaves, retain_graph=kept) for kept in (True, False))
    assert all(torch.equal(x, y) and x.any() for x, y in zip(first, second, strict=True))
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, leaves)
    gradient, *_ = torch.autograd.grad(total(layer(*given)), given[:1], create_graph=True)
    with pytest.raises(SbmtError, match=r"do not support second derivatives.*create_graph=True"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("name", LAYERS)
def test_the_storage_of_a_layer_s_inputs_stays_resizable(name):
    """``Tensor.numpy`` would forbid this permanently; sharded training frees parameters by resizing them to zero."""
    layer, given = make(name), inputs()
    total(layer(*given)).backward()
    assert all(x.untyped_storage().resizable() for x in (*given, *layer.parameters(), *layer.buffers()))

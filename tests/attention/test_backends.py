"""Every backend computes what the row loop computes, and has its gradients."""

import pytest
import torch

from sbmt import SbmtError
from sbmt.attention import available_backends, dispatch
from sbmt.graph.edges import EdgeList
from sbmt.kernels.cutoffs import Cutoff
from tests.attention.row_loop import attend_row_by_row, make_case
from tests.kernels.gpu.device import BACKENDS, edge_attention

CASES = {
    "square": dict(batch=2, heads=3, n_queries=4, n_keys=4, d=4, d_value=4, density=0.6),
    "bipartite": dict(batch=2, heads=2, n_queries=5, n_keys=9, d=3, d_value=5, seed=1),
    "more queries": dict(batch=1, heads=1, n_queries=9, n_keys=2, d=4, d_value=1, seed=2),
    "padded": dict(batch=2, heads=2, n_queries=5, n_keys=6, d=4, d_value=3, seed=3, padded=True),
    "dense": dict(batch=1, heads=2, n_queries=8, n_keys=8, d=4, d_value=2, density=1.0, seed=4),
    "one edge a row or so": dict(batch=1, heads=2, n_queries=8, n_keys=8, d=4, d_value=4, density=0.1, seed=5),
    "no edge": dict(batch=2, heads=2, n_queries=3, n_keys=4, d=4, d_value=2, density=0.0, seed=6),
    "one token": dict(batch=1, heads=1, n_queries=1, n_keys=1, d=1, d_value=1, seed=7),
}
backends = pytest.mark.parametrize("backend", [*BACKENDS, "auto"])
rules = pytest.mark.parametrize("gate_rule", ["score", "weight"])


def gradients(out, leaves):
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    return torch.autograd.grad((out * weight).sum(), leaves, allow_unused=True, materialize_grads=True)


@backends
@rules
@pytest.mark.parametrize("is_gated", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_equal_the_row_loop(name, is_gated, gate_rule, backend):
    case = make_case(**CASES[name])
    gate = case.gate if is_gated else None
    ours = edge_attention(case.query, case.key, case.value, case.edges, gate, gate_rule=gate_rule, backend=backend)
    loop = attend_row_by_row(case.query, case.key, case.value, case.mask, gate, gate_rule)
    torch.testing.assert_close(ours, loop, rtol=0, atol=1e-10)
    if not loop.requires_grad:
        loop = loop + 0 * sum(leaf.sum() for leaf in case.leaves)
    found = gradients(ours, case.leaves)
    for mine, theirs in zip(found, gradients(loop, case.leaves), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)
    has_edge, is_read = case.mask.any(-1), case.mask.any(-2)
    assert all((grad[~of] == 0).all() for grad, of in zip(found, (has_edge, is_read, is_read), strict=False))


@pytest.mark.parametrize("backend", BACKENDS)
@rules
def test_gradcheck(gate_rule, backend):
    case = make_case(batch=1, heads=1, n_queries=3, n_keys=4, d=2, d_value=2, density=0.7)

    def attend(*leaves):
        query, key, value, gate = leaves
        return edge_attention(query, key, value, case.edges, gate, gate_rule=gate_rule, backend=backend)

    assert torch.autograd.gradcheck(attend, case.leaves)


@backends
@rules
def test_large_scores_neither_overflow_nor_vanish(gate_rule, backend):
    case = make_case(**CASES["padded"])
    big = [(1e3 * t.detach()).requires_grad_() for t in (case.query, case.key)]
    out = edge_attention(*big, case.value, case.edges, case.gate, gate_rule=gate_rule, backend=backend)
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in gradients(out, [*big, case.value, case.gate]))
    has_edge = case.mask.any(-1)
    assert (out[has_edge].abs().sum(-1) > 0).all() and (out[~has_edge] == 0).all()


@backends
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_output_has_the_type_of_the_values(dtype, backend):
    case = make_case(**CASES["bipartite"])
    query, key, value = (t.detach().to(dtype) for t in (case.query, case.key, case.value))
    gate = case.gate.detach().float()  # probabilities are float32 even where the rest is not
    out = edge_attention(query, key, value, case.edges, gate, backend=backend)
    exact = attend_row_by_row(query.double(), key.double(), value.double(), case.mask, gate.double())
    assert out.dtype == dtype
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=30 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(("has_numba", "sparse"), [(True, "cpu"), (False, "pyg")])
def test_auto_picks_by_density_and_size(has_numba, sparse, monkeypatch):
    monkeypatch.setattr(dispatch, "can_run_on", lambda device: has_numba)
    monkeypatch.setattr(dispatch, "cutoffs", lambda: {"attention": Cutoff(1 << 16, 0.5)})
    for n, is_full, expected in (
        (32, False, sparse),
        (32, True, "dense"),
        (300, True, "cpu" if has_numba else "dense"),
    ):
        mask = torch.full((1, 1, n, n), is_full)
        assert dispatch.pick_backend(EdgeList.from_dense(mask)) == expected


def test_without_numba_its_backend_is_not_there(monkeypatch):
    monkeypatch.setattr(dispatch, "BACKENDS", {name: dispatch.BACKENDS[name] for name in ("dense", "pyg", "cpu")})
    monkeypatch.setattr(dispatch, "can_run_on", lambda device: False)
    assert available_backends() == ["dense", "pyg"]
    case = make_case(**CASES["square"])
    inputs = (case.query, case.key, case.value, case.edges)
    torch.testing.assert_close(edge_attention(*inputs), edge_attention(*inputs, backend="dense"))
    with pytest.raises(SbmtError, match="backend among 'auto', 'dense', 'pyg', got 'cpu'"):
        edge_attention(*inputs, backend="cpu")

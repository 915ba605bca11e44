"""A backend of the user's: taken by its name, everywhere, and refused where it cannot be what it says."""

from unittest.mock import ANY

import pytest
import torch

from sbmt import EdgeList, MultiHeadAttention, SBMAttention, SbmtError, available_backends
from sbmt.attention import EdgeTerms, dispatch, edge_attention, register_backend
from sbmt.attention.dense import attend_dense
from tests.attention.row_loop import make_case


@pytest.fixture(autouse=True)
def table(monkeypatch):
    """The table of backends, restored after the test."""
    monkeypatch.setattr(dispatch, "BACKENDS", dict(dispatch.BACKENDS))


@pytest.fixture
def calls():
    """Registers the dense backend as ``mine``; its edges and terms, call by call."""
    noted = []

    def attend(query, key, value, edges, terms):
        noted.append((edges, terms))
        return attend_dense(query, key, value, edges, terms)

    register_backend("mine", attend)
    return noted


def attend(backend, **options):
    case = make_case(batch=2, heads=2, n_queries=4, n_keys=5, d=3, d_value=2)
    return edge_attention(case.query, case.key, case.value, case.edges, case.gate, backend=backend, **options)


def test_it_is_called_by_its_name_with_what_was_asked_for(calls):
    assert available_backends()[-1] == "mine"
    assert torch.equal(attend("mine", gate_rule="weight"), attend("dense", gate_rule="weight"))
    edges, terms = calls.pop()
    assert terms == EdgeTerms(terms.gate, gate_rule="weight") and terms.gate.shape == (edges.n_edges,)
    attend("mine", dropout=0.5, generator=torch.Generator().manual_seed(0))
    assert set(calls.pop()[1].weight_scale.tolist()) == {0.0, 2.0}
    options = dict(bias=torch.randn(edges.n_edges), sink=torch.randn(2), return_weights=True)
    for found, expected in zip(attend("mine", **options), attend("dense", **options), strict=True):
        assert torch.equal(found, expected)
    assert calls.pop()[1] == EdgeTerms(ANY, "score", options["bias"], options["sink"], None, True)


def test_weights_that_were_not_asked_for_may_be_there():
    register_backend("mine", lambda *given: attend_dense(*given[:4], given[4]._replace(return_weights=True)))
    assert torch.equal(attend("mine"), attend("dense"))


def test_layers_take_it_and_auto_does_not(calls):
    for density in (0.05, 1.0):
        x = torch.randn(1, 1, 32, 4)
        edge_attention(x, x, x, EdgeList.from_dense(torch.rand(1, 1, 32, 32) <= density))
    assert calls == []
    x = torch.randn(1, 6, 8)
    MultiHeadAttention(8, 2, n_clusters=3, backend="mine")(x, x, x)
    SBMAttention(4, 2, 3, backend="mine")(*[torch.randn(1, 2, 5, 4)] * 3)
    assert len(calls) == 2


def test_a_name_of_ones_own_may_be_given_anew_and_those_of_the_library_may_not():
    register_backend("mine", lambda *five: 1 / 0)
    register_backend("mine", attend_dense)
    assert torch.equal(attend("mine"), attend("dense")) and available_backends().count("mine") == 1
    with pytest.raises(SbmtError, match="'mine', got 'yours'"):
        attend("yours")
    for name in ("auto", "dense", "pyg", "cpu", "gpu"):
        with pytest.raises(SbmtError, match=f"does not use for a backend, got '{name}'"):
            register_backend(name, attend_dense)


@pytest.mark.bad_input
def test_what_cannot_be_called_is_refused_at_once():
    with pytest.raises(SbmtError, match=r"backend\(query, key, value, edges, terms\), got too many positional"):
        register_backend("mine", lambda query, key, value, edges: value)
    assert "mine" not in available_backends()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda out, weights: (out.flatten(0, 1), weights), r"got torch.float64 \(4, 4, 2\) and"),
        (lambda out, weights: (out.float(), weights), r"got torch.float32 \(2, 2, 4, 2\) and"),
        (lambda out, weights: (out, None), r"got torch.float64 \(2, 2, 4, 2\) and NoneType"),
        (lambda out, weights: out, "got Tensor"),
    ],
)
def test_what_it_returns_must_fit(change, got):
    register_backend("mine", lambda *five: change(*attend_dense(*five)))
    words = r"a pair of torch.float64 \(2, 2, 4, 2\) and torch.float64 \(\d+,\) from backend 'mine', " + got
    with pytest.raises(SbmtError, match=words):
        attend("mine", return_weights=True)

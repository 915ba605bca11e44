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


class Recorded:
    """The dense backend, with notes of what it was called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, query, key, value, edges, terms):
        self.calls.append((edges, terms))
        return attend_dense(query, key, value, edges, terms)


def case():
    return make_case(batch=2, heads=2, n_queries=4, n_keys=5, d=3, d_value=2)


def attend(backend, **options):
    made = case()
    return edge_attention(made.query, made.key, made.value, made.edges, made.gate, backend=backend, **options)


def test_it_is_called_by_its_name_with_what_was_asked_for():
    mine = Recorded()
    register_backend("mine", mine)
    assert available_backends()[-1] == "mine"
    assert torch.equal(attend("mine", gate_rule="weight"), attend("dense", gate_rule="weight"))
    edges, terms = mine.calls.pop()
    made = case()
    assert torch.equal(edges.keys, made.edges.keys) and torch.equal(terms.gate, made.gate)
    assert terms == EdgeTerms(terms.gate, gate_rule="weight")
    attend("mine", dropout=0.5, generator=torch.Generator().manual_seed(0))
    assert set(mine.calls.pop()[1].weight_scale.tolist()) == {0.0, 2.0}


def test_it_is_told_of_biases_sinks_and_weights():
    mine, options = Recorded(), dict(bias=torch.randn(case().edges.n_edges), sink=torch.randn(2), return_weights=True)
    register_backend("mine", mine)
    for found, expected in zip(attend("mine", **options), attend("dense", **options), strict=True):
        assert torch.equal(found, expected)
    assert mine.calls.pop()[1] == EdgeTerms(ANY, "score", options["bias"], options["sink"], None, True)


def test_weights_that_were_not_asked_for_may_be_there():
    def attend_with_weights(*given):
        return attend_dense(*given[:4], given[4]._replace(return_weights=True))

    register_backend("mine", attend_with_weights)
    assert torch.equal(attend("mine"), attend("dense"))


def test_auto_leaves_it_alone():
    mine = Recorded()
    register_backend("mine", mine)
    for density in (0.05, 1.0):
        edges = EdgeList.from_dense(torch.rand(1, 1, 32, 32) <= density)
        x = torch.randn(1, 1, 32, 4)
        edge_attention(x, x, x, edges)
    assert mine.calls == []


def test_layers_take_it():
    mine = Recorded()
    register_backend("mine", mine)
    x = torch.randn(1, 6, 8)
    MultiHeadAttention(8, 2, n_clusters=3, backend="mine")(x, x, x)
    SBMAttention(4, 2, 3, backend="mine")(*[torch.randn(1, 2, 5, 4)] * 3)
    assert len(mine.calls) == 2


def test_a_name_of_ones_own_may_be_given_anew():
    register_backend("mine", lambda *five: 1 / 0)
    register_backend("mine", attend_dense)
    assert torch.equal(attend("mine"), attend("dense")) and available_backends().count("mine") == 1
    with pytest.raises(SbmtError, match="'mine', got 'yours'"):
        attend("yours")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["auto", "dense", "pyg", "cpu", "gpu"], "does not use for a backend, got '{}'"),
        (["", "two words", "a-b", 3, None], "name for the backend in letters, digits and _"),
    ],
)
def test_names_are_words_that_the_library_does_not_use(names, words):
    for name in names:
        with pytest.raises(SbmtError, match=words.format(name)):
            register_backend(name, attend_dense)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("attend", "got"),
    [
        ("dense", "got str"),
        (None, "got NoneType"),
        (lambda query, key, value, edges: value, "too many positional arguments"),
        (lambda *, query: query, "too many positional arguments"),
        (lambda a, b, c, d, e, f: a, "missing a required argument: 'f'"),
    ],
)
def test_what_cannot_be_called_is_refused_at_once(attend, got):
    with pytest.raises(SbmtError, match=got) as caught:
        register_backend("mine", attend)
    assert "backend(query, key, value, edges, terms)" in str(caught.value)
    assert "mine" not in available_backends()


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda out, weights: (out.flatten(0, 1), weights), r"float64 \(2, 2, 4, 2\) .*got torch.float64 \(4, 4, 2\)"),
        (lambda out, weights: (out.float(), weights), r"float64 \(2, 2, 4, 2\) .*got torch.float32 \(2, 2, 4, 2\)"),
        (lambda out, weights: (out, None), r"torch.float64 \(\d+,\) .*got NoneType"),
        (lambda out, weights: (out, weights[1:]), r"torch.float64 \(\d+,\) .*got torch.float64"),
        (lambda out, weights: out, "a pair of values and weights .*got Tensor"),
        (lambda out, weights: (out, weights, None), "a pair of values and weights .*got tuple"),
    ],
)
def test_what_it_returns_must_fit(change, got):
    register_backend("mine", lambda *five: change(*attend_dense(*five)))
    with pytest.raises(SbmtError, match=got) as caught:
        attend("mine", return_weights=True)
    assert "from backend 'mine'" in str(caught.value)

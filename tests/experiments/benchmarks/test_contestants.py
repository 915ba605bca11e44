import dataclasses
import shutil

import pytest
import torch

from sbmt.experiments.benchmarks.cases import Setting, build
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, Contestant, entry, try_once
from sbmt.experiments.benchmarks.parts import PARTS, WHOLE, take_apart
from sbmt.experiments.benchmarks.timing import Pace

SMALL = Setting(64, 0.1, "structured", n_clusters=8, n_heads=2, d_head=8)


@pytest.fixture(scope="module")
def case():
    return build(SMALL)


def outcome(name, case, is_training):
    """What a contestant computes when it draws the mask that all others draw."""
    torch.manual_seed(3)
    return entry(CONTESTANTS[name], case, is_training).run(None)


@pytest.mark.parametrize("name", ["pyg", "torch.sparse"])
def test_contestants_compute_the_same(name, case):
    torch.testing.assert_close(outcome(name, case, False), outcome("sbm", case, False), rtol=1e-4, atol=1e-5)
    theirs, ours = (outcome(x, case, True) for x in (name, "sbm"))
    assert len(theirs) == len(ours) == len(case.leaves)
    for a, b in zip(theirs, ours, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore")  # torch's own, while it compiles
def test_flex_attention_computes_the_same(case):
    theirs = outcome("flex", case, False)
    torch.testing.assert_close(theirs, outcome("sbm", case, False), rtol=1e-4, atol=1e-5)


def test_rows_without_edges_do_not_disturb_torch_sparse():
    sparse = build(dataclasses.replace(SMALL, density=0.01))
    torch.manual_seed(3)
    edges = sparse.layer(sparse.query, sparse.key, sparse.value, return_edges=True).edges
    assert (edges.degrees() == 0).any()
    torch.testing.assert_close(outcome("torch.sparse", sparse, False), outcome("sbm", sparse, False))
    assert all(torch.isfinite(grad).all() for grad in outcome("torch.sparse", sparse, True))


def test_dense_and_full_attention_run_both_ways(case):
    for name, n_gradients in (("dense", len(case.leaves)), ("sdpa", 3)):
        assert outcome(name, case, False).shape == case.query.shape
        assert len(outcome(name, case, True)) == n_gradients


def test_forward_keeps_no_graph(case):
    assert not any(outcome(name, case, False).requires_grad for name in ("sbm", "sdpa", "torch.sparse"))


def test_variants_leave_the_layer_as_it_is(case):
    outcome("dense", case, False)
    assert (case.layer.sampler, case.layer.backend) == ("exact", "auto")


@pytest.mark.parametrize(
    ("setting", "left_out"),
    [
        (Setting(1024, 0.04, "structured"), set()),
        (Setting(4096, 0.01, "structured"), {"dense"}),
        (Setting(4096, 0.16, "structured"), {"dense", "pyg", "torch.sparse"}),
        (Setting(32768, 0.001, "structured"), {"dense", "flex", "sdpa", "pyg", "torch.sparse"}),
    ],
)
def test_who_is_too_large(setting, left_out):
    forward = {name: one.why_not(setting, is_training=False) for name, one in CONTESTANTS.items()}
    assert {name for name, why in forward.items() if why is not None} == left_out
    assert all("left out above" in forward[name] for name in left_out)


def test_flex_has_no_training_step():
    assert "forward only" in CONTESTANTS["flex"].why_not(SMALL, is_training=True)


def test_what_does_not_run_is_a_finding(case):
    def refuse(case):
        raise NotImplementedError("no such operator\nand a long story")

    assert try_once(Contestant("x", refuse), case, False) == (
        "does not run here: NotImplementedError: no such operator"
    )
    assert try_once(CONTESTANTS["sdpa"], case, True) is None


def test_the_step_is_taken_apart(case):
    found = take_apart(case, Pace(0.01, least=3, most=3))
    assert list(found) == [WHOLE, *PARTS]
    assert found[WHOLE]["ratio"] == 1.0

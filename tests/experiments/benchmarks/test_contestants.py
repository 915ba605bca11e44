import dataclasses

import pytest
import torch
from torch.nn.attention import flex_attention as flex

from sbmt.experiments.benchmarks import contestants
from sbmt.experiments.benchmarks.cases import Setting, build, fitted_setting
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, FITTED_CONTESTANTS, GPU_CONTESTANTS, entry

SMALL = Setting(128, 0.1, "structured", n_clusters=8, n_heads=2, d_head=8)


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


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_computes_the_same(case, monkeypatch):
    monkeypatch.setattr(contestants, "_compiled_flex_attention", lambda: flex.flex_attention)
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
        forward = outcome(name, case, False)
        assert forward.shape == case.query.shape and not forward.requires_grad
        assert len(outcome(name, case, True)) == n_gradients
    assert (case.layer.sampler, case.layer.backend) == ("exact", "auto")  # variants leave the layer as it is


def test_what_fitted_masks_are_compared_with_runs_both_ways():
    case = build(fitted_setting(256, 8.0))
    window = FITTED_CONTESTANTS["window"].attend(case).density
    assert window.mean().item() * 256 == pytest.approx(9, abs=0.1)  # the keys drawn; the ends have fewer
    found = {}
    for name, contestant in FITTED_CONTESTANTS.items():
        if name != "flex":
            torch.manual_seed(3)
            assert entry(contestant, case, False).run(None).shape == case.query.shape
            torch.manual_seed(3)
            found[name] = entry(contestant, case, True).run(None)
    for ours, dense in zip(found["sbm"], found["dense"], strict=True):
        torch.testing.assert_close(ours, dense, rtol=1e-3, atol=1e-4)
    assert len(found["sbm"]) == len(case.leaves)
    assert all(grad.abs().max() > 0 for grad in found["sbm"])  # of the task and of the fit
    assert [grad is None for grad in found["transformer_conv"]] == [False, True, False]  # one input is key and value


@pytest.mark.parametrize(
    ("entered", "setting", "left_out"),
    [
        (CONTESTANTS, Setting(1024, 0.04, "structured"), set()),
        (CONTESTANTS, Setting(4096, 0.01, "structured"), {"dense"}),
        (CONTESTANTS, Setting(4096, 0.16, "structured"), {"dense", "pyg", "torch.sparse"}),
        (CONTESTANTS, Setting(32768, 0.001, "structured"), {"dense", "flex", "sdpa", "pyg", "torch.sparse"}),
        (GPU_CONTESTANTS, Setting(65536, 0.5, "structured", n_heads=8), {*GPU_CONTESTANTS} - {"sdpa", "auto"}),
        (GPU_CONTESTANTS, Setting(4096, 0.01, "structured", n_heads=8), set()),
    ],
)
def test_who_is_too_large(entered, setting, left_out):
    forward = {name: one.why_not(setting, is_training=False) for name, one in entered.items()}
    assert {name for name, why in forward.items() if why is not None} == left_out
    assert all("left out above" in forward[name] for name in left_out)


def test_flex_has_no_training_step_on_the_cpu():
    assert "forward only" in CONTESTANTS["flex"].why_not(SMALL, is_training=True)
    assert GPU_CONTESTANTS["flex"].why_not(SMALL, is_training=True) is None

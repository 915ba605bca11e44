import pytest
import torch
from torch.nn.attention import flex_attention as flex

from sbmt.experiments.benchmarks import contestants
from sbmt.experiments.benchmarks.cases import Setting, build, fitted_setting
from sbmt.experiments.benchmarks.contestants import (
    CONTESTANTS,
    FITTED_CONTESTANTS,
    entry,
    full_attention,
)

SMALL = Setting(128, 0.1, "structured", n_clusters=8, n_heads=2, d_head=8)


@pytest.fixture(scope="module")
def case():
    return build(SMALL)


def outcome(name, case, is_training, entered=CONTESTANTS):
    """What a contestant computes when it draws the mask that all others draw."""
    torch.manual_seed(3)
    return entry(entered[name], case, is_training).run(None)


def test_message_passing_computes_the_same(case):
    torch.testing.assert_close(outcome("pyg", case, False), outcome("sbm", case, False), rtol=1e-4, atol=1e-5)
    theirs, ours = (outcome(x, case, True) for x in ("pyg", "sbm"))
    assert len(theirs) == len(ours) == len(case.leaves)
    for a, b in zip(theirs, ours, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention_computes_the_same(case, monkeypatch):
    monkeypatch.setattr(contestants, "_compiled_flex_attention", lambda: flex.flex_attention)
    theirs = outcome("flex", case, False)
    torch.testing.assert_close(theirs, outcome("sbm", case, False), rtol=1e-4, atol=1e-5)


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
    assert outcome("window", case, False, FITTED_CONTESTANTS).shape == case.query.shape
    assert len(outcome("window", case, True, FITTED_CONTESTANTS)) == 3
    ours, dense = (outcome(name, case, True, FITTED_CONTESTANTS) for name in ("sbm", "dense"))
    assert len(ours) == len(case.leaves)
    for a, b in zip(ours, dense, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert all(grad.abs().max() > 0 for grad in ours)  # of the task and of the fit


def test_16_bit_tokens_meet_a_layer_in_float32(case):
    placed = case.to(torch.device("cpu"), torch.bfloat16)
    assert [x.dtype for x in placed.leaves[:3]] == [torch.bfloat16] * 3
    assert {x.dtype for x in placed.leaves[3:]} == {torch.float32}
    assert outcome("sbm", placed, False).dtype == torch.bfloat16
    torch.testing.assert_close(full_attention(placed).float(), full_attention(case), rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("setting", "left_out"),
    [
        (Setting(1024, 0.04, "structured"), set()),
        (Setting(4096, 0.16, "structured"), {"dense", "pyg"}),
        (Setting(32768, 0.001, "structured"), {"dense", "flex", "sdpa", "pyg"}),
    ],
)
def test_who_is_too_large(setting, left_out):
    forward = {name: one.why_not(setting, is_training=False) for name, one in CONTESTANTS.items()}
    assert {name for name, why in forward.items() if why is not None} == left_out
    assert all("left out above" in forward[name] for name in left_out)
    assert "forward only" in CONTESTANTS["flex"].why_not(setting, is_training=True)

"""Peak memory of forward passes, each method in a fresh process."""

import json
import sys

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.costs.memory import meet_density, peak_memory
from sbmt.experiments.costs.methods import METHODS, Case, build_case, sample_tokens
from sbmt.experiments.memory import MEBIBYTE
from sbmt.layers import SBMAttention


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_peaks_are_those_of_what_is_kept():
    n, n_heads = 1024, 2
    cases = [Case(name, n, 0.1) for name in ("full", "full-fused", "sbm", "performer", "performer")]
    full, fused, sbm, performer, again = peak_memory(cases)
    scores, edges = (n_heads * n**2 * size / MEBIBYTE for size in (4, 0.1 * 8))
    assert 2 * scores < full["forward"] < 4 * scores  # before and after the softmax
    assert fused["forward"] < scores
    assert edges < sbm["forward"] < full["forward"]
    assert sbm["density"] == pytest.approx(0.1, rel=0.1)
    assert full["density"] is None
    assert all(one["before"] > 50 for one in (full, fused, sbm))
    assert performer["forward"] == pytest.approx(again["forward"], rel=0.1)


@pytest.mark.parametrize(("method", "density"), [("sbm", 0.01), ("sbm-algorithm-1", 0.3), ("sbm-static", 0.01)])
def test_every_layer_and_head_meets_the_density(method, density):
    case = Case(method, 600, density, settings={"n_clusters": 16})
    model, tokens = build_case(case), sample_tokens(case)
    with torch.inference_mode():
        meet_density(model, tokens, density)
        attended = model(tokens).attention
    for layer in attended:
        assert float(layer.expected_density.mean()) == pytest.approx(density, rel=0.1)
    assert not any(layer._forward_pre_hooks for layer in model.modules())


def test_memberships_differ_as_those_of_a_trained_model_do():
    case = Case("sbm", 300, 0.02)
    model, tokens = build_case(case), sample_tokens(case)
    found = []
    with torch.inference_mode():
        meet_density(model, tokens, case.density)
        layers = [layer for layer in model.modules() if isinstance(layer, SBMAttention)]
        for layer in layers:
            layer.register_forward_pre_hook(lambda layer, args: found.append(layer.block_model(*args[:2])))
        model(tokens)
    for block_model in found:
        assert block_model.query_membership.std() > block_model.query_membership.mean()


def test_other_methods_stay_as_they_are():
    case = Case("linear", 40, 0.02)
    model, tokens = build_case(case), sample_tokens(case)
    before = [parameter.clone() for parameter in model.parameters()]
    meet_density(model, tokens, case.density)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_building_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    model = build_case(Case("sbm", 32, 0.1, task="retrieval"))
    assert torch.equal(torch.get_rng_state(), state)
    assert not model.training
    assert sample_tokens(Case("sbm", 32, 0.1, task="retrieval")).shape == (1, 2, 32)


def test_cases_survive_json():
    for name, method in METHODS.items():
        case = Case(name, 64, 0.1, settings={"n_clusters": 4})
        again = Case(**json.loads(json.dumps(case.to_dict())))
        assert again == case
        assert again.config.attention == method.settings["attention"]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("flash", 64, 0.1), "attention among 'full'"),
        (("sbm", 64, 0.1, "chess"), "task among"),
        (("sbm", 0, 0.1), "n ≥ 1"),
        (("sbm", 64, 0.0), r"density in \(0, 1\)"),
    ],
)
def test_bad_cases_are_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        Case(*arguments)


def test_every_case_of_a_process_that_fails_is_missing(monkeypatch):
    monkeypatch.setattr("sbmt.experiments.costs.memory.in_fresh_process", lambda *job: {"missing": "no room"})
    assert peak_memory([Case("full", 8, 0.1)] * 2) == [{"missing": "no room"}] * 2

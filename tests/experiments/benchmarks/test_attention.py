"""Inputs of known density, and what computes on them."""

import pytest
import torch

from sbmt import SbmtError, sample_edges
from sbmt.experiments.benchmarks.attention import (
    CONTESTANTS,
    FITTED_CONTESTANTS,
    Contestant,
    compare,
    entry,
    full_attention,
)
from sbmt.experiments.benchmarks.cases import MADE_UP, Setting, build, fitted_setting
from sbmt.experiments.benchmarks.timing import Pace

SMALL = Setting(128, 0.1, "structured", n_clusters=8, n_heads=2, d_head=8)


@pytest.mark.parametrize("kind", MADE_UP)
@pytest.mark.parametrize(("n", "density", "n_clusters"), [(256, 0.5, 128), (512, 0.04, 32), (1024, 0.0025, 128)])
def test_made_up_inputs_have_the_density_asked_for(kind, n, density, n_clusters):
    case = build(Setting(n, density, kind, n_clusters))
    with torch.no_grad():
        model = case.block_model()
    assert model.shape == (1, 4, n, n)
    assert model.expected_density().mean().item() == pytest.approx(density, rel=0.1)
    if kind == "near-constant":
        assert model.query_membership.std() < 0.1 * model.query_membership.mean()


def test_a_structured_mask_is_block_diagonal_after_sorting():
    case = build(Setting(512, 0.04, "structured"))
    first_head = sample_edges(case.block_model()).to_dense()[0, 0]
    group = [x[0, 0].argmax(-1) for x in (case.query, case.key)]
    assert (first_head & (group[0][:, None] == group[1])).sum() > 0.99 * first_head.sum()
    assert (group[0][1:] >= group[0][:-1]).float().mean() < 0.9  # and the tokens are not sorted


@pytest.mark.parametrize(("n", "keys"), [(128, 4.0), (1500, 16.0)])
def test_fitted_memberships_draw_as_many_keys_as_are_asked_for(n, keys):
    case = build(fitted_setting(n, keys))
    attended = case.layer.eval()(case.query, case.key, case.value).density * n
    assert attended.mean().item() == pytest.approx(keys, rel=0.1)


def test_the_same_seed_gives_the_same_input_and_leaves_torch_alone():
    state = torch.get_rng_state()
    one, same, other = (build(fitted_setting(64, 4.0), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.leaves, same.leaves, strict=True))
    assert not torch.equal(one.query, other.query)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((8, 1.0, "structured"), "density in"),
        ((8, 0.1, "round"), "kind among"),
        ((64, 1e-9, "structured"), "a density from"),
        ((64, 0.1, "fitted"), "1024 clusters"),
    ],
)
def test_impossible_settings_are_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        build(Setting(*arguments))


def outcome(contestant, case, is_training):
    """What a contestant computes when it draws the mask that all others draw."""
    torch.manual_seed(3)
    return entry(contestant, case, is_training).run(None)


@pytest.mark.parametrize("setting", [SMALL, fitted_setting(256, 8.0)], ids=["made-up", "fitted"])
def test_backends_of_the_layer_compute_the_same(setting):
    case = build(setting)
    ours, other = (CONTESTANTS["sbm"], CONTESTANTS["pyg"]) if setting is SMALL else (
        FITTED_CONTESTANTS[name] for name in ("sbm", "dense")
    )  # fmt: skip
    torch.testing.assert_close(outcome(other, case, False), outcome(ours, case, False), rtol=1e-4, atol=1e-5)
    gradients = [outcome(one, case, True) for one in (ours, other)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
    assert all(gradient.abs().max() > 0 for gradient in gradients[0])


def test_what_has_no_block_model_runs_both_ways():
    case = build(fitted_setting(256, 8.0))
    window = FITTED_CONTESTANTS["window"]
    assert window.attend(case).density.mean().item() * 256 == pytest.approx(9, abs=0.1)  # the ends have fewer
    for contestant in (window, FITTED_CONTESTANTS["sdpa"]):
        assert outcome(contestant, case, False).shape == case.query.shape
        gradients = outcome(contestant, case, True)
        assert [one is not None for one in gradients[:3]] == [True] * 3 and set(gradients[3:]) == {None}


def test_16_bit_tokens_meet_a_layer_in_float32():
    case = build(SMALL)
    placed = case.to(torch.device("cpu"), torch.bfloat16)
    assert {x.dtype for x in placed.leaves[3:]} == {torch.float32}
    assert outcome(CONTESTANTS["sbm"], placed, False).dtype == torch.bfloat16
    torch.testing.assert_close(full_attention(placed).float(), full_attention(case), rtol=0.05, atol=0.05)


def raising(error):
    def attend(case):
        raise error

    return Contestant(attend)


def test_what_does_not_run_is_a_finding():
    contestants = {
        "sdpa": raising(RuntimeError("no kernel")),
        "sbm": CONTESTANTS["sbm"],
        "large": raising(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 34.00 GiB.")),
        "small": Contestant(full_attention, most_pairs=2**10),
    }
    found = compare(build(SMALL), True, contestants, Pace(0.001, 3, 3))
    assert set(found["sbm"]) == {"median", "low", "high", "rounds"}  # without the reference there are times alone
    assert found["large"] == {"missing": "out of memory"}
    assert "no kernel" in found["sdpa"]["missing"] and "left out above" in found["small"]["missing"]

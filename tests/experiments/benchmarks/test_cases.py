"""Inputs of known density, and what computes on them."""

import pytest
import torch

from sbmt import SbmtError, sample_edges
from sbmt.experiments.benchmarks.cases import MADE_UP, Setting, build, fitted_setting
from sbmt.experiments.benchmarks.suites import entry, full_attention, window_attention

SMALL = Setting(128, 0.1, "structured", n_clusters=8, n_heads=2, d_head=8)
FITTED = fitted_setting(256, 8.0)


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


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("arguments", "words"),
    [((8, 0.1, "round"), "kind to be one of"), ((64, 1e-9, "structured"), "a density from")],
)
def test_impossible_settings_are_refused(arguments, words):
    with pytest.raises(SbmtError, match=words):
        build(Setting(*arguments))


def outcome(name, case, is_training):
    """What a contestant computes when it draws the mask that all others draw."""
    torch.manual_seed(3)
    return entry(name, case, is_training).run(None)


@pytest.mark.parametrize(("setting", "other"), [(SMALL, "pyg"), (FITTED, "dense")], ids=["made-up", "fitted"])
def test_contestants_compute_the_same_values_and_gradients(setting, other):
    case = build(setting)
    for is_training in (False, True):
        ours, theirs = (outcome(name, case, is_training) for name in ("sbm", other))
        torch.testing.assert_close(theirs, ours, rtol=1e-3, atol=1e-4)
    assert all(gradient.abs().max() > 0 for gradient in ours)


def test_full_attention_is_the_same_by_both_kernels_and_the_window_has_its_keys():
    case = build(FITTED)
    assert window_attention(case).density.mean().item() * 256 == pytest.approx(9, abs=0.1)  # the ends have fewer
    torch.testing.assert_close(outcome("math", case, False), outcome("sdpa", case, False))
    for name in ("window", "sdpa"):
        gradients = outcome(name, case, True)
        assert [one is not None for one in gradients[:3]] == [True] * 3 and set(gradients[3:]) == {None}


def test_16_bit_tokens_meet_a_layer_in_float32():
    placed = build(SMALL, dtype=torch.bfloat16)
    assert {x.dtype for x in placed.leaves[3:]} == {torch.float32}
    assert outcome("sbm", placed, False)[0].dtype == torch.bfloat16
    torch.testing.assert_close(full_attention(placed).float(), full_attention(build(SMALL)), rtol=0.05, atol=0.05)


def test_the_same_seed_gives_the_same_input_and_leaves_torch_alone():
    state = torch.get_rng_state()
    one, same, other = (build(fitted_setting(64, 4.0), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.leaves, same.leaves, strict=True))
    assert not torch.equal(one.query, other.query)

"""The conformance kit passes what is right, and names what is wrong."""

from functools import cache

import pytest
import torch
from torch import nn

from sbmt import SbmtError, build_attention
from sbmt.layers.registry import ATTENTIONS
from sbmt.testing import CHECKS, check_attention, run_attention_checks
from tests.testing import broken_attentions as broken

# Every attention by name, and settings of ours that take other ways through the code.
PASSING = {
    "full": dict(name="full"),
    "random": dict(name="random_mask", mask_density=0.3),
    "random, one key a query": dict(name="random_mask", mask_density=0.03),
    "random, empty": dict(name="random_mask", mask_density=0.0),
    "random, window": dict(name="random_mask", window=2),
    "sbm": dict(name="sbm", n_clusters=3),
    "recommended": dict(name="sbm", n_clusters=3, preset="recommended"),
    "faithful": dict(name="sbm", n_clusters=3, preset="faithful"),
    "poisson, dropout": dict(name="sbm", n_clusters=3, link="poisson", dropout=0.2),
    "weight rule, dense": dict(name="sbm", n_clusters=3, gate_rule="weight", backend="dense", sampler="bernoulli"),
    "by position": dict(name="sbm_static", n_clusters=3, n_positions=7),
    "linear": dict(name="linear"),
    "linformer": dict(name="linformer", n_positions=7, n_projected=3),
    "reformer": dict(name="reformer"),
    "performer": dict(name="performer", n_features=5),
    "nystromformer": dict(name="nystromformer"),
}
BY_POSITION = {"random, window", "by position", "linformer"}
NO_SOFTMAX = {"random, empty", "linear", "linformer", "reformer", "performer", "nystromformer"}
WINDOWED = {"random, window", "recommended"}
SELF_ATTENTION = {"random, window", "recommended", "reformer"}
MAY_BE_SKIPPED = {"permutation", "generator governs", "weights", "two masks", "more keys", "expected density"}
# What each broken attention fails: the check that is about it, among others perhaps.
FAILING = [
    (broken.LeaksPadding, "padding is unread"),
    (broken.LeaksPadding, "padding is absence"),
    (broken.LeaksPadding, "edges"),
    (broken.ForgetsPaddedQueries, "padded queries"),
    (broken.NaNOnEmptyRows, "empty rows"),
    (broken.NaNOnEmptyRows, "all padding"),
    (broken.NaNGradient, "empty rows"),
    (broken.DividesByTheSpread, "single token"),
    (broken.DrawsFromTheGlobalGenerator, "global generator"),
    (broken.IgnoresTheSeed, "generator governs"),
    (broken.KeepsItsOwnGenerator, "repeatable"),
    (broken.WrongShape, "shapes"),
    (broken.WrongType, "dtypes"),
    (broken.CountsPaddedPairs, "density"),
    (broken.ZeroOverZero, "density"),
    (broken.LooksBackOnly, "permutation"),
    (broken.PrefersTheFirst, "permutation"),
    (broken.DetachesTheValue, "gradient flow"),
    (broken.DetachesTheValue, "gradients"),
    (broken.DetachesTheScores, "gradient flow"),
    (broken.DoublesTheGradient, "gradients"),
    (broken.MixesExamples, "batch"),
    (broken.HidesEdges, "edges"),
    (broken.TakesAnything, "errors"),
    (broken.WritesToItsInput, "leaves no trace"),
    (broken.Learns, "leaves no trace"),
    (broken.StaysOnTheMeta, "devices"),
    (broken.LeaksPaddingInTraining, "training"),
    (broken.DetachesInTraining, "training"),
    (broken.TakesQueryMaskForKeyMask, "two masks"),
    (broken.HidesKeysOfPaddedQueries, "two masks"),
    (broken.DropsKeysBeyondTheQueries, "more keys"),
    (broken.MixesHeads, "heads"),
    (broken.SwapsQueryAndKey, "weights"),
    (broken.DropsKeysBeyondTheSixth, "long"),
    (broken.LosesItsScaleBeyondSixTokens, "long"),
    (broken.ExpectsTooLittle, "expected density"),
    (broken.ForgetsTheScale, "weights"),
]


def failed(module, **settings):
    return {result.name: result.message for result in run_attention_checks(module, **settings) if not result.is_passed}


@cache
def failed_by(attention):
    return failed(attention())


@pytest.mark.bad_input  # some of what the kit gives; shape checks would take three quarters of the time
@pytest.mark.parametrize("name", PASSING)
def test_ours_pass(name):
    results = check_attention(build_attention(**PASSING[name], d_head=4, n_heads=2), n_draws=48)
    assert [result.name for result in results] == list(CHECKS)
    assert all(result.is_passed for result in results)
    skipped = {result.name for result in results if result.is_skipped}
    assert ("permutation" in skipped) == (name in BY_POSITION)
    assert skipped <= MAY_BE_SKIPPED
    assert ("weights" in skipped) == (name in NO_SOFTMAX)
    assert ("two masks" in skipped) == (name == "reformer")
    assert ("more keys" in skipped) == (name in SELF_ATTENTION)
    assert ("expected density" in skipped) == (name in WINDOWED)


def test_every_name_is_among_them():
    assert {settings["name"] for settings in PASSING.values()} == set(ATTENTIONS)


@pytest.mark.parametrize("is_random", [True, False])
def test_anothers_attention_passes(is_random):
    assert failed(broken.Honest(is_random)) == {}


@pytest.mark.parametrize("attention, check", FAILING)
def test_what_is_wrong_is_named(attention, check):
    found = failed_by(attention)
    assert check in found and found[check].startswith("expected ")


def test_each_check_finds_something():
    assert {check for _, check in FAILING} == set(CHECKS)


@pytest.mark.parametrize(
    "attention, checks",
    [
        (
            broken.LooksBackOnly,
            {"permutation", "density", "edges", "gradient flow", "long", "training", "weights", "more keys"},
        ),
        (broken.PrefersTheFirst, {"permutation", "padding is absence", "expected density", "long"}),
        (broken.MixesExamples, {"batch", "padding is unread", "edges", "gradient flow", "training", "long"}),
        (broken.CountsPaddedPairs, {"density", "padding is absence", "expected density"}),
        (broken.WrongType, {"dtypes", "gradients"}),
        (broken.TakesAnything, {"errors"}),
        (broken.DoublesTheGradient, {"gradients"}),
        (broken.Learns, {"leaves no trace"}),
        (broken.LeaksPaddingInTraining, {"training"}),
        (broken.DetachesInTraining, {"training"}),
        (broken.TakesQueryMaskForKeyMask, {"two masks"}),
        (broken.HidesKeysOfPaddedQueries, {"two masks", "errors"}),
        (broken.DropsKeysBeyondTheQueries, {"more keys"}),
        (broken.MixesHeads, {"heads", "training", "weights"}),
        (broken.SwapsQueryAndKey, {"weights", "long", "two masks"}),
        (broken.DropsKeysBeyondTheSixth, {"long"}),
        (broken.LosesItsScaleBeyondSixTokens, {"long"}),
        (broken.ExpectsTooLittle, {"expected density"}),
        (broken.ForgetsTheScale, {"weights", "long"}),
    ],
)
def test_little_else_is_blamed(attention, checks):
    assert set(failed_by(attention)) <= checks


def test_all_that_is_wrong_is_told_in_one_error():
    with pytest.raises(SbmtError) as told:
        check_attention(broken.DetachesTheValue())
    message = str(told.value)
    assert "expected DetachesTheValue to pass 27 checks" in message
    assert "- gradient flow: expected a gradient to the value" in message and "- gradients: " in message


def test_positions_count_where_it_is_said():
    assert "permutation" not in failed(broken.PrefersTheFirst(), is_position_free=False)
    linformer = build_attention("linformer", d_head=4, n_heads=2, n_positions=6, n_projected=3)
    assert set(failed(linformer, is_position_free=True)) == {"permutation"}


def test_sizes_are_found_or_taken():
    check_attention(build_attention("sbm", d_head=5, n_heads=3, n_clusters=2), n_draws=16)  # it has no such attributes
    check_attention(build_attention("full", d_head=5, n_heads=3), n_heads=1, d_head=2, n_tokens=9)


def test_neither_the_module_nor_the_global_generator_changes():
    module = build_attention("sbm", d_head=4, n_heads=2, n_clusters=2)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    state = torch.get_rng_state()
    first = run_attention_checks(module, n_draws=4)
    assert torch.equal(state, torch.get_rng_state()) and module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    torch.manual_seed(5)
    assert run_attention_checks(module, n_draws=4) == first


class Refuses(nn.Module):
    def forward(self, *tensors, **arguments):
        raise RuntimeError("not today")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "module, settings, words",
    [
        (Refuses(), {}, "not today"),
        (lambda x: x, {}, "wrap it in a module"),
        (broken.Honest(), {"n_tokens": 2}, "n_tokens ≥ 3"),
    ],
)
def test_what_cannot_be_checked_is_refused(module, settings, words):
    with pytest.raises(SbmtError, match=words):
        check_attention(module, **settings)

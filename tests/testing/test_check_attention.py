"""The conformance kit passes what is right, and names what is wrong."""

import copy

import pytest
import torch
from torch import nn

from sbmt import SbmtError, build_attention
from sbmt.layers.registry import ATTENTIONS
from sbmt.testing import CHECKS, check_attention, run_attention_checks
from sbmt.testing.subject import make_subject
from tests.testing import broken_attentions as broken
from tests.testing.passing import PASSING, SELF_ATTENTION, WINDOWED

pytestmark = pytest.mark.bad_input  # some of what the kit gives; shape checks would take three quarters of the time

BY_POSITION = {"random, window", "by position", "linformer", "nystromformer, two landmarks"}
NO_SOFTMAX = {"fitted", "shared, no loops", "fitted, random only of many", "random, empty", "linear", "linformer"}
NO_SOFTMAX |= {"performer", "reformer", "routing", "nystromformer", "nystromformer, two landmarks"}
MAY_BE_SKIPPED = {"permutation", "generator governs", "weights", "two masks", "more keys", "expected density"}
ALL = set(CHECKS)
# What each broken attention fails: the checks it is written for, and others that it may fail too.
FAILING = {
    broken.LeaksPadding: ({"padding is unread", "padding is absence", "edges"}, ALL),
    broken.ForgetsPaddedQueries: ({"padded queries"}, ALL),
    broken.NaNOnEmptyRows: ({"empty rows", "all padding"}, ALL),
    broken.NaNGradient: ({"empty rows"}, ALL),
    broken.DividesByTheSpread: ({"single token"}, ALL),
    broken.DrawsFromTheGlobalGenerator: ({"global generator"}, ALL),
    broken.IgnoresTheSeed: ({"generator governs"}, ALL),
    broken.KeepsItsOwnGenerator: ({"repeatable"}, ALL),
    broken.WrongShape: ({"shapes"}, ALL),
    broken.WrongType: ({"dtypes"}, {"gradients"}),
    broken.CountsPaddedPairs: ({"density"}, {"expected density", "padding is absence"}),
    broken.ZeroOverZero: ({"density"}, ALL),
    broken.LooksBackOnly: (
        {"permutation"},
        {"density", "edges", "gradient flow", "long", "more keys", "training", "weights"},
    ),
    broken.PrefersTheFirst: ({"permutation"}, {"expected density", "long", "padding is absence"}),
    broken.DetachesTheValue: ({"gradient flow", "gradients"}, ALL),
    broken.DetachesTheScores: ({"gradient flow"}, ALL),
    broken.DoublesTheGradient: ({"gradients"}, set()),
    broken.MixesExamples: ({"batch"}, {"edges", "gradient flow", "long", "padding is unread", "training"}),
    broken.HidesEdges: ({"edges"}, ALL),
    broken.TakesAnything: ({"errors"}, set()),
    broken.WritesToItsInput: ({"leaves no trace"}, ALL),
    broken.Learns: ({"leaves no trace"}, set()),
    broken.StaysOnTheMeta: ({"devices"}, ALL),
    broken.LeaksPaddingInTraining: ({"training"}, set()),
    broken.TakesQueryMaskForKeyMask: ({"two masks"}, set()),
    broken.DropsKeysBeyondTheQueries: ({"more keys"}, set()),
    broken.MixesHeads: ({"heads"}, {"training", "weights"}),
    broken.SwapsQueryAndKey: ({"weights"}, {"long", "two masks"}),
    broken.DropsKeysBeyondTheSixth: ({"long"}, set()),
    broken.ExpectsTooLittle: ({"expected density"}, set()),
    broken.ForgetsTheScale: ({"weights"}, {"long"}),
}


def failed(module, **settings):
    return {result.name: result.message for result in run_attention_checks(module, **settings) if not result.is_passed}


@pytest.mark.parametrize("name", PASSING)
def test_ours_pass(name):
    module = build_attention(**PASSING[name], d_head=4, n_heads=2)
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    is_free = False if name == "nystromformer, convolution" else None  # the kit cannot see that neighbours count
    results = check_attention(module, n_draws=24, is_position_free=is_free)
    assert torch.equal(state, torch.get_rng_state()) and module.training
    assert all(torch.equal(before[key], tensor) for key, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert [result.name for result in results] == list(CHECKS)
    assert all(result.is_passed for result in results)
    skipped = {result.name for result in results if result.is_skipped}
    assert ("permutation" in skipped) == (name in BY_POSITION)
    assert skipped - {"heads"} <= MAY_BE_SKIPPED
    assert ("heads" in skipped) == (name == "shared, no loops")
    assert ("weights" in skipped) == (name in NO_SOFTMAX)
    assert ("two masks" in skipped) == (name in ("reformer", "routing"))
    assert ("more keys" in skipped) == (name in SELF_ATTENTION)
    assert ("expected density" in skipped) == (name in WINDOWED)


def test_every_name_is_among_them():
    assert {settings["name"] for settings in PASSING.values()} == set(ATTENTIONS)


def test_another_temperature_is_all_that_tells_scaled_scores():
    found = failed(build_attention("full", is_log_scaled=True, d_head=4, n_heads=2))
    assert set(found) == {"weights", "long"} and all("got that of 0." in said for said in found.values())


@pytest.mark.parametrize("is_random", [True, False])
def test_anothers_attention_passes_whatever_the_global_seed(is_random):
    first = run_attention_checks(broken.Honest(is_random))
    assert all(result.is_passed for result in first)
    torch.manual_seed(5)
    assert run_attention_checks(broken.Honest(is_random)) == first


@pytest.mark.parametrize("attention", FAILING)
def test_what_is_wrong_is_named_and_little_else(attention):
    found = failed(attention())
    intended, others = FAILING[attention]
    assert intended <= set(found) <= intended | others
    assert all(message.startswith("expected ") for message in found.values())


def test_each_check_finds_something():
    assert set.union(*(intended for intended, _ in FAILING.values())) == ALL


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
    subject = make_subject(build_attention("sbm", d_head=5, n_heads=3, n_clusters=2))  # it has no such attributes
    assert (subject.n_heads, subject.d_head) == (3, 5)
    check_attention(build_attention("full", d_head=5, n_heads=3), n_heads=1, d_head=2, n_tokens=9)


class Refuses(nn.Module):
    def forward(self, *tensors, **arguments):
        raise RuntimeError("not today")


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


@pytest.mark.parametrize("window", [None, 0])
def test_an_attention_whose_edges_are_all_but_certain_passes(window):
    for seed in range(12):
        torch.manual_seed(seed)
        settings = dict(d_head=4, n_heads=2, n_clusters=4, self_loops=False, window=window)
        found = run_attention_checks(build_attention("sbm", preset="fitted", **settings), n_draws=32)
        assert next(result for result in found if result.name == "expected density").is_passed

"""The conformance kit accepts correct attention mechanisms, and names the errors of others."""

import copy
import re

import pytest
import torch
from torch import nn

from sbmt import SbmtError, build_attention
from sbmt.layers.registry import ATTENTIONS
from sbmt.testing import CHECKS, check_attention
from tests.testing.broken_attentions import BROKEN, Honest, broken

pytestmark = pytest.mark.bad_input  # some of the kit's inputs; shape checks would take three quarters of the time


PASSING = {
    "full": dict(name="full"),
    "random, one key a query": dict(name="random_mask", mask_density=0.03),
    "random, empty": dict(name="random_mask", mask_density=0.0),
    "random, window": dict(name="random_mask", window=2),
    "sbm": dict(name="sbm", n_clusters=3),
    "recommended": dict(name="sbm", n_clusters=3, preset="recommended"),
    "faithful": dict(name="sbm", n_clusters=1, preset="faithful"),
    "fitted": dict(name="sbm", n_clusters=64, preset="fitted"),
    "fitted, random only of many": dict(name="sbm", n_clusters=4, preset="fitted"),
    "poisson, dropout, pyg": dict(name="sbm", n_clusters=3, link="poisson", dropout=0.2, backend="pyg"),
    "weight rule, dense": dict(name="sbm", n_clusters=3, gate_rule="weight", backend="dense", sampler="bernoulli"),
    "by position": dict(name="sbm_static", n_clusters=3, n_positions=7),
    "linear": dict(name="linear"),
    "linformer": dict(name="linformer", n_positions=7, n_projected=3),
    "reformer": dict(name="reformer"),
    "performer": dict(name="performer", n_features=5),
    "nystromformer": dict(name="nystromformer"),
    "nystromformer, two landmarks": dict(name="nystromformer", n_landmarks=2),
}
"""Every attention mechanism by name, with settings that use different parts of its code."""


@pytest.mark.parametrize("name", PASSING)
def test_all_attentions_of_the_library_pass(name):
    module = build_attention(**PASSING[name], d_head=4, n_heads=2)
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    assert check_attention(module, n_draws=24) == list(CHECKS)
    assert torch.equal(state, torch.get_rng_state()) and module.training
    assert all(torch.equal(before[key], tensor) for key, tensor in module.state_dict().items())


def test_every_name_is_among_them():
    assert {settings["name"] for settings in PASSING.values()} == set(ATTENTIONS)


@pytest.mark.parametrize("is_random", [True, False])
def test_an_external_attention_passes_with_any_global_seed(is_random):
    for seed in (0, 5):
        torch.manual_seed(seed)
        check_attention(Honest(is_random))


@pytest.mark.parametrize("name", BROKEN)
def test_errors_name_the_fault(name):
    attention, checks = broken(name)
    with pytest.raises(SbmtError) as told:
        check_attention(attention)
    assert checks <= set(re.findall(r"; (\w+): ", str(told.value)))


def test_each_check_finds_something():
    assert set.union(*(checks for checks, *_ in BROKEN.values())) == set(CHECKS)


def test_one_error_reports_all_faults():
    with pytest.raises(SbmtError, match="Broken fails 3 of 8 checks; .*edges: .*padding: .*company: "):
        check_attention(broken("leaks padding")[0])


def test_given_sizes_are_used():
    check_attention(build_attention("full", d_head=5, n_heads=3), n_heads=1, d_head=2, n_tokens=9)


class Refuses(nn.Module):
    def forward(self, *tensors, **arguments):
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    "module, settings, words",
    [
        (Refuses(), {}, "not today"),
        (lambda x: x, {}, "torch.nn.Module"),
        (Honest(), {"n_tokens": 2}, "n_tokens"),
    ],
)
def test_what_cannot_be_checked_is_refused(module, settings, words):
    with pytest.raises(SbmtError, match=words):
        check_attention(module, **settings)

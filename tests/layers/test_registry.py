"""Attentions by name, and their options."""

from dataclasses import FrozenInstanceError, fields
from inspect import signature
from typing import Literal

import pytest
import torch
from torch import nn

from sbmt import Encoder, ExtraKeys, MultiHeadAttention
from sbmt.baselines import FullAttention
from sbmt.errors import SbmtError
from sbmt.layers import SBMAttention, build_attention, register_attention, registry
from sbmt.layers.registry import ATTENTIONS, PRESETS, arguments_of, make_options, options_of

SHAPE = dict(d_head=4, n_heads=2)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_every_name_builds_its_class_from_its_options(name):
    more = {"n_positions": 3} if "n_positions" in signature(ATTENTIONS[name]).parameters else {}
    arguments = arguments_of(options_of(name)()) | SHAPE | more
    assert type(build_attention(name, **SHAPE, **more)) is type(build_attention(name, **arguments)) is ATTENTIONS[name]


def test_presets_set_and_arguments_override():
    layers = {name: build_attention("sbm", preset=name, **SHAPE) for name in PRESETS}
    for name, settings in (("sampler", ["exact", "fastrg", "exact"]), ("window", [0, None, 0])):
        assert [getattr(layer, name) for layer in layers.values()] == settings
    assert SBMAttention(**SHAPE).window is None  # for cross-attention
    assert build_attention("sbm", preset="faithful", sampler="bernoulli", **SHAPE).sampler == "bernoulli"


@pytest.mark.parametrize(
    "name, arguments, words",
    [
        ("flash", SHAPE, [repr(name) for name in ATTENTIONS]),
        ("sbm", SHAPE | {"preset": "best"}, [repr(name) for name in PRESETS]),
        ("full", SHAPE | {"preset": "faithful"}, ["'faithful'", "'full'", "'sbm'"]),
        ("full", SHAPE | {"n_clusters": 4}, ["FullAttention", "n_clusters"]),
        ("linformer", {"d_head": 4}, ["LinformerAttention", "no n_heads", "no n_positions"]),
    ],
)
def test_errors_say_what_is_possible(name, arguments, words):
    with pytest.raises(SbmtError) as caught:
        build_attention(name, **arguments)
    assert all(word in str(caught.value) for word in words)


class Mine(FullAttention):
    r"""An attention of the user's.

    Args:
        scale: What :class:`~torch.Tensor` is multiplied
            by ``scale``. And so on.
        kind: One of two.
    """

    def __init__(
        self, *sizes, scale=2, kind: Literal["a", "b"] = "a", link="x", inner: nn.Module | None = None, **more
    ):
        super().__init__(*sizes, **more)
        self.scale = scale


@pytest.fixture
def mine(monkeypatch):
    """The table of attentions with one more, restored after the test."""
    monkeypatch.setattr(registry, "ATTENTIONS", dict(ATTENTIONS))
    register_attention("mine", SBMAttention)
    register_attention("mine", Mine)  # a cell that runs twice


@pytest.mark.usefixtures("mine")
def test_an_attention_of_ones_own_is_built_by_its_name():
    x = torch.randn(1, 4, 8)
    layer = MultiHeadAttention(8, 2, attention="mine", scale=3)
    assert type(layer.attention) is Mine and layer.attention.scale == 3 and layer(x, x, x)[0].shape == x.shape
    encoder = Encoder(5, 4, d_model=8, d_hidden=8, n_heads=2, n_layers=2, attention="mine")
    assert encoder(torch.zeros(1, 4, dtype=torch.int64)).values.shape == (1, 4, 8)
    with pytest.raises(SbmtError, match="Mine takes.*n_clusters"):
        build_attention("mine", n_clusters=3, **SHAPE)


@pytest.mark.usefixtures("mine")
def test_options_are_what_the_constructor_takes():
    """But for what models fill in, what the command line cannot write, and what a preset may set."""
    found = {
        option.name: (option.type, option.default, *option.metadata.values()) for option in fields(options_of("mine"))
    }
    assert found == {
        "is_log_scaled": (
            bool | None,
            False,
            "whether scores are multiplied by s · ln n, with a learned s per head",
            (),
        ),
        "scale": (int | None, 2, "what Tensor is multiplied by scale", ()),
        "kind": (Literal["a", "b"] | None, "a", "one of two", ("a", "b")),
        "link": (str | None, None, None, registry.LINKS),
    }
    assert (
        options_of("mine") is options_of("mine")
        and repr(options_of("reformer")()) == "ReformerOptions(n_hashes=2, n_chunk=32)"
    )
    with pytest.raises(FrozenInstanceError):
        options_of("mine")().scale = 3


def test_sbm_starts_from_a_preset_and_takes_extra_keys():
    options = make_options("sbm", {"n_clusters": None, "extra_keys": 4.0})
    assert (options.n_clusters, options.preset, options.sampler) == (128, "recommended", None)
    assert build_attention("sbm", **arguments_of(options), **SHAPE).exploration == ExtraKeys(4.0)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sampler": "x"}, "sampler among 'exact'"),
        ({"gate_rule": "x"}, "gate_rule among 'score', 'weight'"),
        ({"n_clusters": 2.5}, "n_clusters ≥ 1"),
        ({"n_hops": 1}, r"options of attention 'sbm' \(n_clusters.*got n_hops"),
        ({"exploration": 0.1, "extra_keys": 4.0}, "exploration or extra_keys"),
    ],
)
def test_what_are_no_options(values, words):
    with pytest.raises(SbmtError, match=words):
        arguments_of(make_options("sbm", values))


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "attention", "words"),
    [
        ("sbm", Mine, "does not use for an attention, got 'sbm'"),
        ("two words", Mine, "letters, digits and _, got 'two words'"),
        ("yours", Mine(4, 2), "subclass of torch.nn.Module, got Mine"),
        ("yours", dict, "subclass of torch.nn.Module, got type <class 'dict'>"),
    ],
)
def test_what_cannot_be_registered(name, attention, words):
    with pytest.raises(SbmtError, match=words):
        register_attention(name, attention)
    with pytest.raises(SbmtError, match=r"cost\(module, n\)"):
        register_attention("yours", Mine, cost=lambda module: None)
    assert "yours" not in registry.ATTENTIONS

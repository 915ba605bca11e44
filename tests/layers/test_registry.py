"""Attentions by name."""

import inspect

import pytest
import torch

from sbmt import Encoder, MultiHeadAttention
from sbmt.baselines import FullAttention
from sbmt.errors import SbmtError
from sbmt.layers import SBMAttention, build_attention, register_attention, registry
from sbmt.layers.registry import ATTENTIONS, PRESETS

SHAPE = dict(d_head=4, n_heads=2)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_every_name_builds_its_class(name):
    by_position = {"n_positions": 3} if "n_positions" in inspect.signature(ATTENTIONS[name]).parameters else {}
    assert type(build_attention(name, **SHAPE, **by_position)) is ATTENTIONS[name]


def test_presets_set_and_arguments_override():
    layers = {name: build_attention("sbm", preset=name, **SHAPE) for name in PRESETS}
    samplers = {"recommended": "exact", "faithful": "fastrg", "fitted": "exact"}
    assert {name: layer.sampler for name, layer in layers.items()} == samplers
    windows = {"recommended": 0, "faithful": None, "fitted": 0}
    assert {name: layer.window for name, layer in layers.items()} == windows
    default = SBMAttention(**SHAPE)
    for name in PRESETS["recommended"].keys() - {"self_loops"}:  # which the class leaves out, for cross-attention
        assert getattr(layers["recommended"], name) == getattr(default, name) == PRESETS["recommended"][name]
    assert default.window is None
    assert build_attention("sbm", preset="faithful", sampler="bernoulli", **SHAPE).sampler == "bernoulli"


@pytest.mark.parametrize(
    "name, arguments, words",
    [
        ("flash", SHAPE, [repr(name) for name in ATTENTIONS]),
        ("sbm", SHAPE | {"preset": "best"}, [repr(name) for name in PRESETS]),
        ("full", SHAPE | {"preset": "faithful"}, ["'faithful'", "'full'", "'sbm'"]),
        ("full", SHAPE | {"n_clusters": 4}, ["FullAttention", "n_clusters"]),
        ("sbm", SHAPE | {"clusters": 4}, ["SBMAttention", "clusters"]),
        ("linformer", SHAPE, ["LinformerAttention", "n_positions"]),
        ("random_mask", {"d_head": 4}, ["RandomMaskAttention", "n_heads"]),
        ("sbm", {}, ["SBMAttention", "d_head"]),
    ],
)
def test_errors_say_what_is_possible(name, arguments, words):
    with pytest.raises(SbmtError) as caught:
        build_attention(name, **arguments)
    assert all(word in str(caught.value) for word in words)


class Mine(FullAttention):
    """An attention of the user's."""


@pytest.fixture
def table(monkeypatch):
    """The table of attentions, restored after the test."""
    monkeypatch.setattr(registry, "ATTENTIONS", dict(ATTENTIONS))


@pytest.mark.usefixtures("table")
def test_an_attention_of_ones_own_is_built_by_its_name():
    register_attention("mine", SBMAttention)
    register_attention("mine", Mine)  # a cell that runs twice
    x = torch.randn(1, 4, 8)
    layer = MultiHeadAttention(8, 2, attention="mine")
    assert type(layer.attention) is Mine and layer(x, x, x)[0].shape == x.shape
    encoder = Encoder(5, 4, d_model=8, d_hidden=8, n_heads=2, n_layers=2, attention="mine")
    assert encoder(torch.zeros(1, 4, dtype=torch.int64)).values.shape == (1, 4, 8)
    with pytest.raises(SbmtError, match="Mine takes.*n_clusters"):
        build_attention("mine", n_clusters=3, **SHAPE)
    with pytest.raises(SbmtError, match="'mine', got 'yours'"):
        build_attention("yours", **SHAPE)


@pytest.mark.usefixtures("table")
@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("name", "attention", "words"),
    [
        ("sbm", Mine, "does not use for an attention, got 'sbm'"),
        ("two words", Mine, "letters, digits and _, got 'two words'"),
        ("mine", Mine(4, 2), "subclass of torch.nn.Module, got a Mine"),
        ("mine", dict, "subclass of torch.nn.Module, got dict"),
        ("mine", None, "got a NoneType"),
    ],
)
def test_what_cannot_be_registered(name, attention, words):
    with pytest.raises(SbmtError, match=words):
        register_attention(name, attention)
    assert "mine" not in registry.ATTENTIONS

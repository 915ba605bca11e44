"""Tests attention mechanisms by name, and their options."""

from dataclasses import fields
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
    layers = [build_attention("sbm", preset=name, **SHAPE) for name in PRESETS]
    assert [(layer.sampler, layer.window) for layer in layers] == [("exact", 0), ("fastrg", None), ("exact", 0)]
    assert SBMAttention(**SHAPE).window is None  # for cross-attention
    options = make_options("sbm", {"n_clusters": None, "extra_keys": 4.0})
    assert (options.n_clusters, options.preset, options.sampler) == (None, "recommended", None)
    assert build_attention("sbm", **arguments_of(options), **SHAPE).exploration == ExtraKeys(4.0)


class Mine(FullAttention):
    """A user-defined attention mechanism.

    Args:
        scale: What :class:`~torch.Tensor` is multiplied
            by. And so on.
    """

    def __init__(self, *sizes, scale=2, kind: Literal["a"] = "a", link="x", inner: nn.Module | None = None, **more):
        super().__init__(*sizes, **more)
        self.scale = scale


@pytest.fixture(autouse=True)
def mine(monkeypatch):
    """Adds one attention mechanism to the table, which is restored after the test."""
    monkeypatch.setattr(registry, "ATTENTIONS", dict(ATTENTIONS))
    register_attention("mine", SBMAttention)
    register_attention("mine", Mine)  # as in a cell that runs twice


def test_a_registered_attention_is_built_by_name_with_the_options_of_its_constructor():
    """Options exclude those that models set or the command line cannot express; None if a preset may set them."""
    x = torch.randn(1, 4, 8)
    layer = MultiHeadAttention(8, 2, attention="mine", scale=3)
    assert type(layer.attention) is Mine and layer.attention.scale == 3 and layer(x, x, x)[0].shape == x.shape
    encoder = Encoder(5, 4, d_model=8, d_hidden=8, n_heads=2, n_layers=2, attention="mine")
    assert encoder(torch.zeros(1, 4, dtype=torch.int64)).values.shape == (1, 4, 8)
    _, *found = [(each.name, each.type, each.default, *each.metadata.values()) for each in fields(options_of("mine"))]
    scale, kind = ("scale", int | None, 2, "what Tensor is multiplied by", ()), Literal["a"] | None
    assert found[-3:] == [scale, ("kind", kind, "a", "", ("a",)), ("link", str | None, None, "", ())]
    assert options_of("mine") is options_of("mine")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: build_attention("flash", **SHAPE), "'sbm'.*'random_mask'.*'mine', got 'flash'"),
        (lambda: build_attention("sbm", preset="best", **SHAPE), "'recommended', 'faithful', 'fitted'"),
        (lambda: build_attention("mine", n_clusters=4, **SHAPE), "Mine takes .*scale.*, got n_clusters"),
        (lambda: build_attention("linformer", d_head=4), "LinformerAttention takes.*got no n_heads, no n_positions"),
        (lambda: make_options("sbm", {"sampler": "x"}), "sampler to be one of 'exact'"),
        (lambda: make_options("sbm", {"n_hops": 1}), r"options of attention 'sbm' \(n_clusters.*got n_hops"),
        (lambda: register_attention("sbm", Mine), "already has an attention layer 'sbm'"),
        (lambda: register_attention("yours", dict), "subclass of torch.nn.Module, got type <class 'dict'>"),
    ],
)
def test_errors_list_the_valid_choices(call, words):
    with pytest.raises(SbmtError, match=words):
        call()
    assert "yours" not in registry.ATTENTIONS

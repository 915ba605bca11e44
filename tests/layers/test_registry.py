"""Attentions by name."""

import inspect

import pytest

from sbmt.errors import SbmtError
from sbmt.layers import SBMAttention, build_attention
from sbmt.layers.registry import ATTENTIONS, PRESETS

SHAPE = dict(d_head=4, n_heads=2)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_every_name_builds_its_class(name):
    by_position = {"n_positions": 3} if "n_positions" in inspect.signature(ATTENTIONS[name]).parameters else {}
    assert type(build_attention(name, **SHAPE, **by_position)) is ATTENTIONS[name]


def test_presets_set_and_arguments_override():
    layers = {name: build_attention("sbm", preset=name, **SHAPE) for name in PRESETS}
    assert {name: layer.sampler for name, layer in layers.items()} == {"recommended": "exact", "faithful": "fastrg"}
    assert {name: layer.window for name, layer in layers.items()} == {"recommended": 0, "faithful": None}
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
        ("sbm_static", SHAPE, ["StaticSBMAttention", "n_positions"]),
        ("random_mask", {"d_head": 4}, ["RandomMaskAttention", "n_heads"]),
        ("sbm", {}, ["SBMAttention", "d_head"]),
    ],
)
def test_errors_say_what_is_possible(name, arguments, words):
    with pytest.raises(SbmtError) as caught:
        build_attention(name, **arguments)
    assert all(word in str(caught.value) for word in words)

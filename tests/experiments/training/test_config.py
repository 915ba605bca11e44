import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training import SIZES, RepeatedTokensConfig, build_model
from sbmt.layers.registry import ATTENTIONS

pytestmark = pytest.mark.bad_input


def test_config_survives_its_dictionary():
    config = RepeatedTokensConfig(steps=7, sampler="fastrg", exploration=0.0)
    assert RepeatedTokensConfig.from_dict(config.to_dict()) == config


def test_paper_size_is_the_synthetic_column_of_table_7():
    paper = SIZES["paper"]
    assert (paper.length, paper.batch_size, paper.steps, paper.learning_rate) == (256, 256, 2000, 1e-3)
    assert (paper.n_layers, paper.n_heads, paper.d_model, paper.d_hidden, paper.n_clusters) == (1, 1, 32, 32, 128)


def test_override_ignores_none_and_keeps_zero():
    config = RepeatedTokensConfig(exploration=0.01).override(exploration=0.0, steps=None)
    assert config.exploration == 0.0
    assert config.steps == RepeatedTokensConfig().steps


def test_attention_arguments_override_the_preset_only_where_given():
    arguments = RepeatedTokensConfig(preset="faithful", exploration=0.0).attention_arguments()
    assert arguments == {"preset": "faithful", "n_clusters": 128, "exploration": 0.0}
    assert RepeatedTokensConfig(attention="full").attention_arguments() == {}


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({}, {1: 0.5, 2: 0.5, 1000: 0.5}),
        ({"density_start": 10}, {1: 0.0, 10: 0.0, 11: 0.5, 1000: 0.5}),
        ({"density_ramp": 4}, {1: 0.125, 2: 0.25, 3: 0.375, 4: 0.5, 5: 0.5}),
        ({"density_start": 10, "density_ramp": 4}, {10: 0.0, 11: 0.125, 13: 0.375, 14: 0.5, 1000: 0.5}),
        ({"density_weight": 0.0, "density_start": 10, "density_ramp": 4}, {1: 0.0, 12: 0.0, 1000: 0.0}),
    ],
)
def test_density_weight_waits_and_then_grows_along_a_line(settings, weights):
    config = RepeatedTokensConfig(**{"density_weight": 0.5} | settings)
    assert {step: config.density_weight_at(step) for step in weights} == weights


def test_learning_rate_falls_along_a_line_at_the_end():
    constant = RepeatedTokensConfig(steps=10)
    assert [constant.learning_rate_share(step) for step in (0, 9)] == [1, 1]
    config = RepeatedTokensConfig(steps=10, cooldown=3)
    assert [config.learning_rate_share(step) for step in (0, 6, 7, 8, 9)] == [1, 1, 0.75, 0.5, 0.25]


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_attention_can_be_trained(attention):
    config = RepeatedTokensConfig(attention=attention, length=8, d_model=8, d_hidden=8, n_clusters=4, rank=4, chunk=4)
    model = build_model(config)
    assert any(type(part) is ATTENTIONS[attention] for part in model.modules())
    output = model(torch.arange(8).repeat(2, 1))
    assert output.values.shape == (2, 8, 1) and output.values.isfinite().all()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"steps": 0}, "steps ≥ 1"),
        ({"length": 2.5}, "length ≥ 1"),
        ({"learning_rate": float("nan")}, "learning_rate > 0"),
        ({"embedding_std": 0.0}, "embedding_std > 0"),
        ({"density_weight": -1.0}, "density_weight ≥ 0"),
        ({"density_start": -1}, "density_start ≥ 0"),
        ({"density_ramp": -1}, "density_ramp ≥ 0"),
        ({"cooldown": -1}, "cooldown ≥ 0"),
        ({"density_kind": "magic"}, "kind among"),
        ({"rank": 0}, "rank ≥ 1"),
        ({"chunk": 0}, "chunk ≥ 1"),
        ({"exploration": 0.1, "extra_keys": 4.0}, "exploration or extra_keys"),
        ({"mask_density": float("nan")}, "mask_density in"),
        ({"exploration": float("nan")}, "exploration δ in"),
        ({"extra_keys": -1.0}, "extra"),
        ({"seed": -1}, "seed in"),
    ],
)
def test_values_out_of_range_are_refused(values, words):
    with pytest.raises(SbmtError, match=words):
        RepeatedTokensConfig(**values)


@pytest.mark.parametrize("values", [{"stepz": 3}, ["steps"], {"steps": "many"}, {"learning_rate": "fast"}])
def test_damaged_dictionaries_are_refused(values):
    with pytest.raises(SbmtError):
        RepeatedTokensConfig.from_dict(values)

"""Settings of runs: what they start from, what they refuse, and how they come back from files."""

import json
from dataclasses import replace

import pytest

from sbmt import SBMAttention, SbmtError
from sbmt.experiments.training import SIZES, RepeatedTokensConfig
from sbmt.experiments.training.run import read_config
from sbmt.experiments.training.tasks import PAPER, PAPER_MLM, REDUCED_MLM, GlueConfig, LongRangeConfig, MlmConfig
from sbmt.layers.registry import make_options

pytestmark = pytest.mark.bad_input


def test_paper_size_is_the_synthetic_column_of_table_7():
    paper = SIZES["paper"]
    assert (paper.length, paper.batch_size, paper.steps, paper.learning_rate) == (256, 256, 2000, 1e-3)
    assert (paper.n_layers, paper.n_heads, paper.d_model, paper.d_hidden) == (1, 1, 32, 32)
    assert paper.options.n_clusters is None and SBMAttention(8, 1).n_clusters == 128


def test_a_new_attention_keeps_the_options_that_it_shares_with_the_old_one():
    config = RepeatedTokensConfig(option_defaults=(("n_features", 7), ("window", 2)))
    assert config.options.window == 2
    changed = config.override(window=6, n_clusters=5).override(attention="random_mask", mask_density=0.5)
    assert changed.options == make_options("random_mask", {"mask_density": 0.5, "window": 6})
    assert config.override(attention="performer").options == make_options("performer", {"n_features": 7})
    assert config == RepeatedTokensConfig().override(window=2)  # where options come from is not part of a run
    assert "option_defaults" not in config.to_dict()


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


@pytest.mark.parametrize(
    "config",
    [
        RepeatedTokensConfig(steps=7, options={"sampler": "fastrg", "exploration": 0.0}),
        *(config.override(seed=3, window=8, precision="bf16-mixed", quirks=True) for config in PAPER.values()),
        PAPER_MLM.override(seed=3, dev_examples=10),
        REDUCED_MLM,
        GlueConfig(task="mnli", tokenizer="t"),
    ],
    ids=lambda config: config.task,
)
def test_a_configuration_comes_back_from_its_file(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert read_config(tmp_path) == config


FAMILIES = {
    "repeated": lambda **values: RepeatedTokensConfig().override(**values),
    "long range": LongRangeConfig,
    "mlm": MlmConfig,
    "glue": lambda **values: GlueConfig(**{"tokenizer": "t.json"} | values),
}
OUT_OF_RANGE = {
    "repeated": [
        ({"steps": 0}, "steps ≥ 1"),
        ({"learning_rate": float("nan")}, "learning_rate > 0"),
        ({"density_start": 1.5}, "density_start ≥ 0, got 1.5"),
        ({"dense_steps": 1}, r"learning by likelihood with dense_steps, got another attention \(sbm\)"),
        ({"edges_from": 8.0, "edges_ramp": 9}, "learning by likelihood with edges_ramp"),
        ({"preset": "fitted", "edges_from": 8.0}, "edges_from and edges_ramp together"),
        ({"preset": "fitted", "density_weight": 0.1}, "density_weight = 0 with learning by likelihood"),
        ({"density_kind": "magic"}, "kind among"),
        ({"attention": "full", "n_clusters": 4}, "causal.*got n_clusters"),
        ({"seed": -1}, "seed in"),
    ],
    "long range": [
        ({"task": "speech"}, "task among"),
        ({"precision": "8-bit"}, "precision among"),
        ({"accumulate": 3}, "accumulate that divides a batch of 128"),
        ({"dev_examples": 0}, "dev_examples ≥ 1"),
        ({"warmup_steps": 5000}, "warmup_steps in"),
        ({"dropout": 1.0}, "dropout"),
    ],
    "mlm": [({"task": "sst2"}, "task among 'mlm'"), ({"length": 2}, "length ≥ 3"), ({"seed": -1}, "seed in")],
    "glue": [
        ({"task": "mlm"}, "task among 'sst2'"),
        ({"tokenizer": ""}, "got neither"),
        ({"pretrained": "run"}, "got both"),
    ],
}


@pytest.mark.parametrize(
    ("family", "values", "words"), [(family, *case) for family, cases in OUT_OF_RANGE.items() for case in cases]
)
def test_values_out_of_range_are_refused(family, values, words):
    with pytest.raises(SbmtError, match=words):
        FAMILIES[family](**values)


def test_options_of_another_attention_are_refused():
    with pytest.raises(SbmtError, match="a PerformerOptions as options, got SBMOptions: .* override()"):
        replace(RepeatedTokensConfig(), attention="performer")
    with pytest.raises(SbmtError, match="a mapping or a SBMOptions as options, got int"):
        RepeatedTokensConfig(options=3)


@pytest.mark.parametrize(
    "values",
    [
        {"stepz": 3},
        ["steps"],
        {"steps": "many"},
        {"learning_rate": "fast"},
        {"rank": 256},
        {"options": {"n_clusters": "many"}},
    ],
)
@pytest.mark.parametrize("kind", [RepeatedTokensConfig, LongRangeConfig])
def test_damaged_dictionaries_are_refused(kind, values):
    with pytest.raises(SbmtError):
        kind.from_dict(values)

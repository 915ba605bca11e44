"""Settings of runs: what they start from, what they refuse, and how they come back from files."""

import json

import pytest

from sbmt import SbmtError
from sbmt.experiments.training import GlueConfig, LongRangeConfig, RepeatedTokensConfig
from sbmt.experiments.training.run import read_config
from sbmt.experiments.training.tasks import PAPER, PAPER_MLM, REDUCED_MLM
from sbmt.layers.registry import make_options

pytestmark = pytest.mark.bad_input


def test_a_new_attention_keeps_the_options_that_it_shares_with_the_old_one():
    config = RepeatedTokensConfig(option_defaults=(("n_features", 7), ("window", 2)))
    assert config.options.window == 2
    changed = config.override(window=6, n_clusters=5).override(attention="random_mask", mask_density=0.5)
    assert changed.options == make_options("random_mask", {"mask_density": 0.5, "window": 6})
    assert config.override(attention="performer").options == make_options("performer", {"n_features": 7})
    assert config == RepeatedTokensConfig().override(window=2)  # where options come from is not part of a run


@pytest.mark.parametrize(
    "config",
    [
        RepeatedTokensConfig(steps=7, options={"sampler": "fastrg", "exploration": 0.0}),
        PAPER["text"].override(seed=3, window=8, precision="bf16-mixed", quirks=True),
        PAPER_MLM.override(seed=3, dev_examples=10),
        REDUCED_MLM,
        GlueConfig(task="mnli", tokenizer="t"),
    ],
    ids=lambda config: config.task,
)
def test_a_configuration_comes_back_from_its_file(tmp_path, config):
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert read_config(tmp_path) == config


def repeated(**values):
    return RepeatedTokensConfig().override(**values)


def glue(**values):
    return GlueConfig(**{"tokenizer": "t.json"} | values)


@pytest.mark.parametrize(
    ("make", "values", "word"),
    [
        (repeated, {"steps": 0}, "steps"),
        (repeated, {"steps": 1.5}, "steps"),
        (repeated, {"learning_rate": float("nan")}, "learning_rate"),
        (repeated, {"preset": "fitted", "density_weight": 0.1}, "density_weight"),
        (repeated, {"seed": -1}, "seed"),
        (RepeatedTokensConfig, {"options": 3}, "options"),
        (RepeatedTokensConfig, {"attention": "performer", "options": repeated().options}, "PerformerOptions"),
        (LongRangeConfig, {"task": "speech"}, "task"),
        (LongRangeConfig, {"accumulate": 3}, "accumulate"),
        (LongRangeConfig, {"dev_examples": 0}, "dev_examples"),
        (LongRangeConfig, {"warmup_steps": 5000}, "warmup_steps"),
        (LongRangeConfig, {"dropout": 1.0}, "dropout"),
        (glue, {"tokenizer": ""}, "neither"),
    ],
)
def test_values_out_of_range_are_refused(make, values, word):
    with pytest.raises(SbmtError, match=word):
        make(**values)


@pytest.mark.parametrize(
    "values", [{"stepz": 3}, ["steps"], {"steps": "many"}, {"learning_rate": "fast"}, {"options": {"n_clusters": "x"}}]
)
def test_damaged_dictionaries_are_refused(values):
    with pytest.raises(SbmtError):
        RepeatedTokensConfig.from_dict(values)


def test_learning_rate_falls_along_a_line_at_the_end():
    config = RepeatedTokensConfig(steps=10, cooldown=3)
    assert [config.learning_rate_share(step) for step in (0, 6, 7, 8, 9)] == [1, 1, 0.75, 0.5, 0.25]
    assert [RepeatedTokensConfig(steps=10).learning_rate_share(step) for step in (0, 9)] == [1, 1]

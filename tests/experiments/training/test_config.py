"""Tests settings of runs: the paper's numbers, errors, and copies in files or for fine-tuning."""

import json
from dataclasses import asdict, fields

import pytest

from sbmt import SBMAttention, SbmtError
from sbmt.experiments.data.batches import Encoding
from sbmt.experiments.training import SIZES, GlueConfig, LongRangeConfig, RepeatedTokensConfig
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.run import read_config
from sbmt.experiments.training.tasks import (
    ANEW,
    GLUE_TASKS,
    LONG_RANGE_TASKS,
    PAPER,
    PAPER_MLM,
    REDUCED_MLM,
    fine_tuning,
)
from sbmt.layers.registry import make_options

pytestmark = pytest.mark.bad_input
LONG_RANGE = dict(n_layers=2, n_heads=2, d_model=64, d_hidden=128, dropout=0.1, attention_dropout=0.1)
LANGUAGE = dict(n_layers=4, n_heads=8, d_model=512, d_hidden=2048, length=512, dropout=0.1, attention_dropout=0.1)
SYNTHETIC = dict(length=256, batch_size=256, steps=2000, n_layers=1, n_heads=1, d_model=32, d_hidden=32)
MLM = LANGUAGE | dict(data="corpus", batch_size=256, learning_rate=1e-4, steps=50 * 5000)  # 50 epochs of 5,000 batches
TABLE_7 = {  # length, batch size, learning rate, steps
    "listops": (2048, 128, 5e-4, 5000),
    "text": (3072, 128, 5e-4, 20000),
    "retrieval": (4096, 32, 1e-4, 30000),
    "image": (1024, 1024, 5e-4, 35000),
    "pathfinder": (1024, 1024, 5e-4, 62400),
}
COLUMNS = ("length", "batch_size", "learning_rate", "steps")


def test_a_new_attention_keeps_the_options_that_it_shares_with_the_old_one():
    config = RepeatedTokensConfig(option_defaults=(("n_features", 7), ("window", 2)))
    assert config.options.window == 2
    changed = config.override(window=6, n_clusters=5).override(attention="random_mask", mask_density=0.5)
    assert changed.options == make_options("random_mask", {"mask_density": 0.5, "window": 6})
    assert config.override(attention="performer").options == make_options("performer", {"n_features": 7})
    assert config == RepeatedTokensConfig().override(window=2)  # the defaults of options are not part of a run


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
        (lambda **values: RepeatedTokensConfig.from_dict(values), {"stepz": 3}, "stepz"),
        (RepeatedTokensConfig, {"learning_rate": "fast"}, "learning_rate"),
        (RepeatedTokensConfig, {"options": {"n_clusters": "x"}}, "n_clusters"),
    ],
)
def test_values_out_of_range_are_refused(make, values, word):
    with pytest.raises(SbmtError, match=word):
        make(**values)


def some(config, names):
    return {name: value for name, value in asdict(config).items() if name in names}


def test_presets_are_the_papers_table_7():
    """The preset ``recommended`` sets δ = 0.01, and the layer k = 128."""
    assert some(SIZES["paper"], SYNTHETIC) == SYNTHETIC
    assert some(PAPER_MLM, MLM) == MLM and PAPER_MLM.best_by == "loss"
    for task in GLUE_TASKS:
        expected = LANGUAGE | dict(batch_size=32, learning_rate=3e-5)
        assert some(GlueConfig(task=task, tokenizer="t.json"), expected) == expected
    assert tuple(PAPER) == LONG_RANGE_TASKS == tuple(TABLE_7)
    for task, row in TABLE_7.items():
        expected = dict(zip(COLUMNS, row, strict=True)) | LONG_RANGE | {"task": task, "quirks": False}
        assert some(PAPER[task], expected) == expected and PAPER[task].data_name == task
    for config, more in ((PAPER_MLM, {"window": 64}), (PAPER["text"], {})):
        given = config.attention_arguments()
        assert given.items() >= ({"preset": "recommended"} | more).items()
        assert not {"exploration", "n_clusters", "self_loops"} & given.keys()
    assert SBMAttention(8, 1).n_clusters == 128


@pytest.mark.usefixtures("caches")
def test_fine_tuning_takes_the_network_and_nothing_else():
    network = dict(length=40, d_model=24, d_hidden=20, n_heads=3, n_layers=5, has_tied_start=True, positions="rotary")
    own = dict(steps=7777, batch_size=6, learning_rate=0.7, seed=5, density_weight=0.1, precision="bf16-mixed")
    config = fine_tuning("sst2", "run", PAPER_MLM.override(**network, **own, n_clusters=7))
    plain = GlueConfig(task="sst2", pretrained="run", steps=5 * 2, warmup_steps=0)
    assert some(config, network) == network and config.options.n_clusters == 7
    assert some(config, own) == some(plain, own) and (config.task, config.pretrained) == ("sst2", "run")
    small = fine_tuning("sst2", "run", PAPER_MLM, epochs=10, batch_size=5)
    assert (small.steps, small.warmup_steps, small.eval_every) == (80, 4, 8)  # of 36 examples
    assert {f.name for f in fields(TrainingConfig)} == {*ANEW, *network, "attention", "options", "option_defaults"}


def test_encodings_follow_task_and_quirks(tiny):
    assert tiny("image").encoding(0) == Encoding(0, 64, is_image=True)
    quirky = Encoding(1, 20, is_padded_to_length=True, is_zero_padding=True)
    assert tiny("retrieval", quirks=True).encoding(1) == quirky

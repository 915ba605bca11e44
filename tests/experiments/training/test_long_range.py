"""Settings of runs on long-range tasks: the paper's numbers, and what cannot be asked for."""

import json
from dataclasses import asdict

import pytest

from sbmt import SbmtError
from sbmt.experiments.data.batches import Encoding
from sbmt.experiments.training.long_range import LONG_RANGE_TASKS, PAPER, REDUCED, LongRangeConfig
from sbmt.experiments.training.run import read_config

SHARED = dict(n_layers=2, n_heads=2, d_model=64, d_hidden=128, dropout=0.1, attention_dropout=0.1)
TABLE_7 = {  # length, batch size, learning rate, steps
    "listops": (2048, 128, 5e-4, 5000),
    "text": (3072, 128, 5e-4, 20000),
    "retrieval": (4096, 32, 1e-4, 30000),
    "image": (1024, 1024, 5e-4, 35000),
    "pathfinder": (1024, 1024, 5e-4, 62400),
}


def test_presets_are_the_papers_table_7():
    assert tuple(PAPER) == LONG_RANGE_TASKS == tuple(TABLE_7)
    for task, (length, batch_size, rate, steps) in TABLE_7.items():
        values = asdict(PAPER[task])
        expected = dict(length=length, batch_size=batch_size, learning_rate=rate, steps=steps) | SHARED
        assert {name: values[name] for name in expected} == expected
        assert values["task"] == PAPER[task].data_name == task
        assert not values["quirks"] and values["dev_examples"] is values["test_examples"] is None
        arguments = {"preset": "recommended", "n_clusters": 128, "is_diagonal": False}  # δ = 0.01 is the preset's
        assert PAPER[task].attention_arguments() == arguments


def test_reduced_settings_ask_for_less():
    assert tuple(REDUCED) == LONG_RANGE_TASKS
    for task, config in REDUCED.items():
        assert config.task == task
        assert config.length < PAPER[task].length and config.steps < PAPER[task].steps
        assert (config.n_layers, config.n_heads, config.d_model, config.options.n_clusters) == (2, 2, 64, 32)
        assert config.override(attention="linformer").options.n_projected == 64


@pytest.mark.parametrize("task", LONG_RANGE_TASKS)
def test_a_configuration_comes_back_from_its_file(task, tmp_path):
    config = PAPER[task].override(seed=3, window=8, precision="bf16-mixed", quirks=True, dev_examples=10)
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    assert read_config(tmp_path) == config


def test_encodings_follow_task_and_quirks(tiny):
    assert tiny("text").encoding(1) == Encoding(1, 20)
    assert tiny("image").encoding(0) == Encoding(0, 64, is_image=True)
    assert tiny("pathfinder", length=64).encoding(0).is_image
    quirky = Encoding(1, 20, is_padded_to_length=True, is_zero_padding=True)
    assert tiny("retrieval", quirks=True).encoding(1) == quirky


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": "speech"}, "task among"),
        ({"pair_features": "sum"}, "pair_features among"),
        ({"precision": "8-bit"}, "precision among"),
        ({"accumulate": 0}, "accumulate ≥ 1"),
        ({"accumulate": 3}, "accumulate that divides a batch of 128"),
        ({"eval_every": 0}, "eval_every ≥ 1"),
        ({"dev_examples": 0}, "dev_examples ≥ 1"),
        ({"test_examples": -1}, "test_examples ≥ 1"),
        ({"warmup_steps": -1}, "warmup_steps in"),
        ({"warmup_steps": 5000}, "warm up for fewer steps"),
        ({"steps": 0}, "steps ≥ 1"),
        ({"weight_decay": -0.1}, "weight_decay ≥ 0"),
        ({"weight_decay": float("nan")}, "weight_decay ≥ 0"),
        ({"learning_rate": float("inf")}, "learning_rate > 0"),
        ({"dropout": 1.0}, "dropout"),
        ({"attention_dropout": -0.1}, "dropout"),
        ({"length": 0}, "length ≥ 1"),
        ({"seed": -1}, "seed in"),
    ],
)
def test_settings_out_of_range_are_refused(settings, words):
    with pytest.raises(SbmtError, match=words):
        LongRangeConfig(**settings)


@pytest.mark.bad_input
@pytest.mark.parametrize("values", [{"unknown": 1}, [], {"steps": "many"}, {"cooldown": 5}])
def test_files_of_another_kind_are_refused(values):
    with pytest.raises(SbmtError):
        LongRangeConfig.from_dict(values)

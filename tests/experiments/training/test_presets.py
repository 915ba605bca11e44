"""Settings of runs: the paper's numbers, reduced ones, and what fine-tuning takes over."""

from dataclasses import asdict, fields

import pytest

from sbmt import SBMAttention
from sbmt.experiments.data.batches import Encoding
from sbmt.experiments.training import SIZES
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.tasks import (
    ANEW,
    GLUE_TASKS,
    LONG_RANGE_TASKS,
    PAPER,
    PAPER_MLM,
    REDUCED_MLM,
    GlueConfig,
    fine_tuning,
)

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


def some(config, names):
    return {name: value for name, value in asdict(config).items() if name in names}


def test_presets_are_the_papers_table_7():
    """The preset ``recommended`` has δ = 0.01, the layer k = 128."""
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


@pytest.mark.usefixtures("language")
def test_fine_tuning_takes_the_network_and_nothing_else():
    network = dict(length=40, d_model=24, d_hidden=20, n_heads=3, n_layers=5, has_tied_start=True, positions="rotary")
    own = dict(steps=7777, batch_size=6, learning_rate=0.7, seed=5, density_weight=0.1, precision="bf16-mixed")
    config = fine_tuning("sst2", "run", PAPER_MLM.override(**network, **own, n_clusters=7))
    plain = GlueConfig(task="sst2", pretrained="run", steps=5 * 2, warmup_steps=0)
    assert some(config, network) == network and config.options.n_clusters == 7
    assert some(config, own) == some(plain, own) and (config.task, config.pretrained) == ("sst2", "run")
    assert {f.name for f in fields(TrainingConfig)} == {*ANEW, *network, "attention", "options", "option_defaults"}


@pytest.mark.usefixtures("language")
@pytest.mark.parametrize(("batch_size", "epochs", "expected"), [(5, 5, (40, 2, 8)), (32, 1, (2, 0, 2))])
def test_epochs_become_steps(batch_size, epochs, expected):
    config = fine_tuning("sst2", "run", PAPER_MLM, epochs, batch_size=batch_size)
    assert (config.steps, config.warmup_steps, config.eval_every) == expected  # of 36 examples


def test_encodings_follow_task_and_quirks(tiny):
    assert tiny("image").encoding(0) == Encoding(0, 64, is_image=True)
    quirky = Encoding(1, 20, is_padded_to_length=True, is_zero_padding=True)
    assert tiny("retrieval", quirks=True).encoding(1) == quirky


def test_reduced_settings_ask_for_less():
    names = ("length", "steps", "batch_size", "d_model", "d_hidden", "n_heads", "n_layers")
    assert all(getattr(REDUCED_MLM, name) < getattr(PAPER_MLM, name) for name in names)
    assert REDUCED_MLM.options.window / REDUCED_MLM.length == PAPER_MLM.options.window / PAPER_MLM.length
    assert REDUCED_MLM.override(attention="performer").attention_arguments() == {"n_features": 32}

"""Settings of pre-training and fine-tuning: the paper's numbers, reduced ones, and what fine-tuning takes over."""

from dataclasses import asdict

import pytest

from sbmt import SBMAttention
from sbmt.experiments.training.tasks import (
    GLUE_TASKS,
    PAPER_MLM,
    REDUCED_MLM,
    GlueConfig,
    MlmConfig,
    epochs_of,
    fine_tuning,
    reduced_settings,
)

SHARED = dict(n_layers=4, n_heads=8, d_model=512, d_hidden=2048, length=512, dropout=0.1, attention_dropout=0.1)
SHARED |= dict(attention="sbm")


def some(config, expected):
    values = asdict(config)
    return {name: values[name] for name in expected if name in values}


def test_defaults_are_the_papers_table_7():
    """Its 50 epochs of pre-training are 5,000 batches each."""
    mlm = SHARED | dict(task="mlm", data="corpus", batch_size=256, learning_rate=1e-4, steps=50 * 5000)
    assert some(PAPER_MLM, mlm) == mlm
    assert PAPER_MLM.best_by == "loss"
    glue = SHARED | dict(batch_size=32, learning_rate=3e-5)
    for task in ("sst2", "qqp", "mnli", "qnli"):
        config = GlueConfig(task=task, tokenizer="t.json")
        assert some(config, glue) == glue
        assert config.best_by == "accuracy" and config.data_name == task
    arguments = {"preset": "recommended", "window": 64}  # δ = 0.01 is the preset's, k = 128 the layer's
    given = PAPER_MLM.attention_arguments()
    assert arguments.items() <= given.items() and not {"exploration", "n_clusters", "self_loops"} & given.keys()
    assert GLUE_TASKS == ("sst2", "qqp", "mnli", "qnli")


def test_reduced_settings_ask_for_less(tmp_path, monkeypatch):
    monkeypatch.setenv("SBMT_CACHE", str(tmp_path))
    (tmp_path / "mnli-subset").mkdir()
    names = ("length", "steps", "batch_size", "d_model", "d_hidden", "n_heads", "n_layers")
    assert all(getattr(REDUCED_MLM, name) < getattr(PAPER_MLM, name) for name in names)
    assert REDUCED_MLM.options.n_clusters < SBMAttention(8, 1).n_clusters and PAPER_MLM.options.n_clusters is None
    assert REDUCED_MLM.options.window / REDUCED_MLM.length == PAPER_MLM.options.window / PAPER_MLM.length
    performer = REDUCED_MLM.override(attention="performer").attention_arguments()
    assert performer == {"n_features": 32} and PAPER_MLM.override(attention="performer").options.n_features == 256
    assert reduced_settings("mnli")["data"] == "mnli-subset"  # which is prepared
    assert reduced_settings("sst2")["data"] == "sst2" and reduced_settings("qqp")["data"] == "qqp"
    for task in GLUE_TASKS:
        fine_tuning(task, "run", REDUCED_MLM, **reduced_settings(task))


def test_fine_tuning_takes_the_network_and_nothing_else():
    own = dict(steps=77, warmup_steps=7, eval_every=9, batch_size=6, learning_rate=0.7, weight_decay=0.3, seed=5)
    own |= dict(density_weight=0.0, density_kind="expected", density_start=3, density_ramp=4, embedding_std=0.7)
    own |= dict(block_model_rate=0.6, auxiliary_weight=0.1, dense_steps=2, edges_from=8.0, edges_ramp=4)
    own |= dict(dropout=0.3, attention_dropout=0.4, accumulate=2, precision="bf16-mixed", data="mine", dev_examples=3)
    options = dict(n_clusters=7, window=6, preset="faithful", sampler="fastrg", gate_rule="weight", link="poisson")
    options |= dict(membership="crossed", self_loops=True, exploration=0.2, extra_keys=None)
    options |= dict(learning="likelihood", edges_per_query=3.0, n_groups=7, reweight=True, sink=True, causal=False)
    network = dict(length=40, d_model=24, d_hidden=20, n_heads=3, n_layers=5, has_tied_start=True)
    network |= dict(attention="sbm", positions="rotary", options=options, option_defaults=(("n_features", 9),))
    config = fine_tuning("qnli", "run", MlmConfig(**own, **network))
    assert some(config, network) == network
    plain = GlueConfig(task="qnli", pretrained="run")
    assert some(config, own) == some(plain, own)
    assert fine_tuning("qnli", "run", MlmConfig(density_weight=0.5)) == GlueConfig(task="qnli", pretrained="run")
    assert (config.task, config.pretrained, config.tokenizer) == ("qnli", "run", "")
    assert fine_tuning("qqp", "run", PAPER_MLM) == GlueConfig(task="qqp", pretrained="run")
    assert fine_tuning("qqp", "", PAPER_MLM, tokenizer="t", seed=4) == GlueConfig(task="qqp", tokenizer="t", seed=4)
    assert set(asdict(PAPER_MLM)) == set(own) | set(network) | {"task", "test_examples"}  # none forgotten


@pytest.mark.parametrize(
    ("n_train", "batch_size", "epochs", "expected"),
    [
        (67349, 32, 5, (10525, 526, 2105)),  # SST-2: 2,104.7 steps a pass
        (100, 10, 3, (30, 1, 10)),
        (7, 4, 1, (2, 0, 2)),
        (3, 8, 1, (1, 0, 1)),
        (1, 32, 5, (5, 0, 1)),
    ],
)
def test_epochs_become_steps(n_train, batch_size, epochs, expected):
    config = epochs_of(GlueConfig(tokenizer="t", batch_size=batch_size), n_train, epochs)
    assert (config.steps, config.warmup_steps, config.eval_every) == expected

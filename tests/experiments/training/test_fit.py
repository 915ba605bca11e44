"""Tests runs of every family on small examples: resuming gives the same result, and the best weights are kept."""

import signal
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.training import RecallConfig, RepeatedTokensConfig
from sbmt.experiments.training import fit as fit_run
from sbmt.experiments.training.generated import GeneratedConfig
from sbmt.experiments.training.lightning_module import TrainingModule
from sbmt.experiments.training.run import load_run
from sbmt.layers.registry import ATTENTIONS
from tests.experiments.training.runs import ROUGH, Stopped, contents, has_same_numbers, stop_after

fit = partial(fit_run, accelerator="cpu")  # a device on which a run is reproducible bit by bit
pytestmark = pytest.mark.usefixtures("caches")


@pytest.fixture
def family(tiny, tiny_mlm, tiny_glue, pretrained, monkeypatch):
    """Makes a configuration by family name, with checkpoints after steps 2, 4, and so on."""
    monkeypatch.setattr(GeneratedConfig, "checkpoint_every", 2)
    sizes = dict(length=8, batch_size=4, steps=7, d_model=8, d_hidden=8, test_sequences=16)
    return {
        "listops": lambda: tiny(**ROUGH),
        "performer": lambda: tiny("retrieval", attention="performer", **ROUGH),
        "reformer": lambda: tiny("retrieval", attention="reformer", **ROUGH),
        "mnli": lambda: tiny_glue("mnli", pretrained=str(pretrained), **ROUGH),
        "repeated tokens": lambda: RepeatedTokensConfig(**sizes, options={"n_clusters": 4}),
        "fitted": lambda: RepeatedTokensConfig(**sizes).override(preset="fitted", n_clusters=16, edges_per_query=4.0),
        "recall": lambda: RecallConfig(**sizes, n_pairs=2, n_queries=3, n_distractors=2, options={"n_clusters": 4}),
    }


@pytest.fixture
def script_dev(monkeypatch):
    """Replaces one dev score by the table's value for the current step; the other score only rises."""

    def script(name, values):
        collect = TrainingModule.on_test_epoch_end

        def scripted(module):
            collect(module)
            step = module.global_step
            rising = {"accuracy": step / 10, "loss": 10.0 - step}
            module.scores = replace(module.scores, **rising | {name: values.get(step, 0.0)})  # 0 means the test

        monkeypatch.setattr(TrainingModule, "on_test_epoch_end", scripted)

    return script


@pytest.mark.parametrize("name", ["listops", "performer", "reformer", "mnli", "repeated tokens", "fitted", "recall"])
def test_a_run_that_is_moved_goes_on_to_the_same_numbers(tmp_path, family, script_dev, name):
    """Resuming works with other random draws than masks, too, and the best weights so far stay the best."""
    config = family[name]()
    if not config.is_generated:
        script_dev("accuracy", {2: 0.75, 4: 0.25, 6: 0.5})
    whole = fit(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        fit(config, tmp_path / "parts", on_step=stop_after(5))
    (tmp_path / "parts").rename(tmp_path / "moved")
    run = fit(config, tmp_path / "moved", resume=True)
    assert run.about.get("best_step", 2) == 2
    assert run.about == whole.about and has_same_numbers(tmp_path / "moved", tmp_path / "whole")


def test_an_interruption_is_one(tmp_path, tiny):
    """Ctrl-C reaches the caller, and so will the next Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        fit(tiny(), tmp_path / "run", on_step=stop_after(3, KeyboardInterrupt))
    assert signal.getsignal(signal.SIGINT) is before
    fit(tiny(), tmp_path / "run", resume=True)


def test_a_batch_in_parts_is_the_batch(tmp_path, tiny):
    settings = dict(attention="full", dropout=0.0, attention_dropout=0.0, learning_rate=1e-3)
    joint = fit(tiny(**settings), tmp_path / "joint")
    parts = fit(tiny(**settings, accumulate=4), tmp_path / "parts")
    for name, weight in joint.model.state_dict().items():
        torch.testing.assert_close(parts.model.state_dict()[name], weight, rtol=1e-4, atol=1e-5)
    losses = [[row["loss"] for row in run.rows if row["split"] == "train"] for run in (joint, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.parametrize(("name", "worst", "best"), [("accuracy", 0.25, 0.75), ("loss", 5.0, 3.0)])
def test_the_weights_that_do_best_on_dev_are_kept(tmp_path, tiny, tiny_mlm, script_dev, name, worst, best):
    """The first of equal scores wins. Language models are selected by their loss, others by accuracy."""
    config = tiny(steps=8) if name == "accuracy" else tiny_mlm(steps=8)
    script_dev(name, {2: worst, 4: best, 6: (worst + best) / 2, 8: best})
    run = fit(config, tmp_path / "run")
    assert run.about["best_step"] == 4 and run.about["dev"][name] == best
    with pytest.raises(Stopped):
        fit(config, tmp_path / "then", on_step=stop_after(5))
    then = torch.load(tmp_path / "then" / "state.ckpt", weights_only=True)["state_dict"]  # of step 4
    assert all(torch.equal(then[f"model.{name}"], weight) for name, weight in run.model.state_dict().items())


@pytest.mark.bad_input
@pytest.mark.parametrize(("attention", "eval_every"), [("sbm", 1), ("full", 2)])
def test_a_loss_that_is_not_finite_stops_training(tmp_path, tiny, attention, eval_every):
    """An infinite loss is found wherever it occurs first: in a block model or the loss, on dev or in training."""
    words = "query_membership .* without NaN" if attention == "sbm" else f"a finite loss, got nan at step {eval_every}"
    with pytest.raises(SbmtError, match=words):
        fit(tiny(learning_rate=1e30, attention=attention, eval_every=eval_every), tmp_path / "run")


@pytest.mark.bad_input
@pytest.mark.parametrize("variable", ["RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"])
def test_folders_are_not_taken_over(tmp_path, tiny, monkeypatch, variable):
    """A process that runs alone is the first, whatever a cluster has left in the environment."""
    monkeypatch.setenv(variable, "1")
    folder = tmp_path / "run"
    with pytest.raises(SbmtError, match=r"cannot read .*config\.json"):
        fit(tiny(), folder, resume=True)
    fit(tiny(steps=2, warmup_steps=0), folder)
    before = contents(folder)
    with pytest.raises(SbmtError, match="a new or empty folder"):
        fit(tiny(steps=2, warmup_steps=0), folder)
    with pytest.raises(SbmtError, match="an unfinished run in"):
        fit(tiny(steps=2, warmup_steps=0), folder, resume=True)
    with pytest.raises(SbmtError, match="cannot resume .* warmup_steps is 1, but the run has 0"):
        fit(tiny(steps=2, warmup_steps=1), folder, resume=True)
    assert contents(folder) == before


def test_a_run_without_a_checkpoint_leaves_its_folder_to_any_other(tmp_path, tiny):
    config = tiny(steps=2, eval_every=1)
    with pytest.raises(Stopped):
        fit(tiny(), tmp_path / "run", on_step=stop_after(1))
    with pytest.raises(SbmtError, match="cannot resume"):
        fit(config, tmp_path / "run", resume=True)
    assert fit(config, tmp_path / "run").test == fit(config).test == load_run(tmp_path / "run").test


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"data": "nowhere"}, {}, "prepared examples in"),
        ({"data": "toy-text"}, {}, "listops examples in .*toy-text, got text"),
        ({}, {"devices": 0}, "devices"),
        ({}, {"devices": 10_000, "accelerator": "gpu"}, "devices"),
        ({}, {"accelerator": "tpu"}, "devices that this machine has"),
        ({"n_layers": 2**31 - 1}, {}, "a network of fewer than 68,719,476,736 bytes"),
        ({"batch_size": 9}, {"devices": 2, "accelerator": "cpu"}, "divisible by 2"),
    ],
)
def test_what_cannot_begin_leaves_no_folder(tmp_path, tiny, changes, where, words):
    with pytest.raises(SbmtError, match=words):
        fit(tiny(**changes), tmp_path / "run", **where)
    assert not (tmp_path / "run").exists()


def test_a_run_prints_nothing_and_loads_as_it_was(tmp_path, tiny, toy_cache, capfd, caplog):
    run = fit(tiny(dev_examples=3, test_examples=9), tmp_path / "run")
    sha256 = open_prepared(toy_cache / "toy-listops").info["sha256"]
    assert run.about["n_test"] == 9 and run.about["data"].items() >= {"sha256": sha256, "n_train": 48}.items()
    assert capfd.readouterr() == ("", "") and not caplog.records
    loaded = load_run(tmp_path / "run")
    assert (loaded.config, loaded.test, loaded.about) == (run.config, run.test, run.about)
    assert all(torch.equal(loaded.model.state_dict()[x], weight) for x, weight in run.model.state_dict().items())
    assert [row["split"] for row in loaded.rows] == ["train", "train", "dev"] * 3
    for mine, other in zip(loaded.rows, run.rows, strict=True):
        assert mine["step"] == other["step"] and mine["loss"] == pytest.approx(other["loss"], rel=1e-5)
        assert mine.keys() == other.keys() and mine["density"] == pytest.approx(other["density"], rel=1e-5)
    curve = run.curve()
    assert curve["step"] == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert curve["loss"] == [round(row["loss"], 4) for row in run.rows if row["split"] == "train"]


@pytest.mark.parametrize("attention", sorted(set(ATTENTIONS) - {"sbm", "full", "performer", "reformer"}))
def test_every_attention_trains_on_documents_of_any_length(tmp_path, tiny, attention):
    run = fit(tiny(attention=attention, steps=2), tmp_path / "run")
    assert np.isfinite(run.test.loss) and 0 <= run.test.density <= 1


def test_bfloat16_trains_on_a_cpu(tmp_path, tiny):
    """Weights stay float32, and the results stay close to those of float32."""
    settings = dict(steps=2, dropout=0.0, attention_dropout=0.0)
    run, exact = (fit(tiny(**settings, precision=p), tmp_path / p) for p in ("bf16-mixed", "32-true"))
    assert {p.dtype for p in run.model.parameters()} == {torch.float32}
    assert run.rows[0]["loss"] != exact.rows[0]["loss"]
    assert run.rows[0]["loss"] == pytest.approx(exact.rows[0]["loss"], abs=0.02)
    assert run.test.loss == pytest.approx(exact.test.loss, abs=0.05)

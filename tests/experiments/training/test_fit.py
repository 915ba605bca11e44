"""Runs on small examples: resumed ones equal whole ones, and the best weights are kept."""

import json
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training import fit as fit_run
from sbmt.experiments.training.checkpoints import weights
from sbmt.experiments.training.module import TrainingModule
from sbmt.experiments.training.run import Run

pytestmark = pytest.mark.usefixtures("toys")
fit = partial(fit_run, accelerator="cpu")  # where a run comes out the same to the last bit
FILES = ["config.json", "metrics.csv", "model.safetensors", "result.json"]
ROUGH = dict(dropout=0.2, attention_dropout=0.2, density_weight=0.1, accumulate=2, steps=7)  # all that draws or adds up


class Stopped(Exception):
    pass


def stop_after(number, error=Stopped):
    def on_step(step):
        if step.number == number:
            raise error

    return on_step


@pytest.fixture
def script_dev(monkeypatch):
    """Makes the accuracy on dev what a table says for the step that it is measured at."""

    def script(accuracies):
        collect = TrainingModule._collect

        def scripted(module):
            scores = collect(module)
            return scores if module.trainer.testing else replace(scores, accuracy=accuracies[module.global_step])

        monkeypatch.setattr(TrainingModule, "_collect", scripted)

    return script


def is_same_run(a, b):
    """Whether two folders hold the same numbers, to the last bit."""
    same = all((a / file).read_bytes() == (b / file).read_bytes() for file in FILES[:3])
    first, second = (json.loads((folder / "result.json").read_text()) for folder in (a, b))
    return same and all(first[x] == second[x] for x in first if x not in ("seconds", "manifest"))


def test_a_run_that_is_killed_goes_on_to_the_same_numbers(tmp_path, tiny):
    """SIGKILL at step 5 of 7 in another process, in the middle of an epoch; the last checkpoint is of step 4."""
    config = tiny(**ROUGH)
    code = """if True:
        import json, os, signal, sys, torch
        from pathlib import Path
        from sbmt.experiments.training.fit import fit
        from sbmt.experiments.training.long_range import LongRangeConfig
        torch.set_num_threads(int(sys.argv[3]))
        def kill(step):
            if step.number == 5:
                os.kill(os.getpid(), signal.SIGKILL)
        config = LongRangeConfig.from_dict(json.loads(sys.argv[2]))
        fit(config, Path(sys.argv[1]), on_step=kill, accelerator="cpu")
        """
    arguments = [tmp_path / "killed", json.dumps(config.to_dict()), str(torch.get_num_threads())]
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == -signal.SIGKILL
    left = sorted(path.name for path in (tmp_path / "killed").iterdir())
    assert left == ["best.safetensors", "config.json", "metrics.csv", "state.safetensors"]
    seen = []
    run = fit(config, tmp_path / "killed", resume=True, on_step=lambda step: seen.append(step.number))
    assert seen == [5, 6, 7]
    whole = fit(config, tmp_path / "whole")
    assert run.test == whole.test and is_same_run(tmp_path / "killed", tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == FILES


@pytest.mark.parametrize("attention", ["performer", "reformer"])
def test_a_run_that_is_moved_goes_on_to_the_same_numbers(tmp_path, tiny, script_dev, attention):
    """Also attentions that draw other things than masks; and what was best before the move still is."""
    config = tiny("retrieval", attention=attention, **ROUGH)
    script_dev({2: 0.75, 4: 0.25, 6: 0.5})
    whole = fit(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        fit(config, tmp_path / "parts", on_step=stop_after(5))
    (tmp_path / "parts").rename(tmp_path / "moved")
    run = fit(config, tmp_path / "moved", resume=True)
    assert run.about["best_step"] == 2
    assert run.about == whole.about and is_same_run(tmp_path / "moved", tmp_path / "whole")


def test_a_run_that_was_stopped_after_its_last_step_is_only_tested(tmp_path, tiny, monkeypatch):
    whole = fit(tiny(), tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", lambda *_: stop_after(0)(type("Step", (), {"number": 0})))
        with pytest.raises(Stopped):
            fit(tiny(), tmp_path / "parts")
    seen = []
    run = fit(tiny(), tmp_path / "parts", resume=True, on_step=seen.append)
    assert seen == [] and run.test == whole.test and is_same_run(tmp_path / "parts", tmp_path / "whole")


def test_an_interruption_is_one(tmp_path, tiny):
    """Ctrl-C reaches the caller, and the next one will too."""
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
    other = fit(tiny(**settings, seed=1), tmp_path / "other")
    assert losses[0] != pytest.approx([row["loss"] for row in other.rows if row["split"] == "train"], rel=1e-2)


def test_the_weights_that_do_best_on_dev_are_kept(tmp_path, tiny, script_dev):
    """The first of equals."""
    script_dev({2: 0.5, 4: 0.75, 6: 0.25, 8: 0.75})
    run = fit(tiny(steps=8), tmp_path / "run")
    assert run.about["best_step"] == 4 and run.about["dev"]["accuracy"] == 0.75
    with pytest.raises(Stopped):
        fit(tiny(steps=8), tmp_path / "then", on_step=stop_after(5))
    then = weights(tmp_path / "then" / "state.safetensors", {})  # as the evaluation after step 4 left it
    assert all(torch.equal(then[name], weight) for name, weight in run.model.state_dict().items())


def test_a_run_says_nothing_of_its_own(tmp_path, tiny, capfd):
    fit(tiny(steps=2), tmp_path / "run")
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""


@pytest.mark.bad_input
def test_a_loss_that_is_not_finite_stops_training(tmp_path, tiny):
    with pytest.raises(SbmtError, match=r"a finite loss|without NaN"):
        fit(tiny(learning_rate=1e30), tmp_path / "run")


@pytest.mark.bad_input
def test_folders_are_not_taken_over(tmp_path, tiny):
    folder = tmp_path / "run"
    with pytest.raises(SbmtError, match="a file"):
        fit(tiny(), folder, resume=True)
    fit(tiny(steps=2, warmup_steps=0), folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(SbmtError, match="a folder without a run"):
        fit(tiny(steps=2, warmup_steps=0), folder)
    with pytest.raises(SbmtError, match="it is finished"):
        fit(tiny(steps=2, warmup_steps=0), folder, resume=True)
    with pytest.raises(SbmtError, match="resume with the same settings"):
        fit(tiny(steps=2, warmup_steps=1), folder, resume=True)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    with pytest.raises(Stopped):
        fit(tiny(), tmp_path / "early", on_step=stop_after(1))
    with pytest.raises(SbmtError, match="remove the folder"):
        fit(tiny(), tmp_path / "early", resume=True)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("changes", "where", "words"),
    [
        ({"attention": "magic"}, {}, "attention among"),
        ({"preset": "magic"}, {}, "preset among"),
        ({"data": "nowhere"}, {}, "prepared examples in"),
        ({"data": "toy-text"}, {}, "examples of listops, got text"),
        ({}, {"devices": 0}, "devices ≥ 1"),
        ({}, {"devices": 10_000, "accelerator": "gpu"}, "devices that this machine has"),
        ({"batch_size": 9}, {"devices": 2, "accelerator": "cpu", "strategy": "ddp"}, "divisible by 2 parts"),
    ],
)
def test_what_cannot_begin_leaves_no_folder(tmp_path, tiny, changes, where, words):
    with pytest.raises(SbmtError, match=words):
        fit(tiny(**changes), tmp_path / "run", **where)
    assert not (tmp_path / "run").exists()


@pytest.mark.bad_input
def test_an_image_that_does_not_divide_is_told(tmp_path, tiny):
    with pytest.raises(SbmtError, match="divides a square"):
        fit(tiny("image", length=25), tmp_path / "run")

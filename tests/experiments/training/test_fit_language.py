"""Pre-training and fine-tuning on small text: resumed runs equal whole ones, and weights go where they should."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from math import exp
from pathlib import Path

import pytest
import torch

from sbmt.experiments.files import read_tensors
from sbmt.experiments.training import fit as fit_run
from sbmt.experiments.training.checkpoints import weights
from sbmt.experiments.training.module import TrainingModule
from sbmt.experiments.training.run import load_run

pytestmark = pytest.mark.usefixtures("language")
fit = partial(fit_run, accelerator="cpu")  # where a run comes out the same to the last bit
FILES = ["config.json", "metrics.csv", "model.safetensors", "result.json", "tokenizer.json"]
ROUGH = dict(dropout=0.2, attention_dropout=0.2, density_weight=0.1, accumulate=2, steps=7)  # all that draws or adds up
POSITIONS = "position_embedding.weight"


class Stopped(Exception):
    pass


def stop_at_5(step):
    if step.number == 5:
        raise Stopped


def is_same_run(a, b):
    """Whether two folders hold the same numbers, to the last bit."""
    files = [name for name in FILES if name != "result.json"]
    same = all((a / file).read_bytes() == (b / file).read_bytes() for file in files)
    first, second = (json.loads((folder / "result.json").read_text()) for folder in (a, b))
    return same and all(first[x] == second[x] for x in first if x not in ("seconds", "manifest"))


@pytest.fixture
def starts(monkeypatch):
    """The weights of every run just before its first step."""
    seen = []

    def keep(module):
        seen.append({name: x.clone() for name, x in module.model.state_dict().items()})

    monkeypatch.setattr(TrainingModule, "on_train_start", keep)
    return seen


def test_a_pretraining_that_is_killed_goes_on_to_the_same_numbers(tmp_path, tiny_mlm):
    """SIGKILL at step 5 of 7 in another process, in the middle of an epoch; the last checkpoint is of step 4."""
    config = tiny_mlm(**ROUGH)
    code = """if True:
        import json, os, signal, sys, torch
        from pathlib import Path
        from sbmt.experiments.training.fit import fit
        from sbmt.experiments.training.language import MlmConfig
        torch.set_num_threads(int(sys.argv[3]))
        def kill(step):
            if step.number == 5:
                os.kill(os.getpid(), signal.SIGKILL)
        fit(MlmConfig.from_dict(json.loads(sys.argv[2])), Path(sys.argv[1]), on_step=kill, accelerator="cpu")
        """
    arguments = [tmp_path / "killed", json.dumps(config.to_dict()), str(torch.get_num_threads())]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=Path(__file__).parents[3], env=os.environ, check=False
    )
    assert done.returncode == -signal.SIGKILL
    left = sorted(path.name for path in (tmp_path / "killed").iterdir())
    assert left == ["best.safetensors", "config.json", "metrics.csv", "state.safetensors"]
    seen = []
    run = fit(config, tmp_path / "killed", resume=True, on_step=lambda step: seen.append(step.number))
    assert seen == [5, 6, 7]
    whole = fit(config, tmp_path / "whole")
    assert run.test == whole.test and is_same_run(tmp_path / "killed", tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == FILES


def test_a_fine_tuning_that_is_stopped_goes_on_to_the_same_numbers(tmp_path, tiny_glue, pretrained):
    config = tiny_glue("mnli", pretrained=str(pretrained()), **ROUGH)
    whole = fit(config, tmp_path / "whole")
    with pytest.raises(Stopped):
        fit(config, tmp_path / "parts", on_step=stop_at_5)
    run = fit(config, tmp_path / "parts", resume=True)
    assert run.test == whole.test and run.about == whole.about
    assert is_same_run(tmp_path / "parts", tmp_path / "whole")


def test_perplexity_is_e_to_the_loss_in_every_row(pretrained, language):
    run = load_run(pretrained())
    assert [row["split"] for row in run.rows] == ["train", "train", "dev"] * 3
    for row in run.rows:
        assert row["perplexity"] == pytest.approx(exp(row["loss"]), rel=1e-4)
    assert run.test.metrics == {"perplexity": pytest.approx(exp(run.test.loss))}
    assert (pretrained() / "tokenizer.json").read_bytes() == (language / "corpus" / "tokenizer.json").read_bytes()
    assert run.tokenizer.sha256 == run.about["data"]["tokenizer"] == run.about["data"]["settings"]["tokenizer"]


def test_the_weights_with_the_least_dev_loss_are_kept(tmp_path, tiny_mlm, monkeypatch):
    """The first of equals; accuracy would have chosen the last."""
    losses = {2: 5.0, 4: 3.0, 6: 4.0, 8: 3.0}
    collect = TrainingModule._collect

    def scripted(module):
        scores, step = collect(module), module.global_step
        return scores if module.trainer.testing else replace(scores, loss=losses[step], accuracy=step / 10)

    monkeypatch.setattr(TrainingModule, "_collect", scripted)
    run = fit(tiny_mlm(steps=8), tmp_path / "run")
    assert run.about["best_step"] == 4 and run.about["dev"] == {"accuracy": 0.4, "loss": 3.0}
    with pytest.raises(Stopped):
        fit(tiny_mlm(steps=8), tmp_path / "then", on_step=stop_at_5)
    then = weights(tmp_path / "then" / "state.safetensors", {})  # as the evaluation after step 4 left it
    assert all(torch.equal(then[name], weight) for name, weight in run.model.state_dict().items())


@torch.no_grad()
def test_the_output_layer_is_the_embedding_before_and_after_loading(pretrained):
    tensors = read_tensors(pretrained() / "model.safetensors")
    tables = [name for name, x in tensors.items() if x.dim() == 2 and 280 in x.shape]
    assert tables == ["encoder.token_embedding.weight"]
    model = load_run(pretrained()).model.eval()
    tokens = torch.randint(5, 280, (2, 16))
    x = model.encoder(tokens, generator=torch.Generator().manual_seed(3)).values
    logits = model(tokens, generator=torch.Generator().manual_seed(3)).values
    torch.testing.assert_close(logits, model.head(x) @ tensors[tables[0]].T + tensors["bias"])


def test_training_moves_the_embedding_of_tokens_that_no_block_holds(tmp_path, tiny_mlm, starts):
    """As an output layer every row of it learns from every label."""
    config = tiny_mlm(steps=2, weight_decay=0.0)
    run = fit(config, tmp_path / "run")
    unseen = torch.ones(280, dtype=torch.bool)
    unseen[list(range(5)) + config.open_data().feeds["train"].blocks.symbols.tolist()] = False
    name = "encoder.token_embedding.weight"
    moved = (run.model.state_dict()[name] - starts[0][name]).abs().amax(1)
    assert unseen.any() and (moved[unseen] > 0).all()


def test_batches_without_a_selected_token_do_no_harm(tmp_path, tiny_mlm):
    """Blocks of one token, one at a time: 85 % of these batches ask for nothing."""
    config = tiny_mlm(length=3, batch_size=1, dev_examples=20, test_examples=20)
    feed = config.open_data().feeds["train"]
    n_labels = [len(feed.batch(feed.endless(1, config.seed)(i), slice(0, 1), i).labels) for i in range(6)]
    assert 0 in n_labels
    run = fit(config, tmp_path / "run")
    assert all(weight.isfinite().all() for weight in run.model.state_dict().values())
    train = [row for row in run.rows if row["split"] == "train"]
    assert [row["loss"] == 0 for row in train] == [n == 0 for n in n_labels]


@pytest.mark.parametrize("length", [16, 9])
def test_fine_tuning_starts_from_the_pretrained_encoder(tmp_path, tiny_glue, pretrained, starts, length):
    """Of a longer position table the first rows."""
    folder = pretrained()
    run = fit(tiny_glue(pretrained=str(folder), steps=2, length=length), tmp_path / "run")
    theirs = {n.removeprefix("encoder."): x for n, x in read_tensors(folder / "model.safetensors").items()}
    mine = {n.removeprefix("encoder."): x for n, x in starts[0].items() if n.startswith("encoder.")}
    assert set(mine) < set(theirs) and mine[POSITIONS].shape[0] == length
    for name, weight in mine.items():
        assert torch.equal(weight, theirs[name][:length] if name == POSITIONS else theirs[name]), name
    assert not torch.equal(run.model.state_dict()["encoder.norm.weight"], mine["norm.weight"])  # then it learns
    before = run.about["pretrained"]
    assert before["folder"] == str(folder) and len(before["sha256"]) == 64
    assert before["perplexity"] == load_run(folder).test.metrics["perplexity"]
    assert run.tokenizer.sha256 == load_run(folder).tokenizer.sha256


def test_without_a_pretrained_run_weights_are_drawn(tmp_path, tiny_glue, pretrained, starts):
    run = fit(tiny_glue(steps=2), tmp_path / "run")
    assert "pretrained" not in run.about
    theirs = read_tensors(pretrained() / "model.safetensors")
    assert starts[0][f"encoder.{POSITIONS}"].shape == theirs[f"encoder.{POSITIONS}"].shape
    assert not torch.equal(starts[0][f"encoder.{POSITIONS}"], theirs[f"encoder.{POSITIONS}"])
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == FILES


def test_the_seed_of_fine_tuning_changes_the_head_not_the_start(tmp_path, tiny_glue, pretrained, starts):
    runs = [fit(tiny_glue(pretrained=str(pretrained()), steps=2, seed=s), tmp_path / str(s)) for s in (0, 1)]
    assert torch.equal(starts[0][f"encoder.{POSITIONS}"], starts[1][f"encoder.{POSITIONS}"])
    assert not torch.equal(starts[0]["head.1.weight"], starts[1]["head.1.weight"])
    assert runs[0].rows != runs[1].rows

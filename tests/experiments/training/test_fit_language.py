"""Pre-training and fine-tuning on small text: weights start where they should and go where they should."""

from functools import partial
from math import exp, inf

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.files import read_json, read_tensors
from sbmt.experiments.training import fit as fit_run
from sbmt.experiments.training.lightning_module import TrainingModule
from sbmt.experiments.training.run import load_run

pytestmark = pytest.mark.usefixtures("language")
fit = partial(fit_run, accelerator="cpu")  # where a run comes out the same to the last bit
FILES = ["config.json", "metrics.csv", "model.safetensors", "result.json", "tokenizer.json"]
POSITIONS = "position_embedding.weight"


@pytest.fixture
def starts(monkeypatch):
    """The weights of every run just before its first step."""
    seen = []

    def keep(module):
        seen.append({name: x.clone() for name, x in module.model.state_dict().items()})

    monkeypatch.setattr(TrainingModule, "on_train_start", keep)
    return seen


def test_perplexity_is_e_to_the_loss_in_every_row(pretrained, language):
    run = load_run(pretrained())
    assert [row["split"] for row in run.rows] == ["train", "train", "dev"] * 3
    for row in run.rows:
        assert row["perplexity"] == pytest.approx(exp(row["loss"]), rel=1e-4)
    assert run.test.metrics == {"perplexity": pytest.approx(exp(run.test.loss))}
    assert (pretrained() / "tokenizer.json").read_bytes() == (language / "corpus" / "tokenizer.json").read_bytes()
    assert run.tokenizer.sha256 == run.about["data"]["tokenizer"] == run.about["data"]["settings"]["tokenizer"]


def test_training_moves_the_embedding_of_tokens_that_no_block_holds(tmp_path, tiny_mlm, starts):
    """As an output layer every row of it learns from every label."""
    config = tiny_mlm(steps=2, weight_decay=0.0)
    run = fit(config, tmp_path / "run")
    unseen = torch.ones(280, dtype=torch.bool)
    unseen[list(range(5)) + config.open_data().feeds["train"].blocks.symbols.tolist()] = False
    name = "encoder.token_embedding.weight"
    moved = (run.model.state_dict()[name] - starts[0][name]).abs().amax(1)
    assert unseen.any() and (moved[unseen] > 0).all()


@pytest.mark.bad_input
def test_an_evaluation_without_a_selected_token_is_refused_before_training(tmp_path, tiny_mlm):
    with pytest.raises(SbmtError, match="a label to be guessed among the examples of dev, got none"):
        fit(tiny_mlm(length=3, batch_size=1, dev_examples=1), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_perplexity_may_overflow(tmp_path, tiny_mlm):
    run = fit(tiny_mlm(embedding_std=1000.0, attention="full"), tmp_path / "run")
    assert run.test.loss > 1000 and run.test.metrics == load_run(tmp_path / "run").test.metrics == {"perplexity": inf}
    assert read_json(tmp_path / "run" / "result.json")["test"]["metrics"] == {"perplexity": None}


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

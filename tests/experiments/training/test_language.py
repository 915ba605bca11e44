"""Tests pre-training and fine-tuning on small text: initial weights, reports, and invalid starts."""

import json
import shutil
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from sbmt import SbmtError
from sbmt.experiments.data.tokenizer import train_tokenizer
from sbmt.experiments.files import read_tensors
from sbmt.experiments.training import fit as fit_run
from sbmt.experiments.training.f1 import glue_f1
from sbmt.experiments.training.lightning_module import TrainingModule
from sbmt.experiments.training.run import load_run
from tests.experiments.training.tiny_language import N_MISMATCHED, N_TEST, VOCABULARY
from tests.layers.inputs import seeded

pytestmark = pytest.mark.usefixtures("caches")
fit = partial(fit_run, accelerator="cpu")  # a device on which a run is reproducible bit by bit
OTHER_TOKENIZER = train_tokenizer(["the quick brown fox jumps over lazy dogs\n"], VOCABULARY)
POSITIONS = "position_embedding.weight"


@pytest.mark.parametrize("length", [16, 9])
def test_fine_tuning_starts_from_the_pretrained_encoder(monkeypatch, tiny_glue, pretrained, length):
    """The first rows of a longer position table are loaded."""
    folder, starts = pretrained, []
    monkeypatch.setattr(TrainingModule, "on_train_start", lambda m: starts.append(deepcopy(m.model.state_dict())))
    run = fit(tiny_glue(pretrained=str(folder), steps=2, length=length))
    theirs = {n.removeprefix("encoder."): x for n, x in read_tensors(folder / "model.safetensors").items()}
    mine = {n.removeprefix("encoder."): x for n, x in starts[0].items() if n.startswith("encoder.")}
    assert set(mine) < set(theirs) and mine[POSITIONS].shape[0] == length
    for name, weight in mine.items():
        assert torch.equal(weight, theirs[name][:length] if name == POSITIONS else theirs[name]), name
    assert not torch.equal(run.model.state_dict()["encoder.norm.weight"], mine["norm.weight"])  # then it learns
    assert run.about["pretrained"]["perplexity"] == load_run(folder).test.metrics["perplexity"]
    assert run.tokenizer.sha256 == load_run(folder).tokenizer.sha256


def f1_of_class(predictions, labels, c):
    """Computes the usual F1 of one class against all others."""
    pairs = list(zip(predictions, labels, strict=True))
    hits = sum(p == y == c for p, y in pairs)
    errors = sum((p == c) != (y == c) for p, y in pairs)
    return 2 * hits / (2 * hits + errors) if hits else 0.0


def f1_by_hand(predictions, labels, n_classes):
    """The pipeline's F1 is that of class 1 after removing examples with class 2 as label or prediction."""
    present = sorted({*predictions, *labels})
    kept = [(p, y) for p, y in zip(predictions, labels, strict=True) if p != 2 and y != 2]
    found = {
        "macro_f1": sum(f1_of_class(predictions, labels, c) for c in present) / len(present),
        "pipeline_f1": f1_of_class([p for p, _ in kept], [y for _, y in kept], 1),
    }
    return found | ({"f1": f1_of_class(predictions, labels, 1)} if n_classes == 2 else {})


@pytest.mark.parametrize("n_classes", [2, 3])
def test_metrics_equal_counting_by_hand(n_classes):
    labels, guesses = (torch.randint(n_classes, (200,), generator=seeded(seed)) for seed in (0, 100))
    predictions = guesses.where(torch.rand(200, generator=seeded(200)) < 0.4, labels)
    found = glue_f1(predictions, labels, n_classes)
    assert found == pytest.approx(f1_by_hand(predictions.tolist(), labels.tolist(), n_classes), abs=1e-6)


@pytest.mark.parametrize("task", ["sst2", "mnli"])
def test_scores_are_those_of_single_predictions(tiny_glue, task):
    """Predicts one example at a time, with attention that draws nothing. Only MNLI has a second test split."""
    run, n_classes = fit(tiny_glue(task, attention="full")), 2 if task == "sst2" else 3
    data, model = run.config.open_data(), run.model.eval()
    commonest = int(np.bincount(data.splits["train"].labels).argmax())
    assert ("mismatched" in run.about) == (task == "mnli")
    results = {"test": run.about | {"accuracy": run.test.accuracy, "metrics": run.test.metrics}}
    results |= {"mismatched": run.about["mismatched"]} if task == "mnli" else {}
    for name, n in {"test": N_TEST, "mismatched": N_MISMATCHED}.items():
        if name not in results:
            continue
        feed, found = data.feeds[name], results[name]
        batches = [feed.batch(np.array([i]), slice(0, 1), 0) for i in range(len(feed))]
        with torch.no_grad():
            predicted = [int(model(batch.tokens, batch.mask).values.argmax()) for batch in batches]
        labels = [int(batch.labels) for batch in batches]
        assert len(labels) == found["n_test"] == n
        assert found["accuracy"] == pytest.approx(np.mean(np.array(predicted) == labels))
        assert found["metrics"] == pytest.approx(f1_by_hand(predicted, labels, n_classes), abs=1e-6)
        assert found["chance"] == pytest.approx(labels.count(commonest) / n)
        wilson = binomtest(round(found["accuracy"] * n), n).proportion_ci(0.95, "wilson")
        assert found["interval"] == pytest.approx([wilson.low, wilson.high], abs=1e-4)


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("result.json", None, "a finished run in"),
        ("model.safetensors", None, "model.safetensors"),
        ("config.json", json.dumps({"task": "sst2"}), "a pre-training run"),
        ("tokenizer.json", OTHER_TOKENIZER.json, "tokeniser"),
    ],
)
def test_folders_that_are_no_finished_pretraining_are_refused(tmp_path, tiny_glue, pretrained, file, content, words):
    shutil.copytree(pretrained, tmp_path / "from")
    (tmp_path / "from" / file).unlink()
    if content is not None:
        (tmp_path / "from" / file).write_text(content)
    with pytest.raises(SbmtError, match=words):
        fit(tiny_glue(pretrained=str(tmp_path / "from")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.bad_input
@pytest.mark.parametrize("changes", [{"d_model": 16}, {"length": 20}, {"attention": "full"}])
def test_another_network_than_the_pretrained_one_is_refused(tmp_path, tiny_glue, pretrained, changes):
    """An attention mechanism without parameters would leave some weights unread."""
    with pytest.raises(SbmtError, match="the network of the run in"):
        fit(tiny_glue(pretrained=str(pretrained), **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()

"""What runs on GLUE report, counted again from single predictions; and starts that are refused."""

import json
import shutil
from functools import partial

import numpy as np
import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.data.prepared import open_prepared
from sbmt.experiments.data.tokenizer import train_tokenizer
from sbmt.experiments.training import fit as fit_run
from tests.experiments.training.test_f1 import f1_of_class, macro_f1, pipeline_f1
from tests.experiments.training.tiny_language import N_MISMATCHED, N_TEST, N_TRAIN, VOCABULARY

pytestmark = pytest.mark.usefixtures("language")
fit = partial(fit_run, accelerator="cpu")


def metrics_by_hand(predicted, labels, n_classes):
    found = {"macro_f1": macro_f1(predicted, labels), "pipeline_f1": pipeline_f1(predicted, labels)}
    return found | ({"f1": f1_of_class(predicted, labels, 1)} if n_classes == 2 else {})


def predictions(run, name):
    """Example by example, of a model whose attention draws nothing."""
    feed, model = run.config.open_data().feeds[name], run.model.eval()
    batches = [feed.batch(np.array([i]), slice(0, 1), 0) for i in range(len(feed))]
    with torch.no_grad():
        found = [int(model(batch.tokens, batch.mask).values.argmax()) for batch in batches]
    return found, [int(batch.labels) for batch in batches]


@pytest.fixture(scope="module")
def train(language_cache, tiny_glue, tmp_path_factory):
    """Trains for six steps, once per task."""
    runs = {}

    def get(task):
        if task not in runs:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SBMT_CACHE", str(language_cache))
                runs[task] = fit(tiny_glue(task, attention="full"), tmp_path_factory.mktemp("run") / task)
        return runs[task]

    return get


@pytest.mark.parametrize("task", ["sst2", "mnli"])
def test_scores_are_those_of_single_predictions(train, task):
    run = train(task)
    predicted, labels = predictions(run, "test")
    n_classes = 2 if task == "sst2" else 3
    assert len(labels) == run.about["n_test"] == N_TEST
    assert run.test.accuracy == pytest.approx(np.mean(np.array(predicted) == labels))
    assert run.test.metrics == pytest.approx(metrics_by_hand(predicted, labels, n_classes), abs=1e-6)
    commonest = int(np.bincount(run.config.open_data().labels["train"]).argmax())
    assert task == "mnli" or commonest != np.bincount(labels).argmax()
    constant = metrics_by_hand([commonest] * N_TEST, labels, n_classes)
    assert run.about["chance"] == pytest.approx(labels.count(commonest) / N_TEST)
    assert run.about["chance_metrics"] == pytest.approx(constant, abs=1e-6)
    low, high = run.about["interval"]
    assert low <= run.test.accuracy <= high
    dev = [row for row in run.rows if row["split"] == "dev"]
    assert all(set(row) >= set(run.test.metrics) for row in dev)


def test_mnli_has_a_second_test(train):
    """Only it: the mismatched dev table."""
    run = train("mnli")
    other = run.about["mismatched"]
    predicted, labels = predictions(run, "mismatched")
    assert other["n_test"] == len(labels) == N_MISMATCHED
    assert other["accuracy"] == pytest.approx(np.mean(np.array(predicted) == labels))
    assert other["metrics"] == pytest.approx(metrics_by_hand(predicted, labels, 3), abs=1e-6)
    assert {"interval", "chance", "chance_metrics"} <= set(other)
    assert "mismatched" not in train("sst2").about


def copy_of(folder, place, **changes):
    """A copy of a run with other content in some files; None removes one."""
    shutil.copytree(folder, place)
    for file, content in changes.items():
        path = next(path for path in place.iterdir() if path.stem == file)
        path.unlink() if content is None else path.write_text(content)
    return place


@pytest.mark.bad_input
def test_folders_that_are_no_finished_pretraining_are_refused(tmp_path, tiny_glue, pretrained, language):
    other = train_tokenizer(["the quick brown fox jumps over lazy dogs\n"], VOCABULARY)
    assert other.vocab_size == VOCABULARY
    result = json.loads((pretrained() / "result.json").read_text())
    wrong = {
        "nowhere": (tmp_path / "nowhere", "a finished pre-training run"),
        "unfinished": (copy_of(pretrained(), tmp_path / "a", result=None), "a finished pre-training run"),
        "no weights": (copy_of(pretrained(), tmp_path / "b", model=None), "model.safetensors"),
        "no tokeniser": (copy_of(pretrained(), tmp_path / "c", tokenizer=None), "tokenizer.json"),
        "another": (copy_of(pretrained(), tmp_path / "e", tokenizer=other.json), "tokeniser"),
        "no perplexity": (copy_of(pretrained(), tmp_path / "h", result=json.dumps(result | {"test": {}})), "result"),
    }
    for name, (folder, words) in wrong.items():
        with pytest.raises(SbmtError, match=words) as told:
            fit(tiny_glue(pretrained=str(folder)), tmp_path / "run")
        assert "\n" not in str(told.value), name
    assert not (tmp_path / "run").exists()
    assert len(open_prepared(language / "sst2").splits["train"]) == N_TRAIN


@pytest.mark.bad_input
@pytest.mark.parametrize("changes", [{"d_model": 16}, {"length": 20}, {"attention": "full"}])
def test_another_network_than_the_pretrained_one_is_refused(tmp_path, tiny_glue, pretrained, changes):
    """Fewer layers, or an attention without weights of its own, would leave some unread."""
    with pytest.raises(SbmtError, match="the network of the run in .*got another: .*leave out the options") as told:
        fit(tiny_glue(pretrained=str(pretrained()), **changes), tmp_path / "run")
    assert "\n" not in str(told.value) and not (tmp_path / "run").exists()

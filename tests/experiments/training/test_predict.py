"""Answers to rows without labels: those of single rows, in their order."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.data.glue.files import GlueRows, read_glue
from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.evaluate import predict_labels, submission
from sbmt.experiments.training.run import Run, Scores, load_run
from tests.experiments.data.glue.layout import table
from tests.experiments.training.tiny_language import sentences

pytestmark = pytest.mark.usefixtures("language")
N = 70  # more than two batches


@pytest.fixture
def make(tiny_glue):
    """A run whose weights are those of the start: large ones, so that answers differ."""

    def build(task="sst2", **changes):
        config = tiny_glue(task, length=24, **changes)
        data = config.open_data()
        model = build_model(config, data.info)
        for layer in (1, -1):
            torch.nn.init.normal_(model.head[layer].weight, std=3)
        return Run(config, model, [], Scores(0.7, 0.5, 0.25, 0.25, []), {}, 1.0, data.tokenizer)

    return build


def rows_of(n_texts, n=N):
    columns = [[*sentences(n - 1, [3, column], most=14), ""] for column in range(n_texts)]  # one text is empty
    return GlueRows(tuple(zip(*columns, strict=True)), None, tuple(map(str, range(n))), 0, n_texts)


@torch.no_grad()
@pytest.mark.parametrize("task", ["sst2", "mnli"])
def test_answers_are_those_of_single_rows(make, task):
    """One row after the other, without padding; the run stays in training mode."""
    run = make(task, attention="full", dropout=0.5)
    rows = rows_of(1 if task == "sst2" else 2)
    run.model.train()
    found = predict_labels(run, rows)
    assert found.dtype == np.int64 and run.model.training
    run.model.eval()
    expected = []
    for texts in rows.texts:
        second = None if task == "sst2" else [texts[1]]
        (ids,), _ = run.tokenizer.pack([texts[0]], second, 24)
        logits = run.model(torch.from_numpy(ids.astype(np.int64))[None]).values
        expected.append(int(logits.argmax()))
    assert found.tolist() == expected
    assert len(set(expected)) > 1


def test_the_seed_decides_the_masks(make):
    run, rows = make(attention="random_mask", mask_density=0.3, window=0), rows_of(1)
    first, again, other = (predict_labels(run, rows, seed=seed) for seed in (0, 0, 1))
    assert first.tolist() == again.tolist() != other.tolist()
    many = [predict_labels(run, rows, n_samples=10, seed=seed) for seed in (0, 1)]
    assert np.mean(many[0] != many[1]) < np.mean(first != other)  # the mean of many masks depends less on which


def test_a_submission_has_a_line_per_row(tmp_path):
    rows = [("good film", "a film"), ("bad", "not bad"), ("$5", "<s>")]
    (tmp_path / "test.tsv").write_bytes(table("mnli", rows, None))
    read = read_glue(tmp_path / "test.tsv", "mnli", is_labelled=False)
    assert read.texts == tuple(rows)
    lines = submission("mnli", replace(read, index=("5", "7", "6")), np.array([0, 2, 1])).splitlines()
    assert lines == ["index\tprediction", "5\tcontradiction", "7\tentailment", "6\tneutral"]
    qqp = submission("qqp", rows_of(2, 2), np.array([1, 0]))
    assert qqp == "index\tprediction\n0\t1\n1\t0\n"  # as GLUE writes labels, not as they are called here


def test_a_skipped_row_keeps_its_number_in_a_submission(tmp_path):
    (tmp_path / "test.tsv").write_text("question1\tquestion2\na\tb\ntoo short\nc\td\n")
    rows = read_glue(tmp_path / "test.tsv", "qqp", is_labelled=False)
    assert (len(rows), rows.n_skipped) == (2, 1)
    assert submission("qqp", rows, np.array([1, 0])) == "index\tprediction\n0\t1\n2\t0\n"


@pytest.mark.bad_input
def test_what_cannot_be_answered_is_told(make, pretrained):
    run = make()
    for other, rows, words in (
        (run, rows_of(2), "1 texts per row for sst2"),
        (make("mnli"), rows_of(1), "2 texts per row for mnli"),
        (load_run(pretrained()), rows_of(1), "a run of sbmt train glue"),
    ):
        with pytest.raises(SbmtError, match=words):
            predict_labels(other, rows)
    with pytest.raises(SbmtError, match="n_samples ≥ 1"):
        predict_labels(run, rows_of(1), n_samples=0)

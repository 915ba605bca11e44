"""Tests answers to single examples, scores computed by hand, and rows without labels."""

from math import exp

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from sbmt import SbmtError
from sbmt.experiments.data.glue import GlueRows
from sbmt.experiments.data.prepared import prepare
from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.data import BatchStream, example_feed
from sbmt.experiments.training.evaluate import evaluate, predict_labels
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.run import Run, Scores
from tests.experiments.data.toy import toy_examples, toy_source


@pytest.fixture
def train(caches, tiny):
    """Trains for two steps."""
    return lambda task="listops": fit(tiny(task, steps=2, test_examples=9), accelerator="cpu")


@pytest.mark.parametrize("task", ["listops", "retrieval"])
def test_numbers_are_those_of_single_examples(train, task):
    run = train(task)
    run.model.train()
    found = evaluate(run, n_samples=2, seed=4)
    assert run.model.training  # as after training
    prepared = run.config.open_prepared()
    feed = example_feed(prepared.splits["test"], run.config.encoding(1))
    (batch,) = BatchStream(feed, feed.in_order(16, None))
    generator = torch.Generator().manual_seed(4)
    run.model.eval()
    with torch.no_grad():
        outputs = [run.model(batch.tokens, batch.mask, generator=generator) for _ in range(2)]
    logits = (outputs[0].values + outputs[1].values) / 2
    assert found.labels.tolist() == prepared.splits["test"].labels.tolist()
    assert torch.equal(found.predicted, logits.argmax(1))
    for i in range(13):
        loss = cross_entropy(logits[i : i + 1], batch.labels[i : i + 1]).item()
        assert found.losses[i].item() == pytest.approx(loss, rel=1e-5)
        for layer in range(2):
            documents = [2 * i, 2 * i + 1] if task == "retrieval" else [i]
            drawn = [output.attention[layer].density[d] for output in outputs for d in documents]
            torch.testing.assert_close(found.example_densities[i, layer], torch.stack(drawn).mean(0))
    assert found.n_examples == 13
    torch.testing.assert_close(torch.tensor(found.densities), found.example_densities.mean(0))
    rates = [output.attention[layer].expected_density.mean() for output in outputs for layer in range(2)]
    assert found.expected_density == pytest.approx(float(sum(rates)) / 4, rel=1e-5)
    assert found.density == pytest.approx(float(found.example_densities.mean()), rel=1e-5)
    assert found.accuracy == np.mean(found.predicted.numpy() == found.labels.numpy())
    assert found.loss == pytest.approx(found.losses.mean().item())
    few, more = (evaluate(run, n_examples).example_densities for n_examples in (5, 10**6))
    torch.testing.assert_close(few, more[:5])
    assert len(more) == 13


@pytest.mark.bad_input
def test_other_examples_than_those_trained_on_are_refused(train, tmp_path, monkeypatch):
    run = train()
    prepare(toy_source(make=lambda task, n, i: toy_examples(task, n, i + 7)), tmp_path)
    monkeypatch.setenv("SBMT_CACHE", str(tmp_path))
    with pytest.raises(SbmtError, match="examples with checksum"):
        evaluate(run)
    for wrong in ({"n_samples": 0}, {"n_examples": 0}, {"seed": -1}):
        with pytest.raises(SbmtError, match=next(iter(wrong))):
            evaluate(run, **wrong)


@pytest.mark.usefixtures("caches")
def test_a_language_model_without_masks_agrees_with_its_own_test(tmp_path, tiny_mlm):
    """With batches of 16, as in training, the same tokens are masked."""
    run = fit(tiny_mlm(attention="full", batch_size=16, steps=2), tmp_path / "run", accelerator="cpu")
    found = evaluate(run)
    assert found.accuracy == pytest.approx(run.test.accuracy) and found.loss == pytest.approx(run.test.loss, rel=1e-5)
    assert found.metrics == {"perplexity": pytest.approx(exp(run.test.loss), rel=1e-4)}
    (row,) = [row for row in run.rows if row["split"] == "dev"]
    assert row["perplexity"] == pytest.approx(exp(row["loss"]), rel=1e-4)
    assert (found.density, found.expected_density) == (1.0, 1.0) and (found.example_densities == 1.0).all()


@pytest.mark.usefixtures("caches")
@pytest.mark.parametrize("task", ["sst2", "mnli"])
def test_answers_to_a_table_are_those_of_the_evaluation(tiny_glue, task):
    """Labels are predicted in batches of 32, with different padding."""
    config = tiny_glue(task, attention="full", dropout=0.5)
    data = config.open_data()
    model = build_model(config, data.info)
    for layer in (1, -1):  # large weights, so that answers differ
        torch.nn.init.normal_(model.head[layer].weight, std=3)
    run = Run(config, model, [], Scores(0.7, 0.5, 0.25, 0.25, []), {"data": data.info}, 1.0, data.tokenizer)
    split = data.splits["test"]
    texts = [tuple(text.tobytes().decode() for text in split.documents(i)) for i in range(len(split))] * 4
    rows = GlueRows(tuple(texts), None, tuple(map(str, range(len(texts)))), 0, 0)
    found = predict_labels(run, rows)
    assert found == evaluate(run).predicted.tolist() * 4
    assert len(set(found)) > 1

"""Single test examples, judged by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from sbmt import SbmtError
from sbmt.experiments.data.prepared import open_prepared, prepare
from sbmt.experiments.training.data import BatchStream, ExampleFeed, numbered
from sbmt.experiments.training.evaluate import evaluate
from sbmt.experiments.training.fit import fit
from tests.experiments.data.toy import toy_examples, toy_source


@pytest.fixture(scope="module")
def train(toy_cache, tiny, tmp_path_factory):
    """Trains for two steps, once per setting."""
    runs = {}

    def get(task="listops", attention="sbm"):
        if (task, attention) not in runs:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SBMT_CACHE", str(toy_cache))
                config = tiny(task, attention=attention, steps=2, test_examples=9)
                runs[task, attention] = fit(config, tmp_path_factory.mktemp("run") / "run", accelerator="cpu")
        return runs[task, attention]

    return get


@pytest.mark.usefixtures("toys")
@pytest.mark.parametrize(("task", "attention"), [("listops", "sbm"), ("listops", "full"), ("retrieval", "sbm")])
def test_numbers_are_those_of_single_examples(train, task, attention):
    run = train(task, attention)
    found = evaluate(run, n_samples=2, seed=4)
    prepared = run.config.open_prepared()
    (batch,) = BatchStream(ExampleFeed(prepared.splits["test"], run.config.encoding(1)), numbered(13, 16))
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
            torch.testing.assert_close(found.densities[i, layer], torch.stack(drawn).mean(0))
    assert found.n_examples == 13
    assert found.accuracy == np.mean(found.predicted.numpy() == found.labels.numpy())
    assert found.loss == pytest.approx(found.losses.mean().item())
    assert found.density == pytest.approx(found.densities.mean().item())
    assert found.extras["weight"].tolist() == prepared.splits["test"].extras["weight"].tolist()


@pytest.mark.usefixtures("toys")
def test_without_masks_it_agrees_with_the_runs_own_test(train):
    run = train(attention="full")
    assert run.about["n_test"] == 9
    found = evaluate(run, 9)
    assert found.accuracy == pytest.approx(run.test.accuracy) and found.loss == pytest.approx(run.test.loss, rel=1e-5)
    assert found.n_examples == len(found.extras["weight"]) == 9
    again = evaluate(run, 9, n_samples=3, seed=1)
    torch.testing.assert_close(again.losses, found.losses)


@pytest.mark.usefixtures("toys")
def test_the_seed_decides_the_masks_and_few_are_the_first(train):
    run = train()
    run.model.train()
    first, again, other = (evaluate(run, seed=seed) for seed in (0, 0, 1))
    assert run.model.training  # as before
    assert torch.equal(first.densities, again.densities) and torch.equal(first.losses, again.losses)
    assert not torch.equal(first.densities, other.densities)
    few = evaluate(run, 5)
    torch.testing.assert_close(few.densities, first.densities[:5])
    torch.testing.assert_close(few.losses, first.losses[:5])
    assert evaluate(run, 10**6).n_examples == 13


@pytest.mark.bad_input
def test_other_examples_than_those_trained_on_are_refused(train, toys, tmp_path):
    run = train()
    other = prepare(toy_source(make=lambda task, n, i: toy_examples(task, n, i + 7)), tmp_path)
    with pytest.raises(SbmtError, match="examples with checksum"):
        evaluate(run, prepared=other)
    with pytest.raises(SbmtError, match="examples of listops"):
        evaluate(replace(run, config=replace(run.config, data="toy-text")))
    for wrong in ({"n_samples": 0}, {"n_examples": 0}):
        with pytest.raises(SbmtError, match="≥ 1"):
            evaluate(run, **wrong, prepared=open_prepared(toys / "toy-listops"))

"""Masked language models on test blocks, judged as their own runs judge them, and by hand."""

from dataclasses import replace
from math import exp

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training.data import BatchStream
from sbmt.experiments.training.evaluate import evaluate
from sbmt.experiments.training.fit import fit
from sbmt.experiments.training.run import load_run

pytestmark = pytest.mark.usefixtures("language")


def test_without_masks_it_agrees_with_the_runs_own_test(tmp_path, tiny_mlm):
    """In batches of 16, as here: then the same tokens are hidden."""
    run = fit(tiny_mlm(attention="full", batch_size=16, steps=2), tmp_path / "run", accelerator="cpu")
    found = evaluate(run)
    assert found.accuracy == pytest.approx(run.test.accuracy) and found.loss == pytest.approx(run.test.loss, rel=1e-5)
    assert found.metrics == {"perplexity": pytest.approx(exp(run.test.loss), rel=1e-4)}
    assert (found.density, found.expected_density) == (1.0, 1.0) and (found.densities == 1.0).all()
    assert evaluate(run, n_samples=3, seed=1).loss == pytest.approx(found.loss, rel=1e-5)


@torch.no_grad()
def test_numbers_are_those_of_the_mean_logits(pretrained):
    run = load_run(pretrained())
    found = evaluate(run, 7, n_samples=2, seed=4)
    feed = run.config.open_data().feeds["test"]
    (batch,) = BatchStream(feed, feed.once(16, 7))
    generator = torch.Generator().manual_seed(4)
    run.model.eval()
    outputs = [run.model(batch.tokens, batch.mask, selected=batch.selected, generator=generator) for _ in range(2)]
    probabilities = (outputs[0].values + outputs[1].values).div(2).softmax(-1)
    losses = [-probabilities[i, label].log().item() for i, label in enumerate(batch.labels.tolist())]
    rights = [int(probabilities[i].argmax()) == label for i, label in enumerate(batch.labels.tolist())]
    assert found.loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found.accuracy == sum(rights) / len(rights)
    for layer in range(2):
        drawn = torch.stack([output.attention[layer].density for output in outputs]).mean(0)
        torch.testing.assert_close(found.densities[:, layer], drawn)
    assert found.density == pytest.approx(found.densities.mean().item())
    assert 0 < found.expected_density < 1
    again, other = (evaluate(run, 7, n_samples=2, seed=seed) for seed in (4, 5))
    assert torch.equal(again.losses, found.losses) and not torch.equal(other.losses, found.losses)


@pytest.mark.bad_input
def test_other_text_is_refused(pretrained):
    run = load_run(pretrained())
    other = replace(run, about=run.about | {"data": run.about["data"] | {"sha256": "0" * 64}})
    with pytest.raises(SbmtError, match="examples with checksum 000000000000"):
        evaluate(other)
    for wrong in ({"n_samples": 0}, {"n_examples": 0}):
        with pytest.raises(SbmtError, match="≥ 1"):
            evaluate(run, **wrong)

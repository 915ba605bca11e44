"""Tests the tasks and reports of causal language models, and the attention mechanisms that they accept."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.training import LanguageModelConfig, MultiQueryConfig, build_model
from sbmt.experiments.training import fit as fit_run
from sbmt.experiments.training.run import load_run
from tests.experiments.training.tiny_language import NETWORK, TRAINING

fit = partial(fit_run, accelerator="cpu")


def language_model(**changes):
    options = {"option_defaults": (*NETWORK["option_defaults"], ("causal", True))}
    return LanguageModelConfig(**NETWORK | TRAINING | options | {"data": "corpus"}).override(**changes)


def test_every_token_but_the_first_is_asked_for(caches):
    data = language_model().open_data()
    feed, blocks = data.feeds["train"], data.blocks["train"]
    batch = feed.batch(np.array([0, len(feed) - 1]), slice(0, 2), 0)  # the last block is padded
    assert torch.equal(batch.selected[:, :-1], batch.mask[:, 1:]) and not batch.selected[:, -1].any()
    following = batch.tokens.roll(-1, 1)[batch.selected]
    assert torch.equal(batch.labels, following) and batch.weight == 1
    parts = [feed.batch(np.array([0, len(feed) - 1]), slice(i, i + 1), 0) for i in (0, 1)]
    assert torch.equal(torch.cat([part.labels for part in parts]), batch.labels)
    for part in parts:
        assert part.weight / len(parts) == pytest.approx(len(part.labels) / len(batch.labels))
    assert blocks.start_id not in batch.labels


@pytest.mark.parametrize("options", [{"attention": "full"}, {"attention": "linear"}, {"preset": "fitted"}])
def test_a_language_model_is_trained_and_loaded(caches, tmp_path, options):
    run = fit(language_model(**options), tmp_path / "run")
    assert load_run(tmp_path / "run").test == run.test


def test_a_network_learns_to_answer_a_query():
    config = MultiQueryConfig(
        attention="full", length=8, n_pairs=1, vocab_size=8, steps=120, learning_rate=1e-2, n_layers=2
    )
    assert fit(config).test.accuracy > 0.6  # chance is 0.25


def test_training_goes_on_from_the_weights_of_a_run_on_shorter_sequences(tmp_path):
    sizes = {"attention": "full", "n_pairs": 1, "vocab_size": 8, "test_sequences": 8}
    first = fit(MultiQueryConfig(length=8, steps=2, **sizes), tmp_path / "run")
    longer = MultiQueryConfig(length=16, steps=1, learning_rate=1e-30, start=str(tmp_path / "run"), **sizes)
    found, wanted = fit(longer).model.state_dict(), first.model.state_dict()
    assert all(torch.allclose(found[name], weight, atol=1e-12) for name, weight in wanted.items())
    with pytest.raises(SbmtError, match="size mismatch"):
        fit(replace(longer, vocab_size=16))
    with pytest.raises(SbmtError, match="nowhere"):
        fit(replace(longer, start="nowhere"))


def test_attentions_that_are_not_causal_are_refused():
    with pytest.raises(SbmtError, match="PerformerAttention in the encoder is not causal"):
        build_model(MultiQueryConfig(attention="performer"), {})
    with pytest.raises(SbmtError, match="length must be at least 4"):
        MultiQueryConfig(n_pairs=17)

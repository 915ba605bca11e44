"""Runs on associative recall: what they read, that they learn, and evaluations with more distractors."""

from dataclasses import replace

import pytest
import torch

from sbmt.experiments.data.recall import sample_recall
from sbmt.experiments.training import RecallConfig, build_model, evaluate, fit
from tests.experiments.training.tiny_language import SMALL_OPTIONS

SIZES = dict(n_pairs=3, n_queries=4, n_distractors=5, n_keys=16, n_values=8)
TINY = RecallConfig(
    **SIZES,
    batch_size=4,
    steps=3,
    d_model=8,
    d_hidden=8,
    test_sequences=16,
    attention="full",
    option_defaults=SMALL_OPTIONS,
)


def test_only_queries_are_judged():
    """Loss and accuracy by hand, query by query."""
    run = fit(TINY)
    tokens, answers = sample_recall(10, **SIZES, generator=torch.Generator().manual_seed(1_000_003 + 5))
    log_p = run.model.eval()(tokens).values.log_softmax(-1).detach()
    rights, losses = [], []
    for i, row in enumerate(answers.tolist()):
        for j, answer in enumerate(row):
            if answer >= 0:
                rights.append(int(log_p[i, j].argmax()) == answer)
                losses.append(-float(log_p[i, j, answer]))
    found = evaluate(run, 10, seed=5)
    assert len(rights) == 40 == len(found.labels)
    assert found.accuracy == sum(rights) / 40 and found.loss == pytest.approx(sum(losses) / 40, rel=1e-5)


def test_full_attention_learns_to_recall():
    sizes = dict(n_pairs=4, n_queries=8, n_distractors=4, permutation=True, n_keys=12, n_values=8)
    run = fit(RecallConfig(**sizes, attention="full", batch_size=32, steps=250, d_model=32, d_hidden=32))
    assert run.test.accuracy > 0.99
    assert evaluate(replace(run, config=replace(run.config, n_distractors=40)), 64).accuracy > 0.9
    other = replace(run, config=replace(run.config, permutation=False))
    assert evaluate(other, 64).accuracy < 0.5  # what it has learned is which keys belong together


def test_the_length_does_not_change_the_network():
    weights = [build_model(TINY.override(n_distractors=n)).state_dict() for n in (0, 5, 500)]
    assert all(torch.equal(weights[0][name], other[name]) for other in weights for name in weights[0])

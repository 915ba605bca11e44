"""Comparisons of networks answer by answer and block by block, with an uncertainty that counts what is independent."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from results.measure import paired_blocks
from results.measure.common import difference
from results.measure.paired import compared
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.training.data import Feed

draw = np.random.default_rng(1)


def test_the_mean_and_its_interval():
    one, other = draw.normal(size=(2, 3, 50))
    found = difference(one, other)
    assert found["mean"] == pytest.approx((one - other).mean())
    assert found["low"] < found["mean"] < found["high"] and (found["n_seeds"], found["n_items"]) == (3, 50)
    assert found == difference(one, other)
    same = difference(one, one)
    assert (same["mean"], same["error"], same["low"], same["high"]) == (0, 0, 0, 0)


def test_the_error_counts_what_is_independent():
    """One seed of 400 items, three seeds that agree on every item, and 20 seeds whose items agree."""
    items, seeds = draw.normal(size=(1, 400)), draw.normal(size=(20, 1))
    for ahead, n in ((items, 400), (np.repeat(items, 3, 0), 400), (np.repeat(seeds, 500, 1), 20)):
        assert difference(ahead, 0 * ahead)["error"] == pytest.approx(ahead.std() / n**0.5, rel=0.1)


@pytest.mark.statistical(share=0.05)
def test_intervals_cover_the_truth_where_seeds_and_items_differ():
    """Of 200 experiments with effects of seeds and of items; those of a plain error over all answers cover half."""
    covered = plain = 0
    for _ in range(200):
        ahead = draw.normal(size=(12, 1)) / 3 + draw.normal(size=(1, 80)) + draw.normal(size=(12, 80))
        found = difference(ahead, 0 * ahead)
        covered += found["low"] < 0 < found["high"]
        plain += abs(ahead.mean()) < 1.96 * ahead.std() / ahead.size**0.5
    assert covered >= 180 > 130 > plain


def means(found):
    return {kind: {trial: round(one["mean"], 9) for trial, one in trials.items()} for kind, trials in found.items()}


def test_answers_are_held_against_full_attention_random_masks_and_the_window():
    right = {"full": [1, 1, 1, 1], "fitted-2": [1, 1, 1, 0], "random-2": [1, 0, 0, 0], "window": [0, 0, 0, 0]}
    assert means(compared({trial: [answers] for trial, answers in right.items()})) == {
        "lost": {"fitted-2": 0.25, "random-2": 0.75, "window": 1.0},
        "ahead": {"fitted-2": 0.5},
        "ahead_of_window": {"fitted-2": 0.75},
    }


def test_behind_means_a_larger_loss():
    loss = {"full": [4, 4, 4, 4], "window": [3, 3, 3, 5], "fitted-near": [5, 5, 5, 6], "random-near": [4, 5, 4, 6]}
    assert means(paired_blocks.compared({trial: [losses] for trial, losses in loss.items()})) == {
        "full": {"window": -0.5, "fitted-near": 1.25, "random-near": 0.75},
        "window": {"full": 0.5, "fitted-near": 1.75, "random-near": 1.25},
        "random": {"fitted-near": 0.5},
    }


SELECTED = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 1, 0]]).bool()


def make_batch(examples, part, number):
    here = SELECTED[examples[part]]
    tokens = torch.zeros(here.shape).long()
    return Batch(tokens, torch.ones_like(here), tokens[here], selected=here)


def test_a_block_counts_once_however_many_of_its_tokens_are_hidden(monkeypatch):
    losses = torch.tensor([1.0, 3.0, 5.0, 2.0, 2.0, 8.0])
    drawn = {seed: SimpleNamespace(losses=losses + 0.5 * seed) for seed in range(4)}
    monkeypatch.setattr(paired_blocks, "evaluate", lambda run, n_examples, seed: drawn[seed])
    data = SimpleNamespace(feeds={"test": Feed(len(SELECTED), make_batch)})
    config = SimpleNamespace(evaluation_batch=2, n_examples=lambda split: None, open_data=lambda tokenizer: data)
    found = paired_blocks.loss_by_block(SimpleNamespace(config=config, tokenizer=None))
    np.testing.assert_allclose(found, [2.75, 5.75, 4.75])  # three quarters of a nat is the mean over draws

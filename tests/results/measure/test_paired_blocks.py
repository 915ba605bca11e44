"""Comparisons of masked language models block by block."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from results.measure import paired_blocks
from results.measure.paired_blocks import compared, loss_by_block
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.training.data import Feed

SELECTED = torch.tensor([[1, 0, 0, 1], [0, 1, 0, 0], [1, 1, 1, 0]]).bool()


class _Feed(Feed):
    def __len__(self):
        return len(SELECTED)

    def batch(self, examples, part, number):
        here = SELECTED[examples[part]]
        tokens = torch.zeros(here.shape).long()
        return Batch(tokens, torch.ones_like(here), tokens[here], selected=here)


def test_a_block_counts_once_however_many_of_its_tokens_are_hidden(monkeypatch):
    losses = torch.tensor([1.0, 3.0, 5.0, 2.0, 2.0, 8.0])
    drawn = {seed: SimpleNamespace(losses=losses + 0.5 * seed) for seed in range(4)}
    monkeypatch.setattr(paired_blocks, "evaluate", lambda run, n_examples, seed: drawn[seed])
    data = SimpleNamespace(feeds={"test": _Feed()})
    config = SimpleNamespace(evaluation_batch=2, n_examples=lambda split: None, open_data=lambda tokenizer: data)
    found = loss_by_block(SimpleNamespace(config=config, tokenizer=None))
    np.testing.assert_allclose(found, [2.75, 5.75, 4.75])  # three quarters of a nat is the mean over draws


def test_behind_means_a_larger_loss():
    loss = {"full": [4, 4, 4, 4], "window": [3, 3, 3, 5], "fitted-near": [5, 5, 5, 6], "random-near": [4, 5, 4, 6]}
    found = compared({trial: torch.tensor(losses).double() for trial, losses in loss.items()})
    behind = {other: {trial: one["mean"] for trial, one in trials.items()} for other, trials in found.items()}
    assert behind == {
        "full": {"window": -0.5, "fitted-near": 1.25, "random-near": 0.75},
        "window": {"full": 0.5, "fitted-near": 1.75, "random-near": 1.25},
        "random": {"fitted-near": 0.5},
    }
    assert found["window"]["fitted-near"]["error"] == pytest.approx(0.25)


def test_only_seeds_that_both_have_are_compared():
    loss = {"full": [4.0, 4.0], "window": [3.0, 3.0, 1.0, 1.0], "fitted": [2.0, 2.0, 2.0, 2.0], "random": [5.0, 5.0]}
    found = compared({trial: torch.tensor(losses).double() for trial, losses in loss.items()})
    assert [found[other]["fitted"]["mean"] for other in ("full", "window", "random")] == [-2.0, 0.0, -3.0]

"""Tests claims of the demo and of fitted masks on one seed, through the command that users run."""

import json

import pytest
import torch
from typer.testing import CliRunner

from sbmt import SBMAttention
from sbmt.experiments.cli import app
from sbmt.experiments.data.repeated_tokens import random_mask_ceiling, sample_repeated_tokens
from sbmt.experiments.training import load_run


def train(folder, words):
    command = ["train", "repeated-tokens", *words.split(), "--output", str(folder)]
    assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0


@pytest.mark.slow
def test_sbm_learns_repeated_tokens(tmp_path):
    """Uses half the tokens. Always guessing the more frequent label is right for 0.63 of them."""
    train(tmp_path / "run", "--seed 2 --length 32 --steps 300 --batch-size 32 --learning-rate 3e-3")
    test = json.loads((tmp_path / "run" / "result.json").read_text())["test"]
    assert test["accuracy"] > 0.85 and test["density"] > 0.75


def test_a_fitted_mask_finds_repeats_that_a_random_one_cannot(tmp_path):
    """Runs the command of the page on fitted masks, with half the tokens and a seventh of the steps.

    Without its fit, the mask stays at a density at which a random one would do nearly as well. Without reweighting, the
    network adapts to its mask, and full attention with the same weights does no better.
    """
    sizes = "--length 32 --n-clusters 144 --steps 300 --batch-size 32 --learning-rate 5e-3 --block-model-rate 15e-3"
    train(tmp_path / "run", f"--preset fitted --edges-per-query 32 {sizes}")
    run = load_run(tmp_path / "run")
    assert run.test.density < 0.35
    assert run.test.accuracy > random_mask_ceiling(32, run.test.density) + 0.15
    (layer,) = [module for module in run.model.modules() if isinstance(module, SBMAttention)]
    run.model.train()
    layer.is_dense = True
    tokens, labels = sample_repeated_tokens(1024, 32, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        full = ((run.model(tokens).values.squeeze(-1) > 0) == labels.bool()).float().mean()
    assert full > 0.9

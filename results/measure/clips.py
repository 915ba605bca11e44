"""Trains a network with a fitted mask, looks at it on the way, and draws the films of the documentation.

``python results/measure/clips.py`` takes three minutes or so on one thread. It writes ``results/clips.json`` and both
films; ``--films`` leaves the training out, and draws them from the results that are there.
"""

import sys
from pathlib import Path
from typing import Any

import torch

import sbmt
from results.clips import Course, draw_clip, fit_clip, in_tenths
from sbmt.command import run_command
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.repeated_tokens import sample_repeated_tokens
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.plots.repeated_tokens import see_mask
from sbmt.experiments.training import RepeatedTokensConfig, build_model
from sbmt.experiments.training.run import manifest
from sbmt.experiments.training.tasks import TEST_SEED, fitted
from sbmt.models import TokenTagger

ROOT = Path(__file__).resolve().parents[2]
RESULT, FILMS = ROOT / "results" / "clips.json", ROOT / "docs" / "assets" / "clips"
EVERY, N_TEST = 25, 256
LOOKS = (0, 25, 50, 100, 150, 200, 250, 300, 400, 500, 700, 1000, 1400, 2000)
"""Steps at which the mask is kept: many while it changes fast."""


def train(config: RepeatedTokensConfig) -> dict[str, Any]:
    """One training; what was seen of it."""
    model = build_model(config)
    optimizer = config.make_optimizer(config.parameter_groups(model))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, config.learning_rate_share)
    data, masks = (torch.Generator().manual_seed(config.seed + i) for i in (0, 1))
    test = config.sample(N_TEST, torch.Generator().manual_seed(TEST_SEED))
    curve: dict[str, list[float]] = {"step": [], "accuracy": [], "keys_per_query": []}
    snapshots = []
    for step in range(config.steps + 1):
        if step % EVERY == 0:
            for name, value in zip(curve, (step, *score(model, test, config)), strict=True):
                curve[name].append(value)
        if step in LOOKS:
            snapshots.append({"step": step, "tenths": in_tenths(see_mask(model).expected)})
        if step == config.steps:
            break
        batch = config.sample(config.batch_size, data)
        output = model(batch.tokens, generator=masks)
        loss = config.loss(output.values, batch.labels) + sbmt.auxiliary_loss(output)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return {"curve": curve, "snapshots": snapshots}


@torch.no_grad()
def score(model: TokenTagger, test: Batch, config: RepeatedTokensConfig) -> tuple[float, float]:
    """Accuracy, and keys per query, on sequences that training never sees."""
    output = model.eval()(test.tokens, generator=torch.Generator().manual_seed(config.evaluation_seed(0)))
    model.train()
    accuracy = (config.predict(output.values) == test.labels.flatten()).double().mean()
    keys = output.attention[0].density.double().mean() * config.length
    return round(float(accuracy), 4), round(float(keys), 2)


def shown_tokens(length: int) -> list[int]:
    """The sequence of :func:`see_mask`, sorted as there."""
    tokens, _ = sample_repeated_tokens(1, length, generator=torch.Generator().manual_seed(0))
    return sorted(tokens[0].tolist())


def main() -> None:
    """Measures, writes and draws."""
    torch.set_num_threads(1)
    if "--films" not in sys.argv:
        config = RepeatedTokensConfig().override(**fitted(preset="fitted", edges_per_query=64.0))
        found = {"tokens": shown_tokens(config.length), "test_sequences": N_TEST} | train(config)
        write_json(RESULT, {"config": config.to_dict()} | found | {"manifest": manifest()})
    draw_clip(FILMS / "draw.svg")
    fit_clip(Course.from_record(read_json(RESULT)), FILMS / "fit.svg")


if __name__ == "__main__":
    run_command(main, "clips")

"""The time of a training step of the demo, relative to full attention; writes ``results/landing.json``.

``python results/measure/landing.py`` repeats the runs of the first seed of ``results/demo.json``. The attentions take
turns, one step each, so that a slow moment of the machine affects them all. It takes some ten minutes.
"""

from typing import Any

import torch
from torch import Tensor, nn

import sbmt
from results.lookup import load
from results.measure.common import run, write
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.data.repeated_tokens import sample_repeated_tokens
from sbmt.experiments.manifest import machine_manifest
from sbmt.experiments.training import RepeatedTokensConfig
from sbmt.experiments.training.config import build_model


def step_of(config: RepeatedTokensConfig, model: nn.Module | None = None) -> Entry:
    """A training step of a given or new model: forward, backward and update; drawing the batch is not timed."""
    model = model or build_model(config)
    optimizer = config.make_optimizer(config.parameter_groups(model))
    data = torch.Generator().manual_seed(config.seed)
    masks = torch.Generator().manual_seed(config.seed + 1)

    def step(batch: tuple[Tensor, Tensor]) -> None:
        tokens, labels = batch
        output = model(tokens, generator=masks)
        loss = nn.functional.binary_cross_entropy_with_logits(output.values.squeeze(-1), labels)
        optimizer.zero_grad()
        (loss + sbmt.auxiliary_loss(output)).backward()
        optimizer.step()

    return Entry(step, lambda: sample_repeated_tokens(config.batch_size, config.length, generator=data))


def measure_seed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Every attention's time and ratio over one training: medians and quartiles over its steps."""
    configs = {run["trial"]: RepeatedTokensConfig.from_dict(run["config"]) for run in runs}
    n_rounds = configs["full"].steps - 1  # the warm-up call is also a step
    entries = {trial: step_of(config) for trial, config in configs.items()}
    return race(entries, Pace(seconds=1.0, least=n_rounds, most=n_rounds), reference="full", headline=tuple(configs))


def main() -> None:
    """Measures and writes."""
    runs = load("demo")["runs"]
    seed = min(run["config"]["seed"] for run in runs)
    found = measure_seed([run for run in runs if run["config"]["seed"] == seed])
    write("landing", {"seeds": {str(seed): found}}, machine_manifest())


if __name__ == "__main__":
    run(main, "landing")

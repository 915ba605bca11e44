"""How long a training step of the demo takes, relative to full attention; writes ``results/landing.json``.

``python results/measure/landing.py`` repeats the runs of the first seed of ``results/demo.json`` on one thread. The
attentions take turns, one step each, so that a slow moment of the machine affects them all. It takes some ten minutes.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import sbmt
from sbmt.command import run_command
from sbmt.experiments.benchmarks.manifest import machine_manifest
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.data.repeated_tokens import sample_repeated_tokens
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.training import RepeatedTokensConfig
from sbmt.experiments.training.config import build_model
from sbmt.layers.registry import options_of

HERE = Path(__file__).resolve().parents[1]
RESULT, DEMO = HERE / "landing.json", HERE / "demo.json"
REFERENCE = "full"


def step_of(config: RepeatedTokensConfig, model: nn.Module | None = None) -> Entry:
    """A training step of a model, or a new one: forward, backward and update; drawing the batch is not timed."""
    model = model or build_model(config)
    optimizer = config.make_optimizer(config.parameter_groups(model))
    data = torch.Generator().manual_seed(config.seed)
    masks = torch.Generator().manual_seed(config.seed + 1)

    def batch() -> tuple[Tensor, Tensor]:
        return sample_repeated_tokens(config.batch_size, config.length, generator=data)

    def step(batch: tuple[Tensor, Tensor]) -> None:
        tokens, labels = batch
        output = model(tokens, generator=masks)
        loss = nn.functional.binary_cross_entropy_with_logits(output.values.squeeze(-1), labels)
        optimizer.zero_grad()
        (loss + sbmt.auxiliary_loss(output)).backward()
        optimizer.step()

    return Entry(step, batch)


def config_of(record: dict[str, Any]) -> RepeatedTokensConfig:
    """The configuration of a published run. Older records hold the options of all attentions beside the fields."""
    if "options" in record:
        return RepeatedTokensConfig.from_dict(record)
    known = {field.name for part in (RepeatedTokensConfig, options_of(record["attention"])) for field in fields(part)}
    return RepeatedTokensConfig().override(**{name: value for name, value in record.items() if name in known})


def measure_seed(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Every attention's time and ratio over one training: medians and quartiles over its steps."""
    configs = {run["trial"]: config_of(run["config"]) for run in runs}
    n_rounds = configs[REFERENCE].steps - 1  # the warm-up call is a step, too
    pace = Pace(seconds=1.0, least=n_rounds, most=n_rounds)
    entries = {trial: step_of(config) for trial, config in configs.items()}
    return race(entries, pace, reference=REFERENCE, headline=tuple(configs))


def main() -> None:
    """Measures and writes."""
    torch.set_num_threads(1)
    runs = read_json(DEMO)["runs"]
    seed = min(run["config"]["seed"] for run in runs)
    found = measure_seed([run for run in runs if run["config"]["seed"] == seed])
    write_json(RESULT, {"seeds": {str(seed): found}, "manifest": machine_manifest()})
    print({trial: one["ratio"] for trial, one in found.items()})


if __name__ == "__main__":
    run_command(main, "landing")

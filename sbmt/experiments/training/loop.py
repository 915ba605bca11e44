"""The training loop of the synthetic task, resumable to the same numbers."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from sbmt.block_model.density import density_penalty
from sbmt.errors import SbmtError
from sbmt.experiments.data.repeated_tokens import sample_repeated_tokens
from sbmt.experiments.files import read_json, read_tensors_and_texts, remove_parts, write_json, write_tensors
from sbmt.experiments.locks import only_writer
from sbmt.experiments.training.config import RepeatedTokensConfig
from sbmt.experiments.training.devices import usable_device
from sbmt.experiments.training.encoder import build_encoder
from sbmt.experiments.training.evaluate import evaluate
from sbmt.experiments.training.runs import METRICS, Run, load_weights
from sbmt.models import TokenTagger

CHECKPOINT_EVERY = 200
_STATE = "state.safetensors"


@dataclass(frozen=True)
class Step:
    """One optimiser step: its number (from 1) and the training batch's loss, accuracy and density."""

    number: int
    loss: float
    accuracy: float
    density: float


def build_model(config: RepeatedTokensConfig) -> TokenTagger:
    """The tagger of a configuration, with weights drawn from its seed; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        encoder = build_encoder(config, config.length, None)  # repeats do not depend on order, so no positions
        return TokenTagger(encoder, 1)


def train(
    config: RepeatedTokensConfig,
    folder: Path | None = None,
    *,
    resume: bool = False,
    on_step: Callable[[Step], None] | None = None,
    device: str = "cpu",
) -> Run:
    """Trains a tagger on fresh repeated-tokens batches, then evaluates it.

    Args:
        config: What to train.
        folder: Where the run is written; None writes nothing. A checkpoint is kept while training.
        resume: Whether to go on from the checkpoint in ``folder``. The result equals an uninterrupted run's, on the
            same machine and number of threads.
        on_step: Called after every step.
        device: ``"cpu"`` or ``"cuda"``. Sequences are the same on both, masks are not.

    Raises:
        SbmtError: If the device is not there, the folder holds another run or another process writes into it, there is
            nothing to resume, or the loss is not finite.
    """
    place = usable_device(device)
    with only_writer(folder):
        return _train(config, folder, resume, on_step, place)


def _train(
    config: RepeatedTokensConfig,
    folder: Path | None,
    resume: bool,
    on_step: Callable[[Step], None] | None,
    device: torch.device,
) -> Run:
    model = build_model(config).to(device)
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    data = torch.Generator().manual_seed(config.seed)
    masks = torch.Generator().manual_seed(config.seed + 1)
    history: dict[str, list[float]] = {name: [] for name in METRICS}
    seconds = 0.0
    if folder is not None:
        _claim(folder, config, resume)
    if resume and folder is not None:
        seconds = _restore(folder, config, model, optimizer, data, masks, history)
    start = time.perf_counter() - seconds
    for number in range(len(history["loss"]) + 1, config.steps + 1):
        step = _step(number, model, optimizer, config, data, masks, device)
        for name in METRICS:
            history[name].append(getattr(step, name))
        if on_step is not None:
            on_step(step)
        if folder is not None and number % CHECKPOINT_EVERY == 0:
            _store(folder, config, model, optimizer, data, masks, history, time.perf_counter() - start)
    seconds = time.perf_counter() - start
    test = evaluate(model, config.length, config.test_sequences)
    run = Run(config, model.cpu(), history, test, seconds)
    if folder is not None:
        run.save(folder)
        (folder / _STATE).unlink(missing_ok=True)
    return run


def _step(
    number: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    config: RepeatedTokensConfig,
    data: torch.Generator,
    masks: torch.Generator,
    device: torch.device,
) -> Step:
    drawn = sample_repeated_tokens(config.batch_size, config.length, generator=data)
    tokens, labels = (t.to(device) for t in drawn)
    output = model(tokens, generator=masks)
    logits = output.values.squeeze(-1)  # batch n
    loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
    total = loss
    if weight := config.density_weight_at(number):
        total = loss + weight * density_penalty(output.attention, config.density_kind)
    if not torch.isfinite(total):
        raise SbmtError("a finite loss", f"{total.item()} at step {number}", "lower the learning rate")
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate_at(number)
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    accuracy = ((logits > 0) == labels.bool()).float().mean()
    density = density_penalty(output.attention)
    return Step(number, loss.item(), accuracy.item(), density.item())


def _claim(folder: Path, config: RepeatedTokensConfig, resume: bool) -> None:
    path = folder / "config.json"
    if resume:
        if RepeatedTokensConfig.from_dict(read_json(path)) != config:
            raise SbmtError(f"the configuration in {path}", "another", "resume with the same settings")
    elif path.exists():
        raise SbmtError("a folder without a run", folder, "name another folder, or go on with --resume")
    else:
        write_json(path, config.to_dict())
    remove_parts(folder)


def _store(
    folder: Path,
    config: RepeatedTokensConfig,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: torch.Generator,
    masks: torch.Generator,
    history: dict[str, list[float]],
    seconds: float,
) -> None:
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    for number, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{name}": t for name, t in moments.items()}
    tensors |= {f"history.{name}": torch.tensor(xs, dtype=torch.float64) for name, xs in history.items()}
    tensors |= {"data": data.get_state(), "masks": masks.get_state(), "seconds": torch.tensor(seconds)}
    write_tensors(folder / _STATE, tensors, config=json.dumps(config.to_dict()))


def _restore(
    folder: Path,
    config: RepeatedTokensConfig,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: torch.Generator,
    masks: torch.Generator,
    history: dict[str, list[float]],
) -> float:
    if not (folder / _STATE).exists():
        do = "train it again in another folder" if (folder / "result.json").exists() else "remove the folder"
        raise SbmtError(f"a checkpoint in {folder}", "none", f"checkpoints come every {CHECKPOINT_EVERY} steps; {do}")
    tensors, texts = read_tensors_and_texts(folder / _STATE)
    if texts.get("config") != json.dumps(config.to_dict()):
        raise SbmtError(f"a checkpoint of this run in {folder}", "one of other settings", "remove it and train again")

    def under(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

    load_weights(model, under("model."), folder)
    state = optimizer.state_dict()
    numbers = {int(name.split(".")[0]) for name in under("optimizer.")}
    state["state"] = {number: under(f"optimizer.{number}.") for number in numbers}
    try:
        optimizer.load_state_dict(state)
        data.set_state(tensors["data"])
        masks.set_state(tensors["masks"])
        for name in METRICS:
            history[name] = tensors[f"history.{name}"].tolist()
        return float(tensors["seconds"])
    except (KeyError, RuntimeError, ValueError) as error:
        raise SbmtError(f"a whole checkpoint in {folder}", f"{error!r}", "train again") from error

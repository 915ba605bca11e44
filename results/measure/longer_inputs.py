"""Networks trained with full attention on short inputs, and asked about longer ones; writes ``longer_inputs.json``.

Fitted masks take the place of full attention at the length of training, and stay as they are for longer inputs. Their
rates belong to pairs, so that a query's edges grow with the number of keys; one factor for all rates brings them back
to as many as before. Random masks and windows get as many edges. Positions are rotary, since a table ends where
training ended; but for Pathfinder every pixel becomes a square of pixels with the position it had, which does not
change what full attention answers. Texts are film reviews of at least the length that is asked for, cut there. The
networks are those that ``make long-range`` leaves in ``runs/``. It takes two hours on one core. Names of tasks as
arguments measure these alone, and leave what the file says of others.
"""

import copy
import json
import math
import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor, nn

from sbmt.baselines import RandomMaskAttention
from sbmt.command import run_command
from sbmt.errors import choose
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.cli.progress import progress_bars
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.data.listops import listops_source
from sbmt.experiments.data.prepared import Prepared, prepare
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.memory import MEBIBYTE, give_back, held, in_fresh_process, reset_peak
from sbmt.experiments.sparsification.compare import fit_run
from sbmt.experiments.training.data import BatchStream, ExampleFeed
from sbmt.experiments.training.evaluate import call_model
from sbmt.experiments.training.run import Run, load_run, manifest
from sbmt.sparsification.convert import fitted_layers

RESULT = Path(__file__).resolve().parents[1] / "longer_inputs.json"
RUNS = RESULT.parents[1] / "runs"
STEPS = 300  # of the fit
PACE = Pace(seconds=10.0, least=3, most=21)
KINDS = "full", "fitted", "random", "window", "fitted, all edges", "random, all edges"
"""Masks with as many edges per query as at the length of training; and those whose share of pairs is the same."""


@dataclass(frozen=True)
class Task:
    """A network, and the lengths that it is asked about.

    Attributes:
        run: Folder in ``runs`` of the network with full attention.
        edges_per_query: c of the fitted masks.
        lengths: The first is that of training.
        n_examples: How many the network is asked about at each length.
        fit_batch: Examples in a step of the fit, which forms all pairs of each.
    """

    run: str
    edges_per_query: float
    lengths: tuple[int, ...]
    n_examples: int
    fit_batch: int = 16


TASKS = {
    "ListOps": Task("listops-edges/full-seed0", 8.0, (100, 200), 2000),
    "Pathfinder": Task("pathfinder/full-seed0", 8.0, (144, 576, 2304), 1000),
    "Text": Task("longer/text-full", 16.0, (512, 1024, 2048, 4096), 500, fit_batch=8),
}


def long_expressions() -> Prepared:
    """Longer than the longest reduced expressions, twice as long at most, and up to two levels deeper."""
    law = dict(min_length=101, max_length=200, max_depth=8, max_args=5)
    source = listops_source(n_train=20, n_dev=20, n_test=2000, seed=1, **law, name="listops-longer")
    return prepare(source, RUNS / "longer" / "data")


def enlarged(pixels: Tensor, dim: int, length: int) -> Tensor:
    """A square image, flat along a dimension, each pixel of which becomes a square of them."""
    side = math.isqrt(pixels.shape[dim])
    times = math.isqrt(length) // side
    square = pixels.unflatten(dim, (side, side))
    return square.repeat_interleave(times, dim).repeat_interleave(times, dim + 1).flatten(dim, dim + 1)


def batches(task: str, run: Run, length: int, batch_size: int) -> Iterator[Batch]:
    """Test examples of a length."""
    is_long = length > TASKS[task].lengths[0]
    prepared = long_expressions() if task == "ListOps" and is_long else None
    config = run.config if task == "Pathfinder" else replace(run.config, length=length)
    feed = config.open_data(run.tokenizer, prepared).feeds["test"]
    assert isinstance(feed, ExampleFeed)
    n_tokens = feed.split.lengths[feed.split.indices].sum(1)
    examples = np.flatnonzero(n_tokens >= (length if task == "Text" else 0))[: TASKS[task].n_examples]
    parts = [examples[i : i + batch_size] for i in range(0, len(examples), batch_size)]
    for batch in BatchStream(feed, dict(enumerate(parts)).get):
        if task == "Pathfinder" and is_long:
            yield replace(batch, **{name: enlarged(getattr(batch, name), 1, length) for name in ("tokens", "mask")})
        else:
            yield batch


def prolonged(task: str, model: nn.Module, length: int) -> nn.Module:
    """A copy of the model for inputs of a length."""
    model = copy.deepcopy(model).eval()
    model.get_submodule("encoder").max_length = length
    if task == "Pathfinder":
        table = model.get_submodule("encoder.position_embedding")
        table.weight = nn.Parameter(enlarged(table.weight.data, 0, length))
        table.num_embeddings = length
    return model


def with_masks(task: str, model: nn.Module, kind: str, length: int, density: float = 0.0, width: int = 0) -> nn.Module:
    """A copy of the network with fitted masks in which they are of this kind.

    Args:
        task: Its task.
        model: The network with fitted masks, or with full attention.
        kind: One of :data:`KINDS`.
        length: Of the inputs.
        density: Of random masks.
        width: Of windows, which hold as many keys besides the token itself, or fewer where some are padding.
    """
    model = prolonged(task, model, length)
    if kind == "full":
        return model
    for name, layer in fitted_layers(model).items():
        n_heads, _, d_head = layer.clusters.shape
        if kind.startswith("fitted"):
            factor = 1.0 if kind.endswith("all edges") else TASKS[task].lengths[0] / length
            layer.log_start.add_(math.log(factor))
        elif kind.startswith("random"):
            model.set_submodule(name, RandomMaskAttention(d_head, n_heads, mask_density=density))
        else:
            mask = RandomMaskAttention(n_heads=n_heads, d_head=d_head, mask_density=0.0, window=width)
            model.set_submodule(name, mask)
    return model


@torch.no_grad()
def answers(
    task: str, run: Run, model: nn.Module, length: int, on_batch: Callable[[], None], n_batches: int | None = None
) -> tuple[Tensor, float]:
    """Whether each answer is right, and the mean density of the masks."""
    generator = torch.Generator().manual_seed(0)
    right, densities = [], []
    for batch in islice(batches(task, run, length, max(1, 2**13 // length)), n_batches):
        output = call_model(model, batch, generator)
        right.append(run.config.predict(output.values) == batch.labels)
        densities.append(torch.stack([layer.density.mean() for layer in output.attention]).mean())
        on_batch()
    return torch.cat(right).double(), float(torch.stack(densities).mean())


def width_of(task: str, run: Run, length: int, density: float) -> int:
    """The width of the window whose density comes first to that of other masks."""

    def reached(half: int) -> float:
        model = with_masks(task, run.model, "window", length, width=2 * half)
        return answers(task, run, model, length, lambda: None, n_batches=1)[1]

    return 2 * bisect_left(range(length), density, key=reached)


def reading(task: str, run: Run, kind: str, length: int) -> Callable[[object], None]:
    """Reads one input."""
    model = with_masks(task, run.model, kind, length)
    batch = next(islice(batches(task, run, length, 1), 7, None))
    masks = torch.Generator().manual_seed(1)

    @torch.no_grad()
    def read(_: object) -> None:
        call_model(model, batch, masks)

    return read


def memory(task: str, kind: str, length: int) -> dict[str, float]:
    """MiB that reading one input adds to what this process, a fresh one, holds."""
    run = load_run(folder(task, kind))
    reading(task, run, kind, TASKS[task].lengths[0])(None)  # loads kernels
    read = reading(task, run, kind, length)
    give_back()
    reset_peak()
    before = held("VmRSS")
    read(None)
    return {"added": round((held("VmHWM") - before) / MEBIBYTE, 1)}


def folder(task: str, kind: str) -> Path:
    """Of the run with full attention, or with fitted masks."""
    return RUNS / TASKS[task].run if kind == "full" else RUNS / "longer" / f"{task.lower()}-fitted"


def fitted(task: str, run: Run) -> Run:
    """The run with fitted masks, from this script or an earlier call of it."""
    if not (folder(task, "fitted") / "result.json").exists():
        about = TASKS[task]
        fit_run(run, about.edges_per_query, STEPS, batch_size=about.fit_batch).save(folder(task, "fitted"))
    return load_run(folder(task, "fitted"))


def measure(task: str, on_batch: Callable[[], None]) -> list[dict[str, Any]]:
    """All kinds of masks at all lengths."""
    run = load_run(folder(task, "full"))
    sparse = fitted(task, run)
    found = []
    for length in TASKS[task].lengths:
        kinds, of_fitted, full = {}, 0.0, torch.empty(0)
        for kind in KINDS:
            is_full = kind == "full"
            if length == TASKS[task].lengths[0] and kind.endswith("all edges"):
                continue  # the same masks
            width = width_of(task, sparse, length, of_fitted) if kind == "window" else 0
            model = with_masks(task, (run if is_full else sparse).model, kind, length, of_fitted, width)
            right, density = answers(task, run, model, length, on_batch)
            full = right if is_full else full
            of_fitted = density if kind.startswith("fitted") else of_fitted
            lost = full - right
            error = float(lost.std() / len(lost) ** 0.5)  # of the mean, over pairs of answers
            kinds[kind] = {"accuracy": float(right.mean()), "lost": float(lost.mean()), "lost_error": error}
            kinds[kind] |= {"density": density}
        readers = {"full": run, "fitted": sparse}
        entries = {kind: Entry(reading(task, which, kind, length)) for kind, which in readers.items()}
        times = race(entries, PACE, reference="full", headline=("fitted",))
        added = {kind: in_fresh_process(f"results.measure.{RESULT.stem}", [task, kind, length]) for kind in entries}
        found.append({"length": length, "kinds": kinds, "times": times, "memory": added})
        print(task, length, json.dumps(kinds), flush=True)
    return found


def main() -> None:
    """Measures and writes."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    arguments = sys.argv[1:]
    if arguments and arguments[0].startswith("["):  # a fresh process of this script's own
        print(json.dumps(memory(*json.loads(arguments[0]))))
        return
    tasks = {name: choose("task", name, TASKS) for name in arguments} or TASKS
    n_steps = sum(
        math.ceil(task.n_examples / max(1, 2**13 // n)) * len(KINDS) for task in tasks.values() for n in task.lengths
    )
    found = read_json(RESULT)["tasks"] if arguments and RESULT.exists() else {}
    with progress_bars(Console()) as progress:
        bar = progress.add_task("inputs", total=n_steps)
        for name in tasks:
            found[name] = {
                "edges_per_query": tasks[name].edges_per_query,
                "n_examples": tasks[name].n_examples,
                "lengths": measure(name, lambda: progress.advance(bar)),
            }
    write_json(RESULT, {"tasks": found, "manifest": manifest()})


if __name__ == "__main__":
    run_command(main, "longer_inputs")

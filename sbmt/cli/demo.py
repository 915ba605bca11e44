"""``sbmt demo``: the main job."""

from pathlib import Path
from statistics import median
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from sbmt.cli.progress import training_progress
from sbmt.tasks.repeated_tokens import majority_accuracy
from sbmt.training.comparison import METHODS, TITLES, compare, summary
from sbmt.training.config import SIZES
from sbmt.training.files import write_json
from sbmt.training.runs import Run


def demo(
    output: Annotated[Path, typer.Option(help="folder of the runs, the figure and the result")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(help="runs per attention; the table shows medians")] = 1,
    steps: Annotated[int, typer.Option(help="optimiser steps per run")] = SIZES["demo"].steps,
    seed: Annotated[int, typer.Option(help="first seed")] = 0,
) -> None:
    """Train full attention, SBM and random masks on repeated tokens, and compare them.

    The task: sequences of 64 values drawn from 64; mark the tokens whose value occurs elsewhere. A run that was
    interrupted goes on where it stopped.
    """
    console = Console()
    config = SIZES["demo"].override(steps=steps, seed=seed)
    with training_progress(console) as progress:
        runs = compare(
            config,
            seeds,
            output,
            on_start=lambda method, n, done: progress.start(
                TITLES[method] + (f" #{n}" if seeds > 1 else ""), config.steps, done
            ),
            on_step=progress.step,
        )
    write_json(output / "result.json", summary(runs))
    console.print(_table(runs, seeds))
    guess = majority_accuracy(config.length)
    console.print(f"Always guessing the commoner label is right for {guess:.3f} of the tokens.")
    _draw(runs, output / "demo.png")
    console.print(f"Figure: {output / 'demo.png'}   numbers: {output / 'result.json'}   look closer: ", end="")
    console.print(f"sbmt inspect {output / f'sbm-seed{seed}'}", highlight=False)


def _table(runs: list[tuple[str, Run]], seeds: int) -> Table:
    table = Table(title="Repeated tokens, unseen sequences" + (f", median of {seeds} seeds" if seeds > 1 else ""))
    table.add_column("attention")
    for name in ("accuracy", "density", "loss", "parameters", "seconds"):
        table.add_column(name, justify="right")
    for method in METHODS:
        mine = [run for m, run in runs if m == method]
        accuracy, density, loss = (
            median(getattr(run.test, name) for run in mine) for name in ("accuracy", "density", "loss")
        )
        parameters = sum(p.numel() for p in mine[0].model.parameters())
        seconds = median(run.seconds for run in mine)
        table.add_row(
            TITLES[method], f"{accuracy:.3f}", f"{density:.3f}", f"{loss:.3f}", f"{parameters:,}", f"{seconds:.0f}"
        )
    return table


def _draw(runs: list[tuple[str, Run]], path: Path) -> None:
    from sbmt.plots.comparison import draw_comparison

    draw_comparison(runs, path)

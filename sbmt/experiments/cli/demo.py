"""``sbmt demo``: several attentions on the synthetic task."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sbmt.experiments.cli.progress import run_with_bars
from sbmt.experiments.cli.tables import print_table, study_table
from sbmt.experiments.data.repeated_tokens import majority_accuracy
from sbmt.experiments.files import write_json
from sbmt.experiments.studies.repeated_tokens import STUDIES
from sbmt.experiments.studies.study import summary
from sbmt.experiments.training.tasks import SIZES


def demo(
    output: Annotated[Path, typer.Option(help="folder of the runs, the figure and the result")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(help="runs per attention; the table shows medians")] = 1,
    steps: Annotated[int, typer.Option(help="optimiser steps per run")] = SIZES["demo"].steps,
    seed: Annotated[int, typer.Option(help="first seed")] = 0,
    workers: Annotated[int, typer.Option(help="processes, each with one thread")] = 2,
) -> None:
    """Train full attention, SBM as published, a fitted mask and a random one of its density, and compare them.

    The task: sequences of 64 values drawn from 64; mark the tokens whose value occurs elsewhere. An
    interrupted demo is resumed.
    """
    from sbmt.experiments.plots.repeated_tokens import draw_comparison

    console = Console(markup=False)
    study = STUDIES["demo"]
    study = replace(study, config=study.config.override(steps=steps, seed=seed), n_seeds=seeds)
    runs = run_with_bars(console, study, output, workers)
    write_json(output / "result.json", summary(study, runs))
    print_table(console, study_table(study.title, study.trials, runs))
    guess = majority_accuracy(study.config.length)
    console.print(f"Always guessing the commoner label is right for {guess:.3f} of the tokens.")
    draw_comparison(study, runs, output / "demo.png")
    console.print(f"Figure: {output / 'demo.png'}   numbers: {output / 'result.json'}   look closer: ", end="")
    console.print(f"sbmt inspect {output / f'fitted-seed{seed}'}", highlight=False)

"""``sbmt demo``, ``sbmt study`` and ``sbmt glue``: several trials on several seeds, and tables of them."""

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.errors import check_sizes, choose, printable
from sbmt.experiments.cli.terminal import check_targets, print_table, run_with_bar, study_table, write_result
from sbmt.experiments.data.repeated_tokens import majority_accuracy
from sbmt.experiments.studies import language
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import summary
from sbmt.experiments.training.generated import SIZES
from sbmt.experiments.training.tasks import GLUE_TASKS

LONGER = 4096
"""Tokens on which the demo's networks are timed."""
Names = list[str] | None
Workers = Annotated[int, typer.Option(help="processes, each with one thread")]
Json = Annotated[Path | None, typer.Option(help="also write the results here")]
Figure = Annotated[Path | None, typer.Option(help="also draw curves, and accuracy against density, here")]


def demo(
    output: Annotated[Path, typer.Option(help="folder of the runs, the figure and the result")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(help="runs per attention")] = 1,
    steps: Annotated[int, typer.Option(help="optimiser steps per run")] = SIZES["demo"].steps,
    workers: Workers = 2,
) -> None:
    """Train full attention, SBM as published, a fitted mask and a random one of its density, and compare them.

    The task: sequences of 64 values drawn from 64; mark the tokens whose value occurs elsewhere. An interrupted demo
    is resumed. At the end, full attention and the fitted mask are timed on 4,096 tokens.
    """
    from sbmt.experiments.benchmarks.longer import longer_table, on_longer_inputs
    from sbmt.experiments.plots.repeated_tokens import see_mask
    from sbmt.experiments.plots.study import draw_study

    console = Console(markup=False)
    chosen = replace(STUDIES["demo"], config=STUDIES["demo"].config.override(steps=steps), n_seeds=seeds)
    runs = run_with_bar(console, chosen, output, workers)
    result = summary(chosen, runs)
    write_result(result, output / "result.json")
    print_table(console, study_table(result))
    guess = majority_accuracy(chosen.config.length)
    console.print(f"Always guessing the commoner label is right for {guess:.3f} of the tokens.")
    models = {trial: dict(reversed(runs))[trial].model for trial in ("full", "fitted")}
    print_table(
        console, longer_table(on_longer_inputs(models, LONGER, chosen.config.length, "full"), result["titles"], LONGER)
    )
    published, fitted = (see_mask(dict(reversed(runs))[trial].model) for trial in ("sbm", "fitted"))
    masks = {"E[mask], as published": published.expected, "E[mask], fitted": fitted.expected}
    draw_study(result, output / "demo.png", masks | {"the pairs that matter": fitted.twins})
    following = shlex.join(["sbmt", "inspect", str(output / "fitted-seed0")])
    console.print(f"Figure and numbers: {printable(output)}   Next: {printable(following)}", highlight=False)


def study(
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(STUDIES)}")],
    output: Annotated[Path | None, typer.Option(help="folder of the runs", show_default="runs/NAME")] = None,
    json: Json = None,
    figure: Figure = None,
    workers: Workers = 1,
) -> None:
    """Train every run behind a figure or table of the documentation: several trials on several seeds.

    An interrupted study is resumed. The numbers are the same for any number of workers of at least 2; with 1, training
    uses all of torch's threads.
    """
    chosen = choose("study", name, STUDIES)
    check_targets(json, figure)
    folder = output or Path("runs") / name
    console = Console(markup=False)
    result = summary(chosen, run_with_bar(console, chosen, folder, workers))
    write_result(result, folder / "result.json", json)
    print_table(console, study_table(result))
    if figure is not None:
        from sbmt.experiments.plots.study import draw_study

        draw_study(result, figure)
    console.print(f"Runs and numbers: {printable(folder)}", highlight=False)


def glue(
    trial: Annotated[Names, typer.Option(help=f"repeatable; all if left out: {', '.join(language.TRIALS)}")] = None,
    task: Annotated[Names, typer.Option(help=f"repeatable; all if left out: {', '.join(GLUE_TASKS)}")] = None,
    seeds: Annotated[int, typer.Option(help="runs of fine-tuning per attention and task")] = 1,
    reduced: Annotated[bool, typer.Option("--reduced", help="minutes on one core a run, instead of Table 7")] = False,
    output: Annotated[Path, typer.Option(help="folder of the runs and the numbers")] = Path("runs/glue"),
    json: Json = None,
    figure: Figure = None,
    workers: Workers = 1,
) -> None:
    """Pre-train several attentions, fine-tune each on the four tasks, and print the paper's Table 4 beside them.

    Random masks have the window of sbm and the edge probability that it reaches on the same task and seed. What was
    interrupted goes on where it stopped. Prepare the data first: sbmt data prepare corpus, sst2, qqp, mnli, qnli.
    """
    check_sizes(seeds=seeds, workers=workers)
    check_targets(json, figure)
    console = Console(markup=False)
    options: dict[str, Any] = {"n_seeds": seeds, "is_reduced": reduced, "n_workers": workers}
    options["run"] = partial(run_with_bar, console)
    results = language.run_language_studies(trial or list(language.TRIALS), task or GLUE_TASKS, output, **options)
    write_result(results, output / "result.json", json)
    tables = language.mlm_table(results["mlm"]), language.glue_accuracy_table(results), language.glue_f1_table(results)
    for table in tables:
        print_table(console, table)
    if figure is not None:
        from sbmt.experiments.plots.study import draw_glue

        draw_glue(results, figure)
    console.print(f"Runs and numbers: {printable(output)}", highlight=False)

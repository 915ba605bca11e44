"""``sbmt demo``, ``sbmt study`` and ``sbmt glue``: commands that train and compare several trials."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress
from rich.table import Table

from sbmt.errors import choose
from sbmt.experiments.cli.terminal import numbers_of, print_table, publish, say
from sbmt.experiments.files import check_may_write, check_writable
from sbmt.experiments.studies import language
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Study, run_study, summary
from sbmt.experiments.training.generated import SIZES
from sbmt.experiments.training.run import Run, Step
from sbmt.experiments.training.tasks import GLUE_TASKS

RESULT = "result.json"
Names = list[str] | None
START = b'{\n "task": '  # first bytes of the ``result.json`` of a study
Workers = Annotated[int, typer.Option(help="number of processes, each with one thread")]
Figure = Annotated[Path | None, typer.Option(help="file for a figure of training curves, and accuracy against density")]


def demo(
    output: Annotated[Path, typer.Option(help="folder for the runs, the figure and the result")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(help="number of runs per attention mechanism")] = 1,
    steps: Annotated[int, typer.Option(help="number of optimiser steps per run")] = SIZES["demo"].steps,
    workers: Workers = 2,
) -> None:
    """Compare networks trained with full attention, SBM as published, a fitted mask and a random mask of equal density.

    The task is to mark repeated tokens in sequences of 64 values, drawn from 64 possible ones. The last table shows the
    time and memory of full attention and the fitted mask on 4,096 tokens.
    """
    from sbmt.experiments.benchmarks.longer import longer_table
    from sbmt.experiments.plots.repeated_tokens import see_mask
    from sbmt.experiments.plots.study import draw_study

    check_may_write(output / "demo.png", output / RESULT, START)
    chosen = replace(STUDIES["demo"], config=STUDIES["demo"].config.override(steps=steps), n_seeds=seeds)
    runs, result = _run(chosen, output, workers)
    models = {name: run.model for name, run in reversed(runs)}  # models of the first seed
    compared = {result["titles"][name]: models[name] for name in ("full", "fitted")}
    print_table(longer_table(compared, 4096, chosen.config.length))
    published, fitted = see_mask(models["sbm"]), see_mask(models["fitted"])
    masks = {"E[mask], as published": published.expected, "E[mask], fitted": fitted.expected}
    draw_study(result, output / "demo.png", masks | {"the pairs that matter": fitted.twins})


def study(
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(STUDIES)}")],
    output: Annotated[Path | None, typer.Option(help="folder for the runs", show_default="runs/NAME")] = None,
    figure: Figure = None,
    workers: Workers = 1,
) -> None:
    """Train all runs behind a figure or table of the documentation: several trials on several seeds."""
    chosen, folder = choose("study", name, STUDIES), output or Path("runs") / name
    check_writable(figure)
    _, result = _run(chosen, folder, workers)
    if figure is not None:
        from sbmt.experiments.plots.study import draw_study

        draw_study(result, figure)


def _run(chosen: Study, folder: Path, workers: int) -> tuple[list[tuple[str, Run]], dict[str, Any]]:
    """Runs a study, and writes and prints its results."""
    check_may_write(folder / RESULT, folder / RESULT, START)
    runs = _run_with_bar(chosen, folder, workers)
    result = summary(chosen, runs)
    publish(result, [_study_table(result)], folder / RESULT)
    say(f"Runs and results: {folder}")
    return runs, result


def glue(
    trial: Annotated[Names, typer.Option(help=f"repeatable; all by default: {', '.join(language.TRIALS)}")] = None,
    task: Annotated[Names, typer.Option(help=f"repeatable; all by default: {', '.join(GLUE_TASKS)}")] = None,
    seeds: Annotated[int, typer.Option(help="number of fine-tuning runs per trial and task")] = 1,
    reduced: Annotated[bool, typer.Option("--reduced", help="small settings that take minutes, not Table 7")] = False,
    output: Annotated[Path, typer.Option(help="folder for the runs and the results")] = Path("runs/glue"),
    figure: Figure = None,
    workers: Workers = 1,
) -> None:
    """Pre-train several attention mechanisms and fine-tune each on the four tasks of the paper's Table 4.

    Prepare the data first: sbmt data prepare corpus, sst2, qqp, mnli, qnli.
    """
    check_writable(figure)
    check_may_write(output / RESULT, output / RESULT, b'{\n "mlm": ')
    run = partial(_run_with_bar, n_workers=workers)
    names, tasks = trial or list(language.TRIALS), task or GLUE_TASKS
    results = language.run_language_studies(names, tasks, output, n_seeds=seeds, is_reduced=reduced, run=run)
    publish(results, map(_study_table, results.values()), output / RESULT)
    if figure is not None:
        from sbmt.experiments.plots.study import draw_glue

        draw_glue(results, figure)
    say(f"Runs and results: {output}")


def _run_with_bar(study: Study, folder: Path, n_workers: int = 1) -> list[tuple[str, Run]]:
    """Runs or resumes a study, with a progress bar over the steps of all its runs."""
    steps = {(trial.name, seed): study.config.override(**trial.settings).steps for trial, seed in study.plan()}
    done = dict.fromkeys(steps, 0)
    with Progress() as progress:
        bar = progress.add_task(study.title, total=sum(steps.values()))

        def report(name: str, seed: int, step: Step | int) -> None:
            done[name, seed], numbers = (step, "") if isinstance(step, int) else (step.number, numbers_of(step))
            progress.update(bar, completed=sum(done.values()), description=f"{name} #{seed} {numbers}")

        return run_study(study, folder, n_workers=n_workers, report=report)


def _study_table(result: dict[str, Any]) -> Table:
    """Returns a table of a study's summary, with a row of medians over seeds per trial."""
    seeds = Counter(run["trial"] for run in result["runs"])
    headings = "attention", "seeds", "accuracy, %", "density, %", "loss"
    table = Table(*headings, title=f"Test: {result['title']}, medians over seeds")
    for trial, title in result["titles"].items():
        found = result["medians"][trial]
        numbers = f"{100 * found['accuracy']:.2f}", f"{100 * found['density']:.2f}", f"{found['loss']:.3f}"
        table.add_row(title, str(seeds[trial]), *numbers)
    return table

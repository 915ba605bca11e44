"""``sbmt demo``, ``sbmt study`` and ``sbmt glue``: several trials on several seeds, and tables of them."""

import shlex
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from sbmt.errors import choose
from sbmt.experiments.cli.terminal import check_targets, print_table, publish, run_with_bar, say, study_table
from sbmt.experiments.data.repeated_tokens import majority_accuracy
from sbmt.experiments.files import check_may_replace
from sbmt.experiments.studies import language
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.studies.study import Study, summary
from sbmt.experiments.training.generated import SIZES
from sbmt.experiments.training.run import Run
from sbmt.experiments.training.tasks import GLUE_TASKS

RESULT = "result.json"
START = b'{\n "task": '  # of a ``result.json`` that a study wrote
LONGER = 4096
"""Number of tokens on which the demo's networks are timed."""
Names = list[str] | None
Workers = Annotated[int, typer.Option(help="processes, each with one thread")]
Json = Annotated[Path | None, typer.Option(help="also write the results here")]
Figure = Annotated[Path | None, typer.Option(help="also draw a figure with curves, and accuracy against density, here")]


def demo(
    output: Annotated[Path, typer.Option(help="folder of the runs, the figure and the result")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(help="runs per attention")] = 1,
    steps: Annotated[int, typer.Option(help="optimiser steps per run")] = SIZES["demo"].steps,
    workers: Workers = 2,
) -> None:
    """Compare full attention, SBM as published, a fitted mask and a random mask of the same density in training.

    The task: sequences of 64 values drawn from 64; mark the tokens whose value occurs elsewhere. An interrupted demo
    is resumed. At the end, full attention and the fitted mask are timed on 4,096 tokens.
    """
    from sbmt.experiments.benchmarks.longer import longer_table, on_longer_inputs
    from sbmt.experiments.plots.repeated_tokens import see_mask
    from sbmt.experiments.plots.study import draw_study

    check_may_replace(output / "demo.png", output / RESULT, START)
    chosen = replace(STUDIES["demo"], config=STUDIES["demo"].config.override(steps=steps), n_seeds=seeds)
    runs, result = _run(chosen, output, workers)
    length = chosen.config.length
    say(f"Always guessing the commoner label is right for {majority_accuracy(length):.3f} of the tokens.")
    models = {name: run.model for name, run in reversed(runs)}  # of the first seed
    timed = on_longer_inputs({name: models[name] for name in ("full", "fitted")}, LONGER, length, "full")
    print_table(longer_table(timed, result["titles"], LONGER))
    published, fitted = see_mask(models["sbm"]), see_mask(models["fitted"])
    masks = {"E[mask], as published": published.expected, "E[mask], fitted": fitted.expected}
    draw_study(result, output / "demo.png", masks | {"the pairs that matter": fitted.twins})
    following = shlex.join(["sbmt", "inspect", str(output / "fitted-seed0")])
    say(f"Figure and numbers: {output}   Next: {following}")


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
    chosen, folder = choose("study", name, STUDIES), output or Path("runs") / name
    check_targets(json, figure)
    _, result = _run(chosen, folder, workers, json)
    if figure is not None:
        from sbmt.experiments.plots.study import draw_study

        draw_study(result, figure)
    say(f"Runs and numbers: {folder}")


def _run(
    chosen: Study, folder: Path, workers: int, json: Path | None = None
) -> tuple[list[tuple[str, Run]], dict[str, Any]]:
    """Runs a study, and writes and prints its numbers."""
    check_may_replace(folder / RESULT, folder / RESULT, START)
    runs = run_with_bar(chosen, folder, workers)
    result = summary(chosen, runs)
    publish(result, [study_table(result)], folder / RESULT, json)
    return runs, result


def glue(
    trial: Annotated[Names, typer.Option(help=f"repeatable; all if left out: {', '.join(language.TRIALS)}")] = None,
    task: Annotated[Names, typer.Option(help=f"repeatable; all if left out: {', '.join(GLUE_TASKS)}")] = None,
    seeds: Annotated[int, typer.Option(help="runs of fine-tuning per attention and task")] = 1,
    reduced: Annotated[bool, typer.Option("--reduced", help="minutes per run on one core, instead of Table 7")] = False,
    output: Annotated[Path, typer.Option(help="folder of the runs and the numbers")] = Path("runs/glue"),
    json: Json = None,
    figure: Figure = None,
    workers: Workers = 1,
) -> None:
    """Pre-train several attentions and fine-tune each on the four tasks of the paper's Table 4.

    Random masks have the window of sbm and the edge probability that it reaches on the same task and seed. Interrupted
    runs are resumed. Prepare the data first: sbmt data prepare corpus, sst2, qqp, mnli, qnli.
    """
    check_targets(json, figure)
    check_may_replace(output / RESULT, output / RESULT, b'{\n "mlm": ')
    run = partial(run_with_bar, n_workers=workers)
    names, tasks = trial or list(language.TRIALS), task or GLUE_TASKS
    results = language.run_language_studies(names, tasks, output, n_seeds=seeds, is_reduced=reduced, run=run)
    publish(results, map(study_table, results.values()), output / RESULT, json)
    if figure is not None:
        from sbmt.experiments.plots.study import draw_glue

        draw_glue(results, figure)
    say(f"Runs and numbers: {output}")

"""What commands show on the terminal, tables and live progress, and the files that they are asked to write."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table as Printed

from sbmt.experiments.files import check_writable
from sbmt.experiments.studies.study import Study, run_study
from sbmt.experiments.tables import Table
from sbmt.experiments.training.run import Run, Step


def print_table(console: Console, found: Table) -> None:
    """Prints a table and its notes; a row that is too long for a terminal runs over its edge, unbroken."""
    table = Printed(title=found.title)
    for number, heading in enumerate(found.headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in found.rows:
        table.add_row(*row)
    room = console.width
    console.width = max(room, console.measure(table, options=console.options.update(width=1000)).maximum)
    console.print(table)
    console.width = room
    for note in found.notes:
        console.print(f"– {note}.", highlight=False)


def print_scores(console: Console, test: Any, about: dict[str, Any]) -> None:
    """Prints accuracy, loss and density of scores or an evaluation, and what else a result holds."""
    more = f"   95 % interval {about['interval'][0]:.3f} to {about['interval'][1]:.3f}" if "interval" in about else ""
    more += f"   chance {about['chance']:.3f}" if "chance" in about else ""
    n_test = f", {about['n_test']:,} examples" if "n_test" in about else ""
    numbers = f"accuracy {test.accuracy:.4f}  loss {test.loss:.4f}  density {test.density:.4f}"
    console.print(f"Test{n_test}: {numbers}{more}")
    if test.metrics:
        console.print("  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in test.metrics.items()))
    if "frequencies" in about:
        console.print(f"From the frequency of tokens alone: perplexity {about['frequencies']['perplexity']:.1f}")
    if "mismatched" in about:
        other = about["mismatched"]
        console.print(f"Mismatched, {other['n_test']:,} examples: accuracy {other['accuracy']:.4f}")


def study_table(result: dict[str, Any]) -> Table:
    """The tests of a study, one row per trial: mean ± deviation over its seeds, given the study's summary."""
    rows = []
    for trial, title in result["titles"].items():
        runs = [run for run in result["runs"] if run["trial"] == trial]
        accuracies = [100 * run["test"]["accuracy"] for run in runs]
        spread = f" ± {stdev(accuracies):.2f}" if len(runs) > 1 else ""
        density, loss = (mean(run["test"][name] for run in runs) for name in ("density", "loss"))
        cells = f"{mean(accuracies):.2f}{spread}", f"{min(accuracies):.2f}", f"{100 * density:.2f}", f"{loss:.3f}"
        seconds = mean(run["seconds"] for run in runs)
        rows.append((title, str(len(runs)), *cells, f"{runs[0]['n_parameters']:,}", f"{seconds:.0f}"))
    if "chance" in result["runs"][0]:
        chance = f"{100 * result['runs'][0]['chance']:.2f}"
        rows.append(("always the commonest label", "", chance, "", "", "", "", ""))
    headings = ("attention", "seeds", "accuracy, %", "worst", "density, %", "loss", "parameters", "seconds")
    return Table("study", f"Test: {result['title']}", headings, tuple(rows))


def check_targets(json: Path | None = None, figure: Path | None = None) -> None:
    """Checks before the work, not after it, that its results can be written."""
    if figure is not None:
        from sbmt.experiments.plots.style import figure_format

        figure_format(figure)
    check_writable(json, figure)


def progress_bars(console: Console, last_column: ProgressColumn | None = None) -> Progress:
    """Bars to be shown while a ``with`` block runs; they end with how many parts are done, unless told otherwise."""
    return Progress(
        TextColumn("{task.description:<25}", markup=False),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        last_column or MofNCompleteColumn(),
        console=console,
    )


def training_bars(console: Console) -> Progress:
    """The same, but they end with the field ``numbers`` of each task."""
    return progress_bars(console, TextColumn("{task.fields[numbers]}", markup=False))


def numbers_of(step: Step) -> str:
    """Loss, accuracy and density of a training batch, and the fit of its block models, in a few words."""
    fit = "" if step.auxiliary_loss is None else f" fit {step.auxiliary_loss:.2f}"
    return f"loss {step.loss:.2f} acc {step.accuracy:.3f} dens {step.density:.3f}{fit}"


def run_with_bars(console: Console, study: Study, folder: Path, n_workers: int = 1) -> list[tuple[str, Run]]:
    """Runs a study, or what is left of it; shows a bar for the whole, and one for each run in progress."""
    steps = {(trial.name, seed): study.config.override(**trial.settings).steps for trial, seed in study.plan()}
    titles = {(trial.name, seed): f"{trial.title} #{seed}" for trial, seed in study.plan()}
    done = dict.fromkeys(steps, 0)
    with training_bars(console) as progress:
        whole = progress.add_task(study.title, total=sum(steps.values()), numbers="")
        bars = {run: progress.add_task(titles[run], total=n, numbers="", visible=False) for run, n in steps.items()}

        def report(name: str, seed: int, step: Step | int) -> None:
            run = name, seed
            done[run] = step if isinstance(step, int) else step.number
            numbers = "" if isinstance(step, int) else numbers_of(step)
            is_running = 0 < done[run] < steps[run]
            progress.update(bars[run], completed=done[run], numbers=numbers, visible=is_running)
            n_finished = sum(done[run] == n for run, n in steps.items())
            progress.update(whole, completed=sum(done.values()), numbers=f"{n_finished}/{len(steps)} runs")

        return run_study(study, folder, n_workers=n_workers, report=report)

"""Live progress of training runs, benchmarks and other long loops."""

from pathlib import Path

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

from sbmt.experiments.studies.study import Study, run_study
from sbmt.experiments.training.run import Run, Step


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

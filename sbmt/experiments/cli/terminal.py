"""Output of the commands on the terminal: lines, tables, scores and live progress."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table as Printed

from sbmt.errors import printable
from sbmt.experiments.files import check_writable, write_json
from sbmt.experiments.studies.study import Study, run_study
from sbmt.experiments.tables import Table
from sbmt.experiments.training.run import Run, Step


def say(line: object) -> None:
    """Prints a line; control characters, which file names may contain, are escaped."""
    typer.echo(printable(line))


def print_table(found: Table) -> None:
    """Prints a table and its notes; rows that are wider than the terminal are not wrapped."""
    table = Printed(title=found.title)
    for number, heading in enumerate(found.headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in found.rows:
        table.add_row(*row)
    console = Console(markup=False)
    console.width = max(console.width, console.measure(table, options=console.options.update(width=1000)).maximum)
    console.print(table)
    for note in found.notes:
        say(f"– {note}.")


def print_scores(test: Any, about: dict[str, Any]) -> None:
    """Prints accuracy, loss, density and other metrics of a test; the rest is in the run's ``result.json``."""
    n_test = f", {about['n_test']:,} examples" if "n_test" in about else ""
    numbers = f"Test{n_test}: accuracy {test.accuracy:.4f}  loss {test.loss:.4f}  density {test.density:.4f}"
    if "interval" in about:
        numbers += f"   95 % interval {about['interval'][0]:.3f} to {about['interval'][1]:.3f}"
    say(numbers + (f"   chance {about['chance']:.3f}" if "chance" in about else ""))
    if test.metrics:
        say("  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in test.metrics.items()))


def study_table(result: dict[str, Any]) -> Table:
    """A row of medians over seeds per trial of a study, from its summary."""
    seeds = Counter(run["trial"] for run in result["runs"])
    rows = []
    for trial, title in result["titles"].items():
        found = result["medians"][trial]
        numbers = f"{100 * found['accuracy']:.2f}", f"{100 * found['density']:.2f}", f"{found['loss']:.3f}"
        rows.append((title, str(seeds[trial]), *numbers))
    headings = ("attention", "seeds", "accuracy, %", "density, %", "loss")
    return Table("study", f"Test: {result['title']}, medians over seeds", headings, tuple(rows))


def check_targets(json: Path | None = None, figure: Path | None = None) -> None:
    """Checks before a long computation that its results can be written."""
    if figure is not None:
        from sbmt.experiments.plots.style import figure_format

        figure_format(figure)
    check_writable(json, figure)


def publish(result: Any, tables: Iterable[Table], *paths: Path | None) -> None:
    """Writes numbers as JSON to all paths that are not None, and prints tables of them."""
    for path in filter(None, paths):
        write_json(path, result)
    for table in tables:
        print_table(table)


def progress_bars(last: str | None = None, *, quiet: bool = False) -> Progress:
    """Progress bars for a ``with`` block; they end with the task's field ``last``, or the number of finished parts."""
    end = TextColumn(f"{{task.fields[{last}]}}", markup=False) if last else MofNCompleteColumn()
    time = TimeRemainingColumn(compact=True, elapsed_when_finished=True)
    title = TextColumn("{task.description:<25}", markup=False)
    return Progress(title, BarColumn(bar_width=12), TaskProgressColumn(), time, end, disable=quiet)


def numbers_of(step: Step) -> str:
    """Loss, accuracy and density of a training batch, and the fit of its block models, in one line."""
    fit = "" if step.auxiliary_loss is None else f" fit {step.auxiliary_loss:.2f}"
    return f"loss {step.loss:.2f} acc {step.accuracy:.3f} dens {step.density:.3f}{fit}"


def run_with_bar(study: Study, folder: Path, n_workers: int = 1) -> list[tuple[str, Run]]:
    """Runs or resumes a study, with a bar that counts the steps of all its runs."""
    steps = {(trial.name, seed): study.config.override(**trial.settings).steps for trial, seed in study.plan()}
    done = dict.fromkeys(steps, 0)
    with progress_bars("numbers") as progress:
        bar = progress.add_task(study.title, total=sum(steps.values()), numbers="")

        def report(name: str, seed: int, step: Step | int) -> None:
            done[name, seed], numbers = (step, "") if isinstance(step, int) else (step.number, numbers_of(step))
            progress.update(bar, completed=sum(done.values()), numbers=f"{name} #{seed} {numbers}")

        return run_study(study, folder, n_workers=n_workers, report=report)

"""Tables of runs on the terminal."""

from collections import Counter
from collections.abc import Sequence
from statistics import mean, median, stdev
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Printed

from sbmt.experiments.studies.study import Trial
from sbmt.experiments.tables import LEFT_OUT, Table
from sbmt.experiments.training.run import Run


def study_table(title: str, trials: Sequence[Trial], runs: list[tuple[str, Run]]) -> Table:
    """Medians over seeds, one row per trial, with the worst accuracy if there are several seeds."""
    count = Counter(name for name, _ in runs)
    is_many, is_mixed = max(count.values()) > 1, len(set(count.values())) > 1
    seeds = "" if is_mixed or not is_many else f", medians of {max(count.values())} seeds"
    worst = ("worst",) if is_many else ()
    rows = []
    for trial in trials:
        mine = [run for name, run in runs if name == trial.name]
        accuracy, density, loss = (
            f"{median(getattr(run.test, name) for run in mine):.3f}" for name in ("accuracy", "density", "loss")
        )
        least = [f"{min(run.test.accuracy for run in mine):.3f}" for _ in worst]
        parameters = sum(p.numel() for p in mine[0].model.parameters())
        cells = accuracy, *least, density, loss, f"{parameters:,}", f"{median(run.seconds for run in mine):.0f}"
        rows.append((trial.title + (f" ({len(mine)})" if is_mixed else ""), *cells))
    headings = ("attention" + (" (seeds)" if is_mixed else ""), "accuracy", *worst, "density", "loss", "parameters")
    return Table("study", f"Unseen sequences: {title}{seeds}", (*headings, "seconds"), tuple(rows))


def long_range_table(results: dict[str, dict[str, Any]], settings: str) -> Table:
    """Test accuracy in percent, mean ± deviation over seeds, and mean density in brackets: a column per task."""
    titles = {trial: title for result in results.values() for trial, title in result["titles"].items()}
    origins = {task: result["runs"][0]["data"]["origin"] for task, result in results.items()}
    tasks = [task + ("" if origin == "official" else f" ({origin})") for task, origin in origins.items()]
    rows = [
        (title, *(accuracy_cell([r for r in result["runs"] if r["trial"] == trial]) for result in results.values()))
        for trial, title in titles.items()
    ]
    rows.append(("always the commonest label", *(f"{100 * r['runs'][0]['chance']:.2f}" for r in results.values())))
    title = f"Test accuracy in %, mean ± deviation over seeds (density in %); {settings}"
    return Table("long-range", title, ("attention", *tasks), tuple(rows))


def print_table(console: Console, found: Table) -> None:
    """Prints a table and its notes; all columns but the first are numbers."""
    table = Printed(title=found.title)
    for number, heading in enumerate(found.headings):
        table.add_column(heading, justify="right" if number else "left")
    for row in found.rows:
        table.add_row(*row)
    print_whole(console, table)
    for note in found.notes:
        console.print(f"– {note}.", highlight=False)


def print_whole(console: Console, table: Printed) -> None:
    """Prints a table without breaking a word or a number.

    In a terminal that is too narrow, cells are wrapped between words, the widest columns first; what then is still
    wider runs over the edge. A file or another command gets every row in a line.
    """
    columns = [[str(cell) for cell in (column.header, *column.cells)] for column in table.columns]
    widths = [max(map(cell_len, cells)) for cells in columns]
    least = [max(cell_len(word) for cell in cells for word in cell.split() or [""]) for cells in columns]
    frame = 3 * len(columns) + 1  # a blank on both sides of every cell, and the lines between them
    while console.is_terminal and sum(widths) + frame > console.width and widths != least:
        widest = max(range(len(widths)), key=lambda i: widths[i] if widths[i] > least[i] else 0)
        widths[widest] -= 1
    for column, width in zip(table.columns, widths, strict=True):
        column.width = width
    room = console.width
    console.width = max(room, sum(widths) + frame)
    console.print(table)
    console.width = room


def accuracy_cell(runs: list[dict[str, Any]]) -> str:
    """A cell of :func:`long_range_table`: ``37.60 ± 0.38 (24.64)``; no deviation for one seed, a dash for none."""
    if not runs:
        return LEFT_OUT
    accuracies = [100 * run["test"]["accuracy"] for run in runs]
    density = 100 * mean(run["test"]["density"] for run in runs)
    spread = f" ± {stdev(accuracies):.2f}" if len(runs) > 1 else ""
    return f"{mean(accuracies):.2f}{spread} ({density:.2f})"

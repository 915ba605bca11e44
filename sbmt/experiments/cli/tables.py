"""Results on the terminal, and the files that a command is asked to write."""

from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table as Printed

from sbmt.experiments.files import check_writable
from sbmt.experiments.tables import Table


def print_table(console: Console, found: Table) -> None:
    """Prints a table and its notes; all columns but the first are numbers.

    Only the first column is wrapped, between words: a row that is still too long for a terminal runs over its edge,
    and a file gets every row in one line.
    """
    table = Printed(title=found.title)
    for number, heading in enumerate(found.headings):
        table.add_column(heading, justify="right" if number else "left", no_wrap=number > 0)
    for row in found.rows:
        table.add_row(*row)
    first, *others = zip(found.headings, *found.rows, strict=True)
    longest = max(len(word) for cell in first for word in cell.split() or [""])
    least = longest + sum(max(map(len, cells)) for cells in others) + 3 * len(found.headings) + 1
    room = console.width
    console.width = max(room, least) if console.is_terminal else 1000
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
        density, loss, seconds = (
            mean(column)
            for column in zip(*((r["test"]["density"], r["test"]["loss"], r["seconds"]) for r in runs), strict=True)
        )
        cells = f"{mean(accuracies):.2f}{spread}", f"{min(accuracies):.2f}", f"{100 * density:.2f}", f"{loss:.3f}"
        rows.append((title, str(len(runs)), *cells, f"{runs[0]['n_parameters']:,}", f"{seconds:.0f}"))
    if "chance" in result["runs"][0]:
        chance = f"{100 * result['runs'][0]['chance']:.2f}"
        rows.append(("always the commonest label", "", chance, "", "", "", "", ""))
    headings = ("attention", "seeds", "accuracy, %", "worst", "density, %", "loss", "parameters", "seconds")
    return Table("study", f"Test: {result['title']}", headings, tuple(rows))


def check_targets(json: Path | None = None, figure: Path | None = None) -> None:
    """Checks before the work, not after it, that its results can be written."""
    if figure is not None:
        from sbmt.experiments.plots.save import figure_format

        figure_format(figure)
    check_writable(json, figure)

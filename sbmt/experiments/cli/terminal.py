"""Output of the commands on the terminal: lines, tables, scores and live progress."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from sbmt.errors import printable
from sbmt.experiments.files import write_bytes, write_json
from sbmt.experiments.training.run import Step


def say(line: object) -> None:
    """Prints a line, escaping control characters, which file names may contain."""
    typer.echo(printable(line))


def print_table(table: Table, path: Path | None = None) -> None:
    """Prints a table without wrapping rows wider than the terminal, and writes it to a Markdown file, if any."""
    for column in table.columns[1:]:
        column.justify = "right"
    console = Console(markup=False, width=1000, color_system=None)
    console.print(table)
    if path is not None:
        text = table.title, table.caption
        table.title, table.caption, table.box = None, None, MARKDOWN
        with console.capture() as written:
            console.print(table)
        write_bytes(path, f"\n\n{written.get().strip()}\n\n".join(map(str, text)).encode())


def print_scores(test: Any, about: dict[str, Any]) -> None:
    """Prints the accuracy, loss, density and other metrics of a test; ``result.json`` has all numbers."""
    n_test = f", {about['n_test']:,} examples" if "n_test" in about else ""
    numbers = f"Test{n_test}: accuracy {test.accuracy:.4f}  loss {test.loss:.4f}  density {test.density:.4f}"
    if "interval" in about:
        numbers += f"   95 % interval {about['interval'][0]:.3f} to {about['interval'][1]:.3f}"
    say(numbers + (f"   chance {about['chance']:.3f}" if "chance" in about else ""))
    if test.metrics:
        say("  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in test.metrics.items()))


def publish(result: Any, tables: Iterable[Table], *paths: Path | None) -> None:
    """Writes results as JSON to all paths that are not None, and prints them as tables."""
    for path in filter(None, paths):
        write_json(path, result)
    for table in tables:
        print_table(table)


def numbers_of(step: Step) -> str:
    """Returns the loss, accuracy and density of a training batch on one line."""
    return f"loss {step.loss:.2f} acc {step.accuracy:.3f} dens {step.density:.3f}"

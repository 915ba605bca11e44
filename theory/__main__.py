"""Runs ``python -m theory``, which prints the full report, checks a single statement, or certifies one case."""

import io
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track

from sbmt.command import run_command
from sbmt.errors import SbmtError, choose
from sbmt.experiments.files import write_bytes
from theory.certificate import certify
from theory.patterns import three_patterns
from theory.report import draw_certificate, run, table
from theory.statements import STATEMENTS

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    n: Annotated[int | None, typer.Option(help="number of tokens of a case to certify instead of a report")] = None,
    k: Annotated[int | None, typer.Option(help="number of blocks of that case")] = None,
    relays: Annotated[
        str | None, typer.Option(help="last (the default), per_block, or a comma-separated list of tokens")
    ] = None,
    order: Annotated[str | None, typer.Option(help="order of the three patterns, such as 321")] = None,
    only: Annotated[str | None, typer.Option(help="name of a single statement to check")] = None,
    output: Annotated[Path, typer.Option(help="folder for the figures of the patterns")] = Path("runs/theory"),
    json_file: Annotated[Path | None, typer.Option("--json", help="file to which the results are also written")] = None,
) -> None:
    """Check the statements of the paper's theory, and our corrections of them, numerically.

    The exit code is 0 only if every statement is confirmed; heuristics are reported but do not count. With --n and --k,
    the exit code is 0 if all three conditions are proved, and 1 otherwise.
    """
    console = Console()
    if (n is None) != (k is None):
        raise SbmtError("--n and --k together", "only one", "give both to certify a case, or neither for the report")
    if n is not None and k is not None:
        if only is not None:
            raise SbmtError("either --only or --n and --k", "all of them", "omit --only to certify a case")
        certificate = certify(three_patterns(n, k, _relays(relays)), _layers(order))
        console.print(certificate.text(), markup=False, highlight=False, soft_wrap=True)
        _write(json_file, certificate.to_json())
        raise typer.Exit(0 if certificate.outcome == "proved" else 1)
    if relays is not None or order is not None:
        raise SbmtError("--order and --relays apply only when a case is certified: give --n and --k")
    chosen = STATEMENTS if only is None else [choose("statement", only, {one.name: one for one in STATEMENTS})]
    results = run(track(chosen, "checking", console=Console(stderr=True)))
    console.print(table(results))
    if only is None:
        paths = [_draw(output, order) for order in ("123", "321")]
        console.print(f"Pictures: {', '.join(map(str, paths))}", markup=False, highlight=False, soft_wrap=True)
    _write(json_file, json.dumps([result.to_dict() for result in results], indent=1, ensure_ascii=False))
    raise typer.Exit(1 if any(result.outcome == "NOT as stated" for result in results) else 0)


def _relays(given: str | None) -> str | list[int]:
    if given in (None, "last", "per_block"):
        return given or "last"
    try:
        return [int(token) for token in given.split(",")]
    except ValueError:
        do = "use one of these forms"
        raise SbmtError("--relays last, per_block, or tokens such as 3,7,11", repr(given), do) from None


def _layers(order: str | None) -> list[int] | None:
    if order is not None and not (order.isascii() and order.isdigit()):
        raise SbmtError("--order as digits, such as 321", repr(order), "give the order of the patterns in digits only")
    return None if order is None else [int(digit) for digit in order]


def _draw(folder: Path, order: str) -> Path:
    """Draws the paper's patterns for n = 16 and k = 4 in the given order, and returns the path of the figure."""
    patterns, buffer = three_patterns(16, 4), io.BytesIO()
    figure = draw_certificate(certify(patterns, _layers(order)), patterns)
    figure.savefig(buffer, format="png", metadata={"Software": None})
    path = folder / f"three_patterns_{order}.png"
    write_bytes(path, buffer.getvalue())
    return path


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        write_bytes(path, f"{text}\n".encode())


if __name__ == "__main__":
    run_command(app, "theory")

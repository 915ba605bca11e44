"""``python -m theory``: the full report, or the certificate of one case."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from sbmt.command import run_command
from sbmt.errors import SbmtError
from sbmt.experiments.files import write_bytes
from theory.certificate import certify
from theory.patterns import three_patterns
from theory.report import draw_pictures, is_as_stated, run, table
from theory.statements import STATEMENTS, Statement

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def main(
    n: Annotated[int | None, typer.Option(help="tokens: certify this case instead of reporting")] = None,
    k: Annotated[int | None, typer.Option(help="blocks of that case")] = None,
    relays: Annotated[
        str | None, typer.Option(help="last (the default), per_block, or a comma-separated list of tokens")
    ] = None,
    order: Annotated[str | None, typer.Option(help="order of the three patterns, such as 321")] = None,
    output: Annotated[Path, typer.Option(help="folder of the pictures")] = Path("runs/theory"),
    json_file: Annotated[Path | None, typer.Option("--json", help="also write the numbers here")] = None,
) -> None:
    """Check numerically what the paper's theory says, and what holds instead.

    Exit code 0 only if every statement came out as stated; heuristics are reported, not passed. With --n and --k: 0 if
    all three conditions are proved, otherwise 1.
    """
    console = Console()
    if (n is None) != (k is None):
        raise SbmtError("--n and --k together", "one of them", "give both to certify a case, none for the report")
    if n is not None and k is not None:
        named = "last" if relays is None else relays
        chosen = named if named in ("last", "per_block") else _tokens(named)
        layers = None if order is None else _digits(order)
        certificate = certify(three_patterns(n, k, chosen), layers)
        console.print(certificate.text(), markup=False, highlight=False, soft_wrap=True)
        _write(json_file, certificate.to_json())
        raise typer.Exit(0 if certificate.outcome == "proved" else 1)
    if relays is not None or order is not None:
        raise SbmtError("--n and --k beside --order and --relays", "none", "give a case to certify")
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("checking", total=len(STATEMENTS) + 1)

        def start(statement: Statement) -> None:
            progress.update(task, advance=1, description=f"{statement.name:<40}")

        results = run(on_start=start)
        progress.update(task, advance=1, description="pictures")
        paths = draw_pictures(output)
    console.print(table(results))
    console.print(f"Pictures: {', '.join(map(str, paths))}", markup=False, highlight=False, soft_wrap=True)
    _write(json_file, json.dumps([result.to_dict() for result in results], indent=1, ensure_ascii=False))
    raise typer.Exit(0 if is_as_stated(results) else 1)


def _tokens(relays: str) -> list[int]:
    try:
        return [int(token) for token in relays.split(",")]
    except ValueError:
        raise SbmtError(
            "relays 'last', 'per_block' or tokens such as 3,7,11", repr(relays), "use one of those"
        ) from None


def _digits(order: str) -> list[int]:
    if not (order.isascii() and order.isdigit()):
        raise SbmtError("an order of the patterns in digits, such as 321", repr(order), "write the digits alone")
    return [int(digit) for digit in order]


def _write(path: Path | None, text: str) -> None:
    if path is not None:
        write_bytes(path, f"{text}\n".encode())


if __name__ == "__main__":
    run_command(app, "theory")

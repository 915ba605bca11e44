"""``sbmt bench``: times and memory, side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.cli.progress import case_progress
from sbmt.cli.tables import print_table
from sbmt.errors import SbmtError
from sbmt.files import check_writable, write_json


def bench(
    suite: Annotated[
        list[str] | None,
        typer.Option(help="attention, sampler, backends or memory; repeat it for several; all if left out"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a few small cases, about a minute")] = False,
    threads: Annotated[int | None, typer.Option(help="threads to compute with; torch's choice if left out")] = None,
    json: Annotated[Path | None, typer.Option(help="where the numbers go, written after each suite")] = None,
    figure: Annotated[Path | None, typer.Option(help="where the figure of the attention suite goes")] = None,
) -> None:
    """Measure speed and memory against full attention and other ways to do the same.

    All contestants of a case take turns in one process. A ratio is the median over rounds of the time divided by the
    reference's time in the same round, so 0.5 means twice as fast.
    """
    from sbmt.benchmarks import run_suites, tables_of

    _check_targets(suite, json, figure)
    console = Console(markup=False)

    def report(name: str, result: dict[str, Any]) -> None:
        if json is not None:
            write_json(json, result)
        for table in tables_of(result, [name]):
            print_table(console, table)

    with case_progress(console) as progress:
        result = run_suites(suite or (), is_quick=quick, threads=threads, on_case=progress.case, on_suite=report)
    about = result["manifest"]
    console.print(f"{about['processor']}, {about['threads']} threads, torch {about['torch']}", highlight=False)
    if json is not None:
        console.print(f"Numbers: {json}")
    if figure is not None:
        from sbmt.plots.benchmarks import draw_benchmarks

        draw_benchmarks(result, figure)
        console.print(f"Figure: {figure}")


def _check_targets(suite: list[str] | None, json: Path | None, figure: Path | None) -> None:
    """Finds out before the measurements, not after, that their result could not be kept."""
    if json is not None:
        check_writable(json)
    if figure is not None:
        from sbmt.plots.save import figure_format

        figure_format(figure)
        if suite and "attention" not in suite:
            raise SbmtError("the suite attention for --figure", ", ".join(suite), "add --suite attention")

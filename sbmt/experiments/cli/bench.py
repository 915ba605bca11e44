"""``sbmt bench``: time and memory of many ways to attend, side by side."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.errors import SbmtError
from sbmt.experiments.cli.progress import progress_bars
from sbmt.experiments.cli.tables import print_table
from sbmt.experiments.files import check_writable, read_json, write_json


def bench(
    suite: Annotated[
        list[str] | None,
        typer.Option(
            help="attention, fitted, sampler, backends or memory; gpu; repeat it for several; the device's if left out"
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda, which has a suite of its own: gpu")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="a few small cases, about a minute")] = False,
    threads: Annotated[int | None, typer.Option(help="threads to compute with; torch's choice if left out")] = None,
    json: Annotated[Path | None, typer.Option(help="where the numbers go, written after each suite or case")] = None,
    figure: Annotated[Path | None, typer.Option(help="where the figure of the attention suite goes")] = None,
    minutes: Annotated[float | None, typer.Option(help="with cuda: begin no further case after this time")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="with cuda: add the cases that --json does not hold")
    ] = False,
) -> None:
    """Measure speed and memory against full attention and other implementations.

    All contestants of a case take turns in one process. A ratio is the median over rounds of the time divided by the
    reference's time in the same round, so 0.5 means twice as fast.
    """
    from sbmt.experiments.benchmarks import run_suites, tables_of

    _check_targets(suite, device, json, figure)
    if resume and (json is None or not json.exists()):
        got = "none" if json is None else f"{json}, which is not there"
        raise SbmtError("the file of --json with --resume", got, "name the file that holds the earlier cases")
    console = Console(markup=False)

    def keep(result: dict[str, Any]) -> None:
        if json is not None:
            write_json(json, result)

    with progress_bars(console) as progress:
        result = run_suites(
            suite or (),
            is_quick=quick,
            threads=threads,
            device=device,
            minutes=minutes,
            before=read_json(json) if resume and json is not None else None,
            track=progress.track,
            on_found=keep,
        )
    for table in tables_of(result):
        print_table(console, table)
    about = result["manifest"]
    gpu = f"{about['gpu']}, CUDA {about['cuda']}, triton {about['triton']}; " if "gpu" in about else ""
    console.print(f"{gpu}{about['processor']}, {about['threads']} threads, torch {about['torch']}", highlight=False)
    if json is not None:
        console.print(f"Numbers: {json}")
    if figure is not None:
        from sbmt.experiments.plots.benchmarks import draw_benchmarks

        draw_benchmarks(result, figure)
        console.print(f"Figure: {figure}")


def _check_targets(suite: list[str] | None, device: str, json: Path | None, figure: Path | None) -> None:
    """Checks before the measurements, not after them, that the result can be written."""
    check_writable(json)
    if figure is not None:
        from sbmt.experiments.plots.save import check_figure

        check_figure(figure)
        if device != "cpu" or (suite and not {"attention", "fitted"} & set(suite)):
            got = ", ".join(suite or [f"those of {device}"])
            raise SbmtError("the suite attention or fitted for --figure", got, "add --suite attention")

"""``sbmt bench`` and ``sbmt cost``: time and memory of ways to attend, and operations of many attentions."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.experiments.cli.terminal import check_targets, print_table, progress_bars, write_result
from sbmt.experiments.training.run import manifest

DENSITY = 0.01
Names = list[str] | None


def bench(
    suite: Annotated[Names, typer.Option(help="attention or fitted; both if left out")] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    quick: Annotated[bool, typer.Option("--quick", help="a few small cases, about a minute")] = False,
    threads: Annotated[int | None, typer.Option(help="threads to compute with; torch's choice if left out")] = None,
    json: Annotated[Path | None, typer.Option(help="where the numbers go, written after each suite")] = None,
) -> None:
    """Measure speed and memory against full attention and other implementations.

    All contestants of a case take turns in one process. A ratio is the median over rounds of the time divided by the
    reference's time in the same round, so 0.5 means twice as fast.
    """
    from sbmt.experiments.benchmarks import run_suites, tables_of

    check_targets(json)
    console = Console(markup=False)
    with progress_bars(console) as progress:
        options: dict[str, Any] = {"threads": threads, "device": device, "track": progress.track}
        result = run_suites(suite or (), is_quick=quick, **options, on_found=lambda found: write_result(found, json))
    for table in tables_of(result):
        print_table(console, table)
    about = result["manifest"]
    gpu = f"{about['gpu']}, CUDA {about['cuda']}; " if "gpu" in about else ""
    console.print(f"{gpu}{about['processor']}, {about['threads']} threads, torch {about['torch']}", highlight=False)


def cost(
    attention: Annotated[Names, typer.Option(help="name of an attention (repeatable); all if left out")] = None,
    length: Annotated[list[int] | None, typer.Option(help="tokens (repeatable); the paper's tasks if left out")] = None,
    density: Annotated[float | None, typer.Option(help=f"of masks; the paper's, or {DENSITY} with --length")] = None,
    json: Annotated[Path | None, typer.Option(help="where the numbers go")] = None,
) -> None:
    """Count the operations of a forward pass, relative to full attention.

    The models are those of the paper's Table 7: 2 layers, 2 heads of width 32, 128 clusters; one example at a time,
    without gradients. FLOPs are of matrix products, a multiply-add as 2.
    """
    from sbmt.experiments.costs import Column, cost_report, cost_tables, paper_columns

    check_targets(json)
    columns = [Column(f"n = {n:,}", n, DENSITY) for n in length] if length else paper_columns()
    if density is not None:
        columns = [replace(column, density=density) for column in columns]
    console = Console(markup=False)
    report = cost_report(attention or (), columns)
    for table in cost_tables(report):
        print_table(console, table)
    write_result(report | {"manifest": manifest()}, json)

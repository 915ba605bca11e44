"""``sbmt cost``: operations and memory of every attention, as the paper's Table 3 has them."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from sbmt.errors import SbmtError
from sbmt.experiments.cli.progress import progress_bars
from sbmt.experiments.cli.tables import print_table
from sbmt.experiments.files import check_writable, write_json

if TYPE_CHECKING:
    from sbmt.experiments.costs.report import Column

DENSITY = 0.01


def cost(
    attention: Annotated[
        list[str] | None,
        typer.Option(
            help="full-fused, linear, reformer, routing, performer, linformer, nystromformer, sbm, sbm-algorithm-1, "
            "sbm-static or random-mask, or one of your own; repeat it for several; all if left out"
        ),
    ] = None,
    length: Annotated[
        list[int] | None,
        typer.Option(help="tokens per sequence; repeat it for several; the five tasks of the paper if left out"),
    ] = None,
    density: Annotated[
        float | None,
        typer.Option(
            help="density of the masks, in (0, 1) (default: what the paper's models have on each task, or "
            f"{DENSITY} with --length)"
        ),
    ] = None,
    memory: Annotated[bool, typer.Option(help="whether to measure memory, about a minute in all")] = True,
    parts: Annotated[
        bool, typer.Option("--parts", help="also list where operations are, for each --attention")
    ] = False,
    json: Annotated[Path | None, typer.Option(help="where the numbers go")] = None,
) -> None:
    """Count the operations of a forward pass and measure its peak memory, both relative to full attention.

    The models are those of the paper's Table 7: 2 layers, 2 heads of width 32, 128 clusters; one example at a time,
    without gradients. FLOPs are of matrix products, a multiply-add as 2.
    """
    from sbmt.experiments.costs.methods import Case
    from sbmt.experiments.costs.report import cost_report, count_case
    from sbmt.experiments.costs.tables import cost_tables, parts_table
    from sbmt.experiments.training.run import manifest

    if parts and not attention:
        raise SbmtError("an --attention with --parts", "none", "name one, such as --attention sbm")
    check_writable(json)  # before the measurements, not after them
    columns = _columns(length, density)
    console = Console(markup=False)
    with progress_bars(console) as progress:
        report = cost_report(attention or (), columns, has_memory=memory, track=progress.track)
    for table in cost_tables(report):
        print_table(console, table)
    for name in (attention or ()) if parts else ():
        for column in columns:
            count = count_case(Case(name, column.n, column.density, column.task))
            print_table(console, parts_table(count, f"{name}, {column.title}"))
    if json is not None:
        write_json(json, report | {"manifest": manifest()})
        console.print(f"Numbers: {json}", highlight=False)


def _columns(lengths: list[int] | None, density: float | None) -> "tuple[Column, ...]":
    from sbmt.experiments.costs.report import columns_of, paper_columns

    if lengths:
        return columns_of(lengths, DENSITY if density is None else density)
    columns = paper_columns()
    return columns if density is None else tuple(replace(column, density=density) for column in columns)

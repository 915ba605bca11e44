"""``sbmt study``: trains every run behind a figure or table of the documentation."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sbmt.errors import choose
from sbmt.experiments.cli.progress import run_with_bars
from sbmt.experiments.cli.tables import long_range_table, print_table, study_table
from sbmt.experiments.files import check_writable, write_json
from sbmt.experiments.studies.equal_edges import EQUAL_EDGES_STUDIES
from sbmt.experiments.studies.long_range import LONG_RANGE_STUDIES
from sbmt.experiments.studies.recall import RECALL_STUDY
from sbmt.experiments.studies.repeated_tokens import STUDIES
from sbmt.experiments.studies.study import Study, summary
from sbmt.experiments.studies.unseen import UNSEEN_STUDIES


def all_studies() -> dict[str, Study]:
    """Every study by name."""
    return STUDIES | UNSEEN_STUDIES | {RECALL_STUDY.name: RECALL_STUDY} | LONG_RANGE_STUDIES | EQUAL_EDGES_STUDIES


def study(
    name: Annotated[str, typer.Argument(help=f"one of: {', '.join(all_studies())}")],
    output: Annotated[Path | None, typer.Option(help="folder of the runs", show_default="runs/NAME")] = None,
    json: Annotated[Path | None, typer.Option(help="also write the results here")] = None,
    figure: Annotated[Path | None, typer.Option(help="also draw curves, and accuracy against density, here")] = None,
    workers: Annotated[int, typer.Option(help="processes, each with one thread")] = 1,
) -> None:
    """Run a study of a synthetic task, or a reduced one of a long-range task: several trials on several seeds.

    An interrupted study is resumed. The numbers are the same for any number of workers of at least 2; with 1, training
    uses all of torch's threads.
    """
    chosen = choose("study", name, all_studies())
    check_writable(json)  # before the hours of training, not after them
    if figure is not None:
        from sbmt.experiments.plots.save import check_figure

        check_figure(figure)
    folder = output or Path("runs") / name
    console = Console(markup=False)
    runs = run_with_bars(console, chosen, folder, workers)
    result = summary(chosen, runs)
    for path in filter(None, (folder / "result.json", json)):
        write_json(path, result)
    if figure is not None:
        from sbmt.experiments.plots.study import draw_study

        draw_study(result, figure)
    if "chance" in result["runs"][0]:
        print_table(console, long_range_table({name: result}, "reduced"))
    else:
        print_table(console, study_table(chosen.title, chosen.trials, runs))
    console.print(f"Runs and numbers: {folder}", highlight=False)

"""``sbmt glue``: the paper's Table 4, attention by attention."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sbmt.errors import check_sizes
from sbmt.experiments.cli.progress import run_with_bars
from sbmt.experiments.cli.tables import print_table
from sbmt.experiments.files import check_writable, write_json
from sbmt.experiments.studies.language import DEFAULT, TRIALS, glue_accuracy_table, glue_f1_table, mlm_table
from sbmt.experiments.training.tasks import EPOCHS, GLUE_TASKS


def glue(
    trial: Annotated[
        list[str], typer.Option(help=f"may be given several times; of: {', '.join(TRIALS)}", show_default=False)
    ] = list(DEFAULT),  # noqa: B006
    task: Annotated[list[str], typer.Option(help="may be given several times", show_default=False)] = list(GLUE_TASKS),  # noqa: B006
    seeds: Annotated[int, typer.Option(help="runs of fine-tuning per attention and task")] = 1,
    epochs: Annotated[
        int | None, typer.Option(help=f"passes over a task's examples; {EPOCHS}, or fewer if reduced")
    ] = None,
    reduced: Annotated[bool, typer.Option("--reduced", help="minutes on one core a run, instead of Table 7")] = False,
    output: Annotated[Path, typer.Option(help="folder of the runs and the numbers")] = Path("runs/glue"),
    json: Annotated[Path | None, typer.Option(help="also write the results here")] = None,
    figure: Annotated[Path | None, typer.Option(help="also draw accuracy against density, task by task, here")] = None,
    workers: Annotated[int, typer.Option(help="processes, each with one thread")] = 1,
) -> None:
    """Pre-train several attentions, fine-tune each on the four tasks, and print the paper's Table 4 beside them.

    Random masks have the window of sbm and the edge probability that it reaches on the same task and seed. What was
    interrupted goes on where it stopped. Prepare the data first: sbmt data prepare corpus, sst2, qqp, mnli, qnli.
    """
    from sbmt.experiments.studies.language import run_language_studies

    check_sizes(seeds=seeds, workers=workers, **({} if epochs is None else {"epochs": epochs}))
    check_writable(json)  # before the hours of training, not after them
    if figure is not None:
        from sbmt.experiments.plots.save import check_figure

        check_figure(figure)
    console = Console(markup=False)
    results = run_language_studies(
        trial,
        task,
        output,
        n_seeds=seeds,
        epochs=epochs,
        is_reduced=reduced,
        n_workers=workers,
        run=partial(run_with_bars, console),
    )
    for path in filter(None, (output / "result.json", json)):
        write_json(path, results)
    for table in (mlm_table(results["mlm"]), glue_accuracy_table(results), glue_f1_table(results)):
        print_table(console, table)
    if figure is not None:
        from sbmt.experiments.plots.study import draw_glue

        draw_glue(results, figure)
    console.print(f"Runs and numbers: {output}", highlight=False)

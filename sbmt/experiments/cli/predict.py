"""``sbmt predict``: answers for GLUE's server."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sbmt.errors import SbmtError, check_seed
from sbmt.experiments.data.glue import read_glue
from sbmt.experiments.files import check_writable, write_bytes
from sbmt.experiments.training.evaluate import predict_labels, submission
from sbmt.experiments.training.run import load_run, read_config
from sbmt.experiments.training.tasks.language import GlueConfig


def predict(
    run: Annotated[Path, typer.Argument(help="folder of a run of sbmt train glue")],
    table: Annotated[Path, typer.Argument(help="its task's table without labels, such as GLUE's test.tsv")],
    output: Annotated[Path, typer.Option(help="where the answers go")] = Path("predictions.tsv"),
    n_samples: Annotated[int, typer.Option(help="masks drawn per row; logits are averaged")] = 1,
    seed: Annotated[int, typer.Option(help="seed of the masks")] = 0,
) -> None:
    """Answer the rows of a table without labels, in the form that GLUE's server takes."""
    config = read_config(run)
    if not isinstance(config, GlueConfig):
        raise SbmtError("a run of sbmt train glue", run, "name another folder")
    check_seed(seed)
    check_writable(output)
    console = Console(markup=False)
    rows = read_glue(table, config.task, is_labelled=False)
    with console.status(f"{len(rows):,} rows"):
        predicted = predict_labels(load_run(run), rows, n_samples=n_samples, seed=seed)
    write_bytes(output, submission(config.task, rows, predicted).encode())
    skipped = f"; {rows.n_skipped} rows too short to have an answer" if rows.n_skipped else ""
    console.print(f"{len(rows):,} answers: {output}{skipped}", highlight=False)

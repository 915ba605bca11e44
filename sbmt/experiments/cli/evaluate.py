"""``sbmt evaluate`` and ``sbmt predict``: what a trained model answers."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sbmt.errors import SbmtError, check_seed
from sbmt.experiments.cli.terminal import print_scores
from sbmt.experiments.data.glue import read_glue
from sbmt.experiments.files import check_writable, write_bytes
from sbmt.experiments.training import evaluate as evaluate_run
from sbmt.experiments.training.evaluate import predict_labels, submission
from sbmt.experiments.training.run import load_run, read_config
from sbmt.experiments.training.tasks import GlueConfig, RecallConfig


def evaluate(
    run: Annotated[Path, typer.Argument(help="folder of a run")],
    sequences: Annotated[
        int, typer.Option(help="test examples or blocks; new ones where sequences are generated")
    ] = 1024,
    n_samples: Annotated[int, typer.Option(help="masks drawn per sequence; logits are averaged")] = 1,
    seed: Annotated[int, typer.Option(help="seed of the masks, and of generated sequences")] = 0,
    distractors: Annotated[
        int | None, typer.Option(help="recall: another number of distractors than in training")
    ] = None,
) -> None:
    """Evaluate a run on sequences that it was not trained on."""
    loaded = load_run(run)
    if distractors is not None:
        if not isinstance(loaded.config, RecallConfig):
            raise SbmtError("--distractors for a run of sbmt train recall", loaded.config.task, "leave it out")
        loaded = replace(loaded, config=replace(loaded.config, n_distractors=distractors))
    scores = evaluate_run(loaded, sequences, n_samples=n_samples, seed=seed)
    print_scores(Console(markup=False), scores, {"n_test": scores.n_examples})


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
    if output.exists() and table.exists() and output.samefile(table):
        raise SbmtError("another file for the answers", f"{output}, which holds the questions", "name a new one")
    console = Console(markup=False)
    rows = read_glue(table, config.task, is_labelled=False)
    with console.status(f"{len(rows):,} rows"):
        predicted = predict_labels(load_run(run), rows, n_samples=n_samples, seed=seed)
    write_bytes(output, submission(config.task, rows, predicted).encode())
    skipped = f"; {rows.n_skipped} rows too short to have an answer" if rows.n_skipped else ""
    console.print(f"{len(rows):,} answers: {output}{skipped}", highlight=False)

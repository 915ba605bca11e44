"""``sbmt evaluate``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.errors import SbmtError
from sbmt.experiments.training import evaluate as evaluate_run
from sbmt.experiments.training.run import load_run
from sbmt.experiments.training.tasks import RecallConfig


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


def print_scores(console: Console, test: Any, about: dict[str, Any]) -> None:
    """Prints accuracy, loss and density on the test examples, and what else the result holds.

    Args:
        console: Where to print.
        test: Scores, or an evaluation.
        about: See :func:`~sbmt.experiments.training.run.describe`.
    """
    more = f"   95 % interval {about['interval'][0]:.3f} to {about['interval'][1]:.3f}" if "interval" in about else ""
    chance = f"   chance {about['chance']:.3f}" if "chance" in about else ""
    n_test = f", {about['n_test']:,} examples" if "n_test" in about else ""
    console.print(
        f"Test{n_test}: accuracy {test.accuracy:.4f}  loss {test.loss:.4f}  density {test.density:.4f}{more}{chance}"
    )
    if test.metrics:
        console.print("  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in test.metrics.items()))
    if "frequencies" in about:
        console.print(f"From the frequency of tokens alone: perplexity {about['frequencies']['perplexity']:.1f}")
    if "mismatched" in about:
        other = about["mismatched"]
        console.print(f"Mismatched, {other['n_test']:,} examples: accuracy {other['accuracy']:.4f}")

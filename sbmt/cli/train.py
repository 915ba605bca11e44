"""``sbmt train`` and ``sbmt evaluate``."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.cli.options import with_fields_of
from sbmt.cli.progress import training_progress
from sbmt.errors import SbmtError, choose
from sbmt.training.config import SIZES, RepeatedTokensConfig
from sbmt.training.evaluate import Evaluation
from sbmt.training.evaluate import evaluate as evaluate_model
from sbmt.training.loop import CHECKPOINT_EVERY, train
from sbmt.training.runs import load_run

train_app = typer.Typer(help="Train a model on a task.", no_args_is_help=True)


@train_app.callback()
def _tasks() -> None:
    """Train a model on a task."""


@train_app.command("repeated-tokens")
@with_fields_of(RepeatedTokensConfig)
def repeated_tokens(
    output: Annotated[Path, typer.Option(help="folder of the run")] = Path("runs/repeated-tokens"),
    size: Annotated[str, typer.Option(help="named settings: demo, or paper (256 tokens, batch 256)")] = "demo",
    resume: Annotated[bool, typer.Option("--resume", help="go on from the folder's checkpoint")] = False,
    **overrides: Any,
) -> None:
    """Mark the tokens whose value occurs elsewhere in the sequence (the paper's synthetic task).

    The defaults shown are those of --size demo.
    """
    config = choose("size", size, SIZES).override(**overrides)
    console = Console()
    try:
        with training_progress(console) as progress:
            progress.start(f"{config.attention} on repeated tokens", config.steps)
            run = train(config, output, resume=resume, on_step=progress.step)
    except KeyboardInterrupt:
        if (output / "state.safetensors").exists():
            console.print(f"Stopped. A checkpoint is kept every {CHECKPOINT_EVERY} steps: go on with --resume.")
        raise
    _print(console, run.test)
    console.print(f"Run: {output}")


def evaluate(
    run: Annotated[Path, typer.Argument(help="folder of a run")],
    sequences: Annotated[int, typer.Option(help="unseen sequences")] = 1024,
    n_samples: Annotated[int, typer.Option(help="masks drawn per sequence; logits are averaged")] = 1,
    seed: Annotated[int, typer.Option(help="seed of sequences and masks")] = 0,
) -> None:
    """Evaluate a run on unseen sequences."""
    if seed < 0:
        raise SbmtError("seed ≥ 0", seed, "give a non-negative integer")
    loaded = load_run(run)
    _print(Console(), evaluate_model(loaded.model, loaded.config.length, sequences, n_samples=n_samples, seed=seed))


def _print(console: Console, test: Evaluation) -> None:
    console.print(f"Unseen sequences: accuracy {test.accuracy:.4f}  loss {test.loss:.4f}  density {test.density:.4f}")

"""Trains on prepared examples with a bar, and says how it went."""

from pathlib import Path
from typing import Any

from rich.console import Console

from sbmt.experiments.cli.progress import training_progress
from sbmt.experiments.training.sequence_config import SequenceConfig


def fit_and_print(config: SequenceConfig, output: Path, *, resume: bool, devices: int, nodes: int) -> None:
    """Trains, shows progress, and prints the test scores.

    Args:
        config: What to train.
        output: Folder of the run.
        resume: Whether to go on from its checkpoint.
        devices: Processes on this machine.
        nodes: Machines.
    """
    from sbmt.experiments.training.fit import fit, is_first_process

    console = Console(quiet=not is_first_process(), markup=False)
    strategy = "auto" if devices * nodes == 1 else "ddp"
    try:
        with training_progress(console) as progress:
            progress.start(f"{config.attention} on {config.task}", config.steps)
            on_step = progress.step
            run = fit(config, output, resume=resume, on_step=on_step, devices=devices, nodes=nodes, strategy=strategy)
    except KeyboardInterrupt:
        if (output / "state.safetensors").exists():
            console.print("Every evaluation leaves a checkpoint: go on with --resume.")
        raise
    print_scores(console, run.test, run.about)
    console.print(f"Run: {output}", highlight=False)


def print_scores(console: Console, test: Any, about: dict[str, Any]) -> None:
    """Prints accuracy, loss and density on the test examples, and what a result has beside them.

    Args:
        console: Where to print.
        test: Scores, or numbers of single examples.
        about: See :func:`~sbmt.experiments.training.task_runs.describe`.
    """
    more = f"   95 % interval {about['interval'][0]:.3f} to {about['interval'][1]:.3f}" if "interval" in about else ""
    chance = f"   chance {about['chance']:.3f}" if "chance" in about else ""
    n_test = f", {about['n_test']:,} examples" if "n_test" in about else ""
    console.print(
        f"Test{n_test}: accuracy {test.accuracy:.4f}  loss {test.loss:.4f}  density {test.density:.4f}{more}{chance}"
    )
    if metrics := getattr(test, "metrics", None):
        console.print("  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in metrics.items()))
    if "frequencies" in about:
        console.print(f"From the frequency of tokens alone: perplexity {about['frequencies']['perplexity']:.1f}")
    if "mismatched" in about:
        other = about["mismatched"]
        console.print(f"Mismatched, {other['n_test']:,} examples: accuracy {other['accuracy']:.4f}")

"""``sbmt train`` and ``sbmt evaluate``."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.errors import SbmtError, choose
from sbmt.experiments.cli.fitting import fit_and_print, print_scores
from sbmt.experiments.cli.options import with_fields_of
from sbmt.experiments.cli.progress import training_progress
from sbmt.experiments.cli.train_language import Devices, Nodes, Reduced, Resume, glue, mlm
from sbmt.experiments.training.any_run import load_any_run
from sbmt.experiments.training.config import SIZES, RepeatedTokensConfig
from sbmt.experiments.training.evaluate import Evaluation
from sbmt.experiments.training.evaluate import evaluate as evaluate_model
from sbmt.experiments.training.language import MlmConfig
from sbmt.experiments.training.long_range import LONG_RANGE_TASKS, PAPER, REDUCED, TASK_TITLES, LongRangeConfig
from sbmt.experiments.training.loop import CHECKPOINT_EVERY, train
from sbmt.experiments.training.runs import Run

train_app = typer.Typer(help="Train a model on a task.", no_args_is_help=True)


@train_app.callback()
def _tasks() -> None:
    """Train a model on a task."""


@train_app.command("repeated-tokens")
@with_fields_of(RepeatedTokensConfig)
def repeated_tokens(
    output: Annotated[Path, typer.Option(help="folder of the run")] = Path("runs/repeated-tokens"),
    size: Annotated[str, typer.Option(help="named settings: demo, or paper (256 tokens, batch 256)")] = "demo",
    resume: Resume = False,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    **overrides: Any,
) -> None:
    """Mark the tokens whose value occurs elsewhere in the sequence (the paper's synthetic task).

    The defaults shown are those of --size demo.
    """
    config = choose("size", size, SIZES).override(**overrides)
    console = Console(markup=False)
    try:
        with training_progress(console) as progress:
            progress.start(f"{config.attention} on repeated tokens", config.steps)
            run = train(config, output, resume=resume, on_step=progress.step, device=device)
    except KeyboardInterrupt:
        if (output / "state.safetensors").exists():
            console.print(f"A checkpoint is kept every {CHECKPOINT_EVERY} steps: go on with --resume.")
        raise
    _print(console, run.test)
    console.print(f"Run: {output}")


def _add(task: str) -> None:
    """``sbmt train TASK`` for a task of Long Range Arena."""
    title = TASK_TITLES[task]

    @with_fields_of(LongRangeConfig, without=("task",))
    def command(
        output: Annotated[Path, typer.Option(help="folder of the run")] = Path("runs") / task,
        reduced: Reduced = False,
        resume: Resume = False,
        devices: Devices = 1,
        nodes: Nodes = 1,
        **overrides: Any,
    ) -> None:
        config = (REDUCED if reduced else PAPER)[task].override(**overrides)
        fit_and_print(config, output, resume=resume, devices=devices, nodes=nodes)

    command.__doc__ = (
        f"{title}\n\nThe settings are the paper's Table 7 unless --reduced; prepare the data first: sbmt data."
    )
    train_app.command(task)(command)


for _task in LONG_RANGE_TASKS:
    _add(_task)
train_app.command()(mlm)
train_app.command()(glue)


def evaluate(
    run: Annotated[Path, typer.Argument(help="folder of a run")],
    sequences: Annotated[int, typer.Option(help="unseen sequences; test examples of a task, or test blocks")] = 1024,
    n_samples: Annotated[int, typer.Option(help="masks drawn per sequence; logits are averaged")] = 1,
    seed: Annotated[int, typer.Option(help="seed of sequences and masks")] = 0,
) -> None:
    """Evaluate a run on unseen sequences."""
    if not 0 <= seed < 1 << 62:  # the seed of the sequences lies above it
        raise SbmtError("seed in [0, 2⁶²)", seed, "give a non-negative integer")
    loaded = load_any_run(run)
    if isinstance(loaded, Run):
        _print(
            Console(markup=False),
            evaluate_model(loaded.model, loaded.config.length, sequences, n_samples=n_samples, seed=seed),
        )
        return
    from sbmt.experiments.training.evaluate_blocks import evaluate_blocks
    from sbmt.experiments.training.per_example import evaluate_examples

    if isinstance(loaded.config, MlmConfig):
        print_scores(Console(markup=False), evaluate_blocks(loaded, sequences, n_samples=n_samples, seed=seed), {})
        return
    scores = evaluate_examples(loaded, sequences, n_samples=n_samples, seed=seed)
    print_scores(Console(markup=False), scores, {"n_test": scores.n_examples})


def _print(console: Console, test: Evaluation) -> None:
    console.print(f"Unseen sequences: accuracy {test.accuracy:.4f}  loss {test.loss:.4f}  density {test.density:.4f}")

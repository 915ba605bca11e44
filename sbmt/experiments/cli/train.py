"""``sbmt train``: one command for each task, with every setting of its configuration as an option."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.errors import SbmtError, choose
from sbmt.experiments.cli.options import config_parameters, parameters_of
from sbmt.experiments.cli.terminal import numbers_of, print_scores, training_bars
from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.devices import DEVICES, usable_device
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.fit import STATE, fit, is_first_process
from sbmt.experiments.training.generated import RECALL, SIZES, RecallConfig, RepeatedTokensConfig, fitted
from sbmt.experiments.training.run import Step, read_config
from sbmt.experiments.training.tasks import (
    EPOCHS,
    LONG_RANGE_TASKS,
    PAPER,
    PAPER_MLM,
    REDUCED,
    REDUCED_MLM,
    TASK_TITLES,
    GlueConfig,
    MlmConfig,
    epochs_of,
    fine_tuning,
    reduced_settings,
)

Reduced = Annotated[bool, typer.Option("--reduced", help="minutes on one core, instead of Table 7")]
REPEATED = """Mark the tokens whose value occurs elsewhere in the sequence (the paper's synthetic task).

The defaults shown are those of --size demo; --preset fitted trains for longer, with larger rates."""
RECALLED = """Give the value that was stored with a key, among distractors (associative recall).

Every option of the network starts where full attention learns the task within 200 steps."""
REDUCIBLE = "\n\nThe settings are the paper's Table 7 unless --reduced; prepare the data first: sbmt data prepare "
FINE_TUNED = """Fine-tune on a task of GLUE: SST-2, QQP, MNLI or QNLI.

The network is that of the pre-training run; the other settings are the paper's Table 7 unless --reduced. Prepare
the examples first: sbmt data prepare TASK."""


def make_train_app() -> typer.Typer:
    """The commands, with the options of the attentions that are registered now."""
    app = typer.Typer(help="Train a model on a task.", no_args_is_help=True)
    _add(app, "repeated-tokens", REPEATED, RepeatedTokensConfig, _repeated_tokens)
    _add(app, RECALL, RECALLED, RecallConfig, RecallConfig().override, "length")
    for task in LONG_RANGE_TASKS:
        make = partial(_reducible, PAPER[task], REDUCED[task])
        _add(app, task, TASK_TITLES[task] + REDUCIBLE + task, type(PAPER[task]), make)
    title = "Pre-train a masked language model: guess the tokens that were hidden."
    _add(app, "mlm", title + REDUCIBLE + "corpus", MlmConfig, partial(_reducible, PAPER_MLM, REDUCED_MLM))
    _add(app, "glue", FINE_TUNED, GlueConfig, _glue, "pretrained")
    return app


def _add(
    app: typer.Typer, name: str, title: str, kind: type, make: Callable[..., TrainingConfig], *without: str
) -> None:
    """A command with the options of ``make``, which turns them and the fields of a configuration into one."""
    how = parameters_of(_train, inspect.Parameter.KEYWORD_ONLY)

    def command(**given: Any) -> None:
        where = {p.name: given.pop(p.name) for p in how}
        _train(make(**given), **where)

    own = parameters_of(make, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    options = [*own, *how, *config_parameters(kind, ("task", *without))]
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    app.command(name, help=title)(command)


def _repeated_tokens(
    size: Annotated[str, typer.Option(help="named settings: demo, or paper (256 tokens, batch 256)")] = "demo",
    **overrides: Any,
) -> TrainingConfig:
    if overrides["preset"] == "fitted":
        overrides = fitted(**overrides)
    return choose("size", size, SIZES).override(**overrides)


def _reducible(
    full: TrainingConfig, small: TrainingConfig, /, reduced: Reduced = False, **overrides: Any
) -> TrainingConfig:
    return (small if reduced else full).override(**overrides)


def _glue(
    task: Annotated[str, typer.Option(help=f"one of: {', '.join(GLUE)}")],
    from_: Annotated[
        Path | None, typer.Option("--from", help="folder of a pre-training run; weights drawn anew if left out")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help=f"passes over the examples, unless --steps is given; {EPOCHS} or fewer"),
    ] = None,
    reduced: Reduced = False,
    **overrides: Any,
) -> TrainingConfig:
    choose("task", task, GLUE)
    settings = reduced_settings(task) if reduced else {}
    start = (REDUCED_MLM if reduced else PAPER_MLM) if from_ is None else read_config(from_)
    if not isinstance(start, MlmConfig):
        raise SbmtError("the folder of a pre-training run", from_, "train one with: sbmt train mlm")
    settings |= {"tokenizer": overrides.pop("tokenizer") or "", "embedding_std": start.embedding_std}
    config = fine_tuning(task, "" if from_ is None else str(from_), start, **settings)
    steps = {name: overrides.pop(name) for name in ("steps", "warmup_steps", "eval_every")}
    config = config.override(**overrides)
    if (n := steps["steps"]) is None:
        config = epochs_of(config, len(config.open_prepared().splits["train"]), epochs, is_reduced=reduced)
    else:
        config = replace(config, steps=n, warmup_steps=n // 20, eval_every=n)
    return config.override(**steps)


def _train(
    config: TrainingConfig,
    *,
    output: Annotated[Path | None, typer.Option(help="folder of the run", show_default="runs/TASK")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="go on from the folder's checkpoint")] = False,
    device: Annotated[
        str,
        typer.Option(help="auto, cpu or cuda; auto is a GPU if there is one, but the CPU for generated sequences"),
    ] = "auto",
    devices: Annotated[
        int, typer.Option(help="processes on this machine, each with a GPU of its own if there are any")
    ] = 1,
    nodes: Annotated[int, typer.Option(help="machines")] = 1,
) -> None:
    """Trains, shows progress, and prints the test scores."""
    choose("device", device, {"auto": None, **DEVICES})
    if device != "auto":
        usable_device(device)
    folder = output or Path("runs") / config.task.replace("_", "-")
    where: dict[str, Any] = {"accelerator": device, "devices": devices, "nodes": nodes}
    where["strategy"] = "auto" if devices * nodes == 1 else "ddp"
    console = Console(quiet=not is_first_process(), markup=False)
    try:
        with training_bars(console) as progress:
            title = f"{config.attention} on {config.task.replace('_', ' ')}"
            bar = progress.add_task(title, total=config.steps, numbers="")

            def show(step: Step) -> None:
                progress.update(bar, completed=step.number, numbers=numbers_of(step))

            run = fit(config, folder, resume=resume, on_step=show, **where)
    except KeyboardInterrupt:
        if (folder / STATE).exists():
            console.print(f"A checkpoint is kept every {config.checkpoint_every} steps: go on with --resume.")
        raise
    print_scores(console, run.test, run.about)
    console.print(f"Run: {folder}", highlight=False)

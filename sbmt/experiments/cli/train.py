"""``sbmt train``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from sbmt.errors import SbmtError, choose
from sbmt.experiments.cli.evaluate import print_scores
from sbmt.experiments.cli.options_from_config import with_fields_of
from sbmt.experiments.cli.progress import numbers_of, training_bars
from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.devices import DEVICES, usable_device
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.fit import STATE, fit, is_first_process
from sbmt.experiments.training.run import Step, read_config
from sbmt.experiments.training.tasks.generated import GeneratedConfig
from sbmt.experiments.training.tasks.language import (
    EPOCHS,
    PAPER_MLM,
    REDUCED_MLM,
    GlueConfig,
    MlmConfig,
    epochs_of,
    fine_tuning,
    reduced_settings,
)
from sbmt.experiments.training.tasks.long_range import LONG_RANGE_TASKS, PAPER, REDUCED, TASK_TITLES
from sbmt.experiments.training.tasks.recall import RECALL, RecallConfig
from sbmt.experiments.training.tasks.repeated_tokens import SIZES, RepeatedTokensConfig, fitted
from sbmt.experiments.training.tasks.sequence import SequenceConfig
from sbmt.experiments.training.tasks.twins import TWINS, TwinsConfig

Resume = Annotated[bool, typer.Option("--resume", help="go on from the folder's checkpoint")]
Reduced = Annotated[bool, typer.Option("--reduced", help="minutes on one core, instead of Table 7")]
Device = Annotated[
    str, typer.Option(help="auto, cpu or cuda; auto is a GPU if there is one, but the CPU for generated sequences")
]
Devices = Annotated[int, typer.Option(help="processes on this machine, each with a GPU of its own if there are any")]
Nodes = Annotated[int, typer.Option(help="machines")]

train_app = typer.Typer(help="Train a model on a task.", no_args_is_help=True)


@train_app.callback()
def _tasks() -> None:
    """Train a model on a task."""


@train_app.command("repeated-tokens")
@with_fields_of(RepeatedTokensConfig, without=("task",))
def repeated_tokens(
    output: Annotated[Path, typer.Option(help="folder of the run")] = Path("runs/repeated-tokens"),
    size: Annotated[str, typer.Option(help="named settings: demo, or paper (256 tokens, batch 256)")] = "demo",
    resume: Resume = False,
    device: Device = "auto",
    devices: Devices = 1,
    nodes: Nodes = 1,
    **overrides: Any,
) -> None:
    """Mark the tokens whose value occurs elsewhere in the sequence (the paper's synthetic task).

    The defaults shown are those of --size demo; --preset fitted trains for longer, with larger rates.
    """
    if overrides["preset"] == "fitted":
        overrides = fitted(**overrides)
    config = choose("size", size, SIZES).override(**overrides)
    _train(config, output, resume, device, devices, nodes)


def _add_generated(task: str, title: str, config: GeneratedConfig, without: tuple[str, ...] = ()) -> None:
    """``sbmt train TASK`` for a task on sequences that are generated."""

    @with_fields_of(type(config), without=("task", *without))
    def command(
        output: Annotated[Path, typer.Option(help="folder of the run")] = Path("runs") / task,
        resume: Resume = False,
        device: Device = "auto",
        devices: Devices = 1,
        nodes: Nodes = 1,
        **overrides: Any,
    ) -> None:
        _train(config.override(**overrides), output, resume, device, devices, nodes)

    command.__doc__ = title
    train_app.command(task)(command)


_add_generated(
    RECALL,
    "Give the value that was stored with a key, among distractors (associative recall).\n\n"
    "Every option of the network starts where full attention learns the task within 200 steps.",
    RecallConfig(),
    without=("length",),
)
_add_generated(
    TWINS,
    "Mark the crops of photographs whose picture occurs elsewhere in the sequence.\n\n"
    "Prepare the photographs first: sbmt data prepare image.",
    TwinsConfig(),
)


def _add(task: str, title: str, full: SequenceConfig, small: SequenceConfig, preparing: str) -> None:
    """``sbmt train TASK`` for a task whose settings are the paper's, or those of the reduced runs."""

    @with_fields_of(type(full), without=("task",))
    def command(
        output: Annotated[Path, typer.Option(help="folder of the run")] = Path("runs") / task,
        reduced: Reduced = False,
        resume: Resume = False,
        device: Device = "auto",
        devices: Devices = 1,
        nodes: Nodes = 1,
        **overrides: Any,
    ) -> None:
        _train((small if reduced else full).override(**overrides), output, resume, device, devices, nodes)

    command.__doc__ = f"{title}\n\nThe settings are the paper's Table 7 unless --reduced; {preparing}."
    train_app.command(task)(command)


for _task in LONG_RANGE_TASKS:
    _add(_task, TASK_TITLES[_task], PAPER[_task], REDUCED[_task], "prepare the data first: sbmt data")
_add(
    "mlm",
    "Pre-train a masked language model: guess the tokens that were hidden.",
    PAPER_MLM,
    REDUCED_MLM,
    "prepare a corpus first: sbmt data prepare corpus",
)


@train_app.command()
@with_fields_of(GlueConfig, without=("task", "pretrained"))
def glue(
    task: Annotated[str, typer.Option(help=f"one of: {', '.join(GLUE)}")],
    from_: Annotated[
        Path | None, typer.Option("--from", help="folder of a pre-training run; weights drawn anew if left out")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(help=f"passes over the examples, unless --steps is given; {EPOCHS} or fewer"),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="folder of the run", show_default="runs/TASK")] = None,
    reduced: Reduced = False,
    resume: Resume = False,
    device: Device = "auto",
    devices: Devices = 1,
    nodes: Nodes = 1,
    **overrides: Any,
) -> None:
    """Fine-tune on a task of GLUE: SST-2, QQP, MNLI or QNLI.

    The network is that of the pre-training run; the other settings are the paper's Table 7 unless --reduced. Prepare
    the examples first: sbmt data prepare TASK.
    """
    choose("task", task, GLUE)
    settings = reduced_settings(task) if reduced else {}
    start = (REDUCED_MLM if reduced else PAPER_MLM) if from_ is None else read_config(from_)
    if not isinstance(start, MlmConfig):
        raise SbmtError("the folder of a pre-training run", from_, "train one with: sbmt train mlm")
    settings |= {"tokenizer": overrides.pop("tokenizer") or "", "embedding_std": start.embedding_std}
    config = fine_tuning(task, "" if from_ is None else str(from_), start, **settings)
    steps = {name: overrides.pop(name) for name in ("steps", "warmup_steps", "eval_every")}
    config = config.override(**overrides)
    if steps["steps"] is None:
        config = epochs_of(config, len(config.open_prepared().splits["train"]), epochs, is_reduced=reduced)
    else:
        config = replace(config, steps=steps["steps"], warmup_steps=steps["steps"] // 20, eval_every=steps["steps"])
    config = config.override(**steps)
    _train(config, output or Path("runs") / task, resume, device, devices, nodes)


def _train(config: TrainingConfig, output: Path, resume: bool, device: str, devices: int, nodes: int) -> None:
    """Trains, shows progress, and prints the test scores."""
    choose("device", device, {"auto": None, **DEVICES})
    if device != "auto":
        usable_device(device)
    where: dict[str, Any] = {"accelerator": device, "devices": devices, "nodes": nodes}
    where["strategy"] = "auto" if devices * nodes == 1 else "ddp"
    console = Console(quiet=not is_first_process(), markup=False)
    try:
        with training_bars(console) as progress:
            title = f"{config.attention} on {config.task.replace('_', ' ')}"
            bar = progress.add_task(title, total=config.steps, numbers="")

            def show(step: Step) -> None:
                progress.update(bar, completed=step.number, numbers=numbers_of(step))

            run = fit(config, output, resume=resume, on_step=show, **where)
    except KeyboardInterrupt:
        if (output / STATE).exists():
            console.print(f"A checkpoint is kept every {config.checkpoint_every} steps: go on with --resume.")
        raise
    print_scores(console, run.test, run.about)
    console.print(f"Run: {output}", highlight=False)

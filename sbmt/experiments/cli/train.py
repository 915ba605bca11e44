"""``sbmt train``: one command per task, with every setting of its configuration as an option."""

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from functools import partial
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer
from rich.progress import Progress

from sbmt.errors import choose
from sbmt.experiments.cli.terminal import numbers_of, print_scores, say
from sbmt.experiments.data.glue import GLUE
from sbmt.experiments.training import generated, tasks
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.fit import STATE, fit, is_first_process
from sbmt.experiments.training.run import Step, read_config
from sbmt.layers.registry import ATTENTIONS, options_of

Reduced = Annotated[bool, typer.Option("--reduced", help="small settings that take minutes, instead of Table 7")]
REDUCIBLE = "\n\nThe settings are the paper's Table 7 unless --reduced; prepare the data first: sbmt data prepare "


def make_train_app() -> typer.Typer:
    """Creates the commands, with the options of all registered attention mechanisms."""
    app = typer.Typer(help="Train a model on a task.", no_args_is_help=True)
    _add(app, generated.RepeatedTokensConfig, _repeated_tokens, _repeated_tokens.__doc__)
    for kind in (generated.RecallConfig, generated.MultiQueryConfig, tasks.LanguageModelConfig):
        _add(app, kind, kind().override, kind.__doc__)
    for task, paper in tasks.PAPER.items():
        make = partial(_reducible, paper, tasks.REDUCED[task])
        _add(app, type(paper), make, tasks.TASK_TITLES[task] + REDUCIBLE + task, task)
    make = partial(_reducible, tasks.PAPER_MLM, tasks.REDUCED_MLM)
    _add(app, tasks.MlmConfig, make, "Pre-train a masked language model: predict hidden tokens." + REDUCIBLE + "corpus")
    _add(app, tasks.GlueConfig, _glue, _glue.__doc__, "glue")
    return app


def _add(
    app: typer.Typer, kind: type[TrainingConfig], make: Callable[..., TrainingConfig], title: str | None, name: str = ""
) -> None:
    """Adds a command with the options of ``make``, which builds the configuration, and the fields of ``kind``."""

    def command(**given: Any) -> None:
        _train(make, **given)

    options = [*_named(make), *_named(_train), *_config_options(kind)]
    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    app.command(name or kind.tasks[0].replace("_", "-"), help=title)(command)


def _named(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Returns the keyword-only parameters of a function."""
    return [p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]


def _config_options(kind: type[TrainingConfig]) -> list[inspect.Parameter]:
    """Returns an option, None by default, for each field made by :func:`option` and for all attention options."""
    hints, starts = get_type_hints(kind), dict(kind.option_defaults)
    found = [_option(f, hints[f.name], f.metadata["help"], f.default) for f in fields(kind) if "names" in f.metadata]
    for name, (owners, field, hint) in attention_options().items():
        help_ = f"{', '.join(owners)}: {field.metadata['help'] or name}"
        found.append(_option(field, hint, help_, starts.get(name, field.default), "Options of the attention"))
    return found


def attention_options() -> dict[str, tuple[list[str], "Field[Any]", Any]]:
    """Maps each attention option to the mechanisms that have it, its field in the first of these, and its type."""
    found: dict[str, tuple[list[str], Field[Any], Any]] = {}
    for attention in ATTENTIONS:
        hints = get_type_hints(options_of(attention))
        for field in fields(options_of(attention)):
            found.setdefault(field.name, ([], field, hints[field.name]))[0].append(attention)
    return found


def _option(field: "Field[Any]", hint: Any, help_: str, default: Any, group: str | None = None) -> inspect.Parameter:
    help_ += f" ({', '.join(names)})" if (names := field.metadata.get("names")) else ""
    help_ += f" (default: {default})" if default not in (None, "") else ""
    given = next((each for each in get_args(hint) if each is not NoneType), hint)  # T of T | None
    kind = str if Literal in (get_origin(hint), get_origin(given)) else given
    option = typer.Option(help=help_, show_default=False, rich_help_panel=group)
    annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _repeated_tokens(
    *,
    size: Annotated[str, typer.Option(help="settings: demo, or paper (256 tokens, batch size 256)")] = "demo",
    **overrides: Any,
) -> TrainingConfig:
    """Mark the tokens whose value also occurs elsewhere in the sequence (the paper's synthetic task).

    The defaults shown are those of --size demo; --preset fitted trains for longer, with higher learning rates.
    """
    if overrides["preset"] == "fitted":
        overrides = generated.fitted(**overrides)
    return choose("size", size, generated.SIZES).override(**overrides)


def _reducible(
    full: TrainingConfig, small: TrainingConfig, *, reduced: Reduced = False, **overrides: Any
) -> TrainingConfig:
    return (small if reduced else full).override(**overrides)


def _glue(
    *,
    task: Annotated[str, typer.Option(help=f"one of: {', '.join(GLUE)}")],
    from_: Annotated[Path | None, typer.Option("--from", help="pre-training run; by default, random weights")] = None,
    epochs: Annotated[int | None, typer.Option(help=f"number of epochs; {tasks.EPOCHS} or fewer by default")] = None,
    reduced: Reduced = False,
    **overrides: Any,
) -> TrainingConfig:
    """Fine-tune on a GLUE task: SST-2, QQP, MNLI or QNLI.

    The network is that of the pre-training run; all other settings follow the paper's Table 7 unless --reduced is
    given. Prepare the examples first: sbmt data prepare TASK.
    """
    start = read_config(from_) if from_ else tasks.REDUCED_MLM if reduced else tasks.PAPER_MLM
    early = {name: overrides.pop(name) for name in ("data", "batch_size", "tokenizer")}  # these determine the steps
    early |= {"embedding_std": start.embedding_std}
    return tasks.fine_tuning(task, str(from_ or ""), start, epochs, reduced, **early).override(**overrides)


def _train(
    make: Callable[..., TrainingConfig],
    *,
    output: Annotated[Path | None, typer.Option(help="folder for the run", show_default="runs/TASK")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue from any checkpoint in the folder")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto (a GPU unless sequences are generated)")] = "auto",
    devices: Annotated[int, typer.Option(help="number of processes per machine, one per GPU if there are GPUs")] = 1,
    nodes: Annotated[int, typer.Option(help="number of machines")] = 1,
    **settings: Any,
) -> None:
    """Trains a model, shows progress, and prints the test scores."""
    config = make(**settings)
    folder = output or Path("runs") / config.task.replace("_", "-")
    quiet = devices * nodes > 1 and not is_first_process()
    try:
        with Progress(disable=quiet) as progress:
            bar = progress.add_task(f"{config.attention} on {config.task.replace('_', ' ')}", total=config.steps)

            def show(step: Step) -> None:
                progress.update(bar, completed=step.number, description=numbers_of(step))

            run = fit(config, folder, resume=resume, on_step=show, accelerator=device, devices=devices, nodes=nodes)
    except KeyboardInterrupt:
        if (folder / STATE).exists():
            say(f"A checkpoint was saved every {config.checkpoint_every} steps: continue with --resume.")
        raise
    if not quiet:
        print_scores(run.test, run.about)
        say(f"Run: {folder}")

"""``sbmt train mlm`` and ``sbmt train glue``."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from sbmt.errors import SbmtError, choose
from sbmt.experiments.cli.fitting import fit_and_print
from sbmt.experiments.cli.options import with_fields_of
from sbmt.experiments.data.glue.tasks import GLUE
from sbmt.experiments.training.kinds import read_config
from sbmt.experiments.training.language import (
    EPOCHS,
    PAPER_MLM,
    REDUCED_MLM,
    GlueConfig,
    MlmConfig,
    epochs_of,
    fine_tuning,
    reduced_settings,
)

Resume = Annotated[bool, typer.Option("--resume", help="go on from the folder's checkpoint")]
Reduced = Annotated[bool, typer.Option("--reduced", help="minutes on one core, instead of Table 7")]
Devices = Annotated[int, typer.Option(help="processes here, each with its own GPU if there are any")]
Nodes = Annotated[int, typer.Option(help="machines")]


@with_fields_of(MlmConfig, without=("task",))
def mlm(
    output: Annotated[Path, typer.Option(help="folder of the run")] = Path("runs/mlm"),
    reduced: Reduced = False,
    resume: Resume = False,
    devices: Devices = 1,
    nodes: Nodes = 1,
    **overrides: Any,
) -> None:
    """Pre-train a masked language model: guess the tokens that were hidden.

    The settings are the paper's Table 7 unless --reduced; prepare a corpus first: sbmt data prepare corpus.
    """
    config = (REDUCED_MLM if reduced else PAPER_MLM).override(**overrides)
    fit_and_print(config, output, resume=resume, devices=devices, nodes=nodes)


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
    devices: Devices = 1,
    nodes: Nodes = 1,
    **overrides: Any,
) -> None:
    """Fine-tune on a task of GLUE: SST-2, QQP, MNLI or QNLI.

    The network is that of the pre-training run; the other settings are the paper's Table 7 unless --reduced. Prepare
    the examples first: sbmt data prepare TASK.
    """
    from sbmt.experiments.training.task_data import open_task

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
        config = epochs_of(config, len(open_task(config).splits["train"]), epochs, is_reduced=reduced)
    else:
        config = replace(config, steps=steps["steps"], warmup_steps=steps["steps"] // 20, eval_every=steps["steps"])
    config = config.override(**steps)
    fit_and_print(config, output or Path("runs") / task, resume=resume, devices=devices, nodes=nodes)

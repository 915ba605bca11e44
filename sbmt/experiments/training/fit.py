"""Trains a model with Lightning."""

import logging
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.files import check_may_write, load_weights, only_writer, read_tensors, write_json
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.run import BEST, STATE, OnStep, Run, best_row, read_config

EXPECTED = ["does not have many workers", "exists and is not empty", "IterableDataset", "litlogger", "LeafSpec"]
EXPECTED += ["have no `val_dataloader`", "The dirpath has changed", "across ranks is zero"]
"""Lightning's warnings about choices that are deliberate here."""


def fit(
    config: TrainingConfig,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    on_step: OnStep | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
) -> Run:
    """Trains a model, and tests it with the weights that scored best on the dev split, or the last if there is none.

    The run and its checkpoints are written to ``folder``; if it is None, nothing is saved. With ``resume``, training
    continues from the checkpoint in the folder, or starts again if there is none, and the result equals that of an
    uninterrupted run on the same machine with the same number of threads. ``on_step`` is called after every optimiser
    step. ``accelerator`` is ``cpu``, ``cuda`` or another name that Lightning accepts; ``auto`` means ``cpu`` for
    generated sequences. Each of ``nodes`` machines runs ``devices`` processes, and every process uses one device.
    """
    check_sizes(devices=devices, nodes=nodes)
    is_first_process()  # imports Lightning, which reads the rank from the environment
    from sbmt.experiments.training.lightning_module import TrainingModule, make_trainer  # a slow import

    data = config.open_data()
    if config.is_generated and accelerator == "auto":
        accelerator = "cpu"  # such small networks do not benefit from a GPU
    where: dict[str, Any] = {"accelerator": accelerator, "devices": devices, "num_nodes": nodes}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()) if folder is None else folder)
        module = TrainingModule(config, data, folder, on_step)
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", f".*({'|'.join(EXPECTED)}).*")
        trainer = make_trainer(config, folder, where)
        if trainer.is_global_zero:  # after all settings have been checked
            stack.enter_context(only_writer(folder))
            claim(folder, config, resume)
        resume = resume and (folder / STATE).exists()
        stack.enter_context(_interruptible())
        start = time.perf_counter()
        if resume and not config.is_generated:  # reveals damage before training
            load_weights(module.model, read_tensors(folder / BEST), folder)
        trainer.fit(module, ckpt_path=folder / STATE if resume else None)
        seconds = time.perf_counter() - start
        about: dict[str, Any] = ({"data": data.info} if data.info else {}) | module.about
        if not config.is_generated:
            load_weights(module.model, read_tensors(folder / BEST), folder)
            best = best_row(config, module.rows)
            about |= {"best_step": best["step"], "dev": {name: best[name] for name in ("accuracy", "loss")}}
        tests = [name for name in data.feeds if name not in ("train", "dev")]
        for name in reversed(tests):  # ends with ``test``, whose scores become the run's
            trainer.test(module, module.evaluation(name), verbose=False)
            baselines = config.baselines(data, name, module.scores)
            about |= baselines if name == "test" else {name: asdict(module.scores) | baselines}
        run = Run(config, module.model.cpu(), module.rows, module.scores, about, seconds, data.tokenizer)
        if trainer.is_global_zero:
            run.save(folder)
            for name in (STATE, BEST):
                (folder / name).unlink(missing_ok=True)
        return run


def claim(folder: Path, config: TrainingConfig, resume: bool) -> None:
    """Writes the configuration to a folder. With ``resume``, a changed configuration or finished run is an error."""
    if not resume:
        check_unkept(folder, "choose another folder, or continue with --resume")
    else:
        before, now = read_config(folder).to_dict(), config.to_dict()
        before, now = before | before.pop("options"), now | now.pop("options")
        if changed := sorted(name for name in before | now if before.get(name) != now.get(name)):
            values = ", ".join(f"{name} is {now.get(name)}, but the run has {before.get(name)}" for name in changed)
            raise SbmtError(f"cannot resume the run in {folder}: {values}")
        if has_kept(folder) and not (folder / STATE).exists():
            raise SbmtError(f"an unfinished run in {folder}", "a finished one", "choose another folder")
    write_json(folder / "config.json", config.to_dict())


def check_unkept(folder: Path, do: str) -> None:
    """Raises SbmtError unless a folder is absent, is empty, or holds a run interrupted before its first checkpoint."""
    if has_kept(folder):
        raise SbmtError("a new or empty folder", folder, do)
    check_may_write(folder, folder / "config.json", b'{\n "attention": ')


def has_kept(folder: Path) -> bool:
    """Returns whether a folder contains the checkpoint or the result of a run, which a new run would replace."""
    return (folder / STATE).exists() or (folder / "result.json").exists()


def is_first_process() -> bool:
    """Returns whether this is the first of the training processes. A rank that is not a number raises SbmtError."""
    try:
        from lightning.pytorch.utilities.rank_zero import rank_zero_only
    except ValueError as error:
        raise SbmtError(f"RANK, LOCAL_RANK or SLURM_PROCID in the environment is not a number ({error})") from error
    return vars(rank_zero_only)["rank"] == 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raises KeyboardInterrupt on Ctrl-C. Lightning would exit the process instead, and ignore a second Ctrl-C."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as leaving:
        signal.signal(signal.SIGINT, handler)
        raise (leaving.__context__ if isinstance(leaving.__context__, KeyboardInterrupt) else leaving) from None

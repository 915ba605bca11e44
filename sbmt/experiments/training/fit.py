"""Trains a model with Lightning."""

import logging
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.files import check_may_write, load_weights, read_tensors, remove_parts, write_json
from sbmt.experiments.locks import only_writer
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.run import BEST, STATE, Run, Step, best_row, read_config

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
SIZES = ("WORLD_SIZE", "SLURM_NTASKS")
"""Environment variables for a process's rank, which is 0 in the first, and for the number of processes."""
EXPECTED = ["does not have many workers", "exists and is not empty", "IterableDataset", "litlogger", "LeafSpec"]
EXPECTED += ["have no `val_dataloader`", "precision='16-mixed'", "The dirpath has changed", "across ranks is zero"]
"""Warnings of Lightning about things that are done on purpose here."""


def fit(
    config: TrainingConfig,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    on_step: Callable[[Step], None] | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
) -> Run:
    """Trains a model, keeps the weights that do best on dev where the task has it, and tests them.

    Fine-tuning starts from the encoder of the pre-training run that its configuration names.

    Args:
        config: What to train.
        folder: Where the run is written, with checkpoints while it lasts; None keeps nothing.
        resume: Whether to continue from the checkpoint in ``folder``, or start again if the run was interrupted before
            the first. The result equals that of an uninterrupted run on the same machine and number of threads.
        on_step: Called after every optimiser step.
        accelerator: ``cpu``, ``cuda`` or another name that Lightning accepts; ``auto`` leaves the choice to the task.
        devices: Number of processes on this machine, each with its own device.
        nodes: Number of machines.
    """
    check_sizes(devices=devices, nodes=nodes)
    is_first_process()  # Lightning reads the same variables while it is imported
    from sbmt.experiments.training.lightning_module import TrainingModule  # loading Lightning takes seconds

    data = config.open_data()
    if config.is_generated and accelerator == "auto":
        accelerator = "cpu"  # networks so small gain nothing from a GPU
    where: dict[str, Any] = {"accelerator": accelerator, "devices": devices, "num_nodes": nodes}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()) if folder is None else folder)
        module = TrainingModule(config, data, folder, on_step)
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        stack.enter_context(warnings.catch_warnings())
        warnings.filterwarnings("ignore", f".*({'|'.join(EXPECTED)}).*")
        trainer = _make_trainer(config, folder, where)
        if trainer.is_global_zero:  # after everything that can be wrong with the settings has been checked
            stack.enter_context(only_writer(folder))
            claim(folder, config, resume)
        resume = resume and (folder / STATE).exists()
        stack.enter_context(_interruptible())
        start = time.perf_counter()
        if resume and not config.is_generated:  # finds damage now, not after training
            load_weights(module.model, read_tensors(folder / BEST), folder)
        trainer.fit(module, ckpt_path=folder / STATE if resume else None)
        seconds = time.perf_counter() - start
        about: dict[str, Any] = ({"data": data.info} if data.info else {}) | module.about
        if not config.is_generated:
            load_weights(module.model, read_tensors(folder / BEST), folder)
            best = best_row(config, module.rows)
            about |= {"best_step": best["step"], "dev": {name: best[name] for name in ("accuracy", "loss")}}
        tests = [name for name in data.feeds if name not in ("train", "dev")]
        for name in reversed(tests):  # ending with ``test``, whose scores are the run's
            trainer.test(module, module.evaluation(name), verbose=False)
            baselines = config.baselines(data, name, module.scores)
            about |= baselines if name == "test" else {name: asdict(module.scores) | baselines}
        run = Run(config, module.model.cpu(), module.rows, module.scores, about, seconds, data.tokenizer)
        if trainer.is_global_zero:
            run.save(folder)
            for name in (STATE, BEST):
                (folder / name).unlink(missing_ok=True)
        return run


def _make_trainer(config: TrainingConfig, folder: Path, where: dict[str, Any]) -> "Trainer":
    from lightning.pytorch import Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    from sbmt.experiments.training.lightning_module import WholeFiles

    state: dict[str, Any] = {"dirpath": folder, "filename": Path(STATE).stem, "enable_version_counter": False}
    if config.is_generated:  # otherwise after every evaluation on dev
        state["every_n_train_steps"] = config.checkpoint_every
    try:
        trainer = Trainer(
            **where,
            precision=config.precision,
            max_steps=config.steps,
            accumulate_grad_batches=config.accumulate,
            val_check_interval=config.checkpoint_every * config.accumulate,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            callbacks=[ModelCheckpoint(**state, save_on_train_epoch_end=False)],
            plugins=[WholeFiles()],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            inference_mode=False,
            default_root_dir=folder,
        )
    except (MisconfigurationException, ImportError, ValueError, RuntimeError) as error:  # also of SLURM's variables
        got = str(error).strip().splitlines()[0]
        raise SbmtError("devices that this machine has", got, "choose other devices") from error
    if trainer.precision != config.precision:  # Lightning has chosen another one
        raise SbmtError(f"a device for precision {config.precision}", "a CPU", "use bf16-mixed, or a GPU")
    parts = config.accumulate * trainer.world_size
    if config.batch_size % parts:
        raise SbmtError(f"a batch size divisible by {parts} parts", config.batch_size, "change one of them")
    return trainer


def claim(folder: Path, config: TrainingConfig, resume: bool) -> None:
    """Writes the configuration into the folder, or compares it to resume; SbmtError if it differs or has finished."""
    if not resume:
        check_unkept(folder, "name another folder, or continue with --resume")
        remove_parts(folder)
        write_json(folder / "config.json", config.to_dict())
        return
    before, now = read_config(folder).to_dict(), config.to_dict()
    before, now = before | before.pop("options"), now | now.pop("options")
    if changed := sorted(name for name in before | now if before.get(name) != now.get(name)):
        values = ", ".join(f"{name} is {now.get(name)}, the run has {before.get(name)}" for name in changed)
        raise SbmtError(f"cannot resume the run in {folder}: {values}")
    if has_kept(folder) and not (folder / STATE).exists():
        raise SbmtError(f"an unfinished run in {folder}", "a finished one", "name another folder")
    remove_parts(folder)


def check_unkept(folder: Path, do: str) -> None:
    """Raises SbmtError unless a folder is absent or empty, or has a run that was interrupted before its checkpoint."""
    if has_kept(folder):
        raise SbmtError("a new or empty folder", folder, do)
    check_may_write(folder, "config.json", b'{\n "attention": ')


def has_kept(folder: Path) -> bool:
    """Whether a folder has a run's checkpoint or result, which a new run would replace."""
    return (folder / STATE).exists() or (folder / "result.json").exists()


def is_first_process() -> bool:
    """Whether this process prints: it is the only one, or the first of several launched together.

    Raises:
        SbmtError: If an environment variable for ranks is not a number.
    """
    numbers = {name: os.environ[name] for name in (*RANKS, *SIZES) if name in os.environ}
    for name, value in numbers.items():
        if not (value.isascii() and value.isdigit() and len(value) < 10):
            raise SbmtError(f"{name} in the environment must be a number, got {value!r}: unset it")
    is_launched = "MASTER_ADDR" in os.environ or any(int(numbers.get(name, 1)) > 1 for name in SIZES)
    return not (is_launched and any(int(numbers.get(name, 0)) for name in RANKS))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Keeps Ctrl-C a KeyboardInterrupt; Lightning would exit the process, and ignore the next one."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as leaving:
        signal.signal(signal.SIGINT, handler)
        raise (leaving.__context__ if isinstance(leaving.__context__, KeyboardInterrupt) else leaving) from None

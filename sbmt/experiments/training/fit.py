"""Trains a model with Lightning."""

import logging
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.files import load_weights, read_json, remove_parts, write_json
from sbmt.experiments.locks import only_writer
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.data import BatchStream, ExamplesOf, Feed
from sbmt.experiments.training.run import Run, Step, describe

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

BEST, STATE = "best.safetensors", "state.safetensors"
"""Files of the checkpoints."""
_KEPT = STATE, "model.safetensors", "result.json"
"""Files that a run does not lose: without any of them, nothing has been kept of it."""


def fit(
    config: TrainingConfig,
    folder: Path | str | None = None,
    *,
    resume: bool = False,
    on_step: Callable[[Step], None] | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    strategy: str = "auto",
) -> Run:
    """Trains a model, keeps the weights that do best on dev where the task has it, and tests them.

    Fine-tuning starts from the encoder of the pre-training run that its configuration names.

    Args:
        config: What to train.
        folder: Where the run is written, and its checkpoints while it lasts; None writes nothing that stays. A folder
            in which a run was stopped before its first checkpoint is free for any other.
        resume: Whether to go on from the checkpoint in ``folder``. The result equals an uninterrupted run's, on the
            same machine and number of threads.
        on_step: Called after every optimiser step.
        accelerator: ``cpu``, ``cuda`` or another name that Lightning knows; ``auto`` leaves the choice to the task.
            Examples are the same on all, masks are not.
        devices: Processes on this machine, each with its own device.
        nodes: Machines.
        strategy: Lightning's: ``auto``, ``ddp``.

    Raises:
        SbmtError: If the data, the device or the pre-training run are not there, the folder holds another run or
            another process writes into it, there is nothing to resume or the checkpoint is damaged, a batch does not
            divide among the processes, no example of an evaluation has a label, or the loss is not finite.
    """
    check_sizes(devices=devices, nodes=nodes)
    where: dict[str, Any] = {"accelerator": config.accelerator if accelerator == "auto" else accelerator}
    where |= {"devices": devices, "num_nodes": nodes, "strategy": strategy}
    if folder is None:
        with tempfile.TemporaryDirectory() as temporary:
            return _fit(config, Path(temporary), resume, on_step, where)
    folder = Path(folder)
    with only_writer(folder if is_first_process() else None):
        return _fit(config, folder, resume, on_step, where)


def _fit(
    config: TrainingConfig,
    folder: Path,
    resume: bool,
    on_step: Callable[[Step], None] | None,
    where: dict[str, Any],
) -> Run:
    # Lightning takes seconds to import, which commands that train nothing are spared.
    from sbmt.experiments.training.callbacks import EveryStep, MetricsTable, checkpoints
    from sbmt.experiments.training.checkpoints import checkpoint_of, restoring, weights
    from sbmt.experiments.training.collapse import WatchForCollapse
    from sbmt.experiments.training.lightning_module import TrainingModule

    data = config.open_data()
    feeds = data.feeds
    module = TrainingModule(config, data.info)
    origin = config.start_from(module.model)
    table = MetricsTable(folder, config.row_every)
    callbacks: list[Any] = [] if on_step is None else [EveryStep(on_step)]
    callbacks += [table, WatchForCollapse(config.steps), *checkpoints(folder, config)]
    size = config.batch_size // config.accumulate

    def examples_of(name: str) -> ExamplesOf:
        return feeds[name].once(config.test_batch_size(size), config.n_examples(name))

    for name in (["dev"] if config.has_dev else []) + data.tests:
        _check_labels(name, BatchStream(feeds[name], examples_of(name)))
    with _quiet():
        trainer = _make_trainer(config, folder, callbacks, where)
        claim(folder, config, resume)  # not before all that can be wrong with the settings has been seen

        def evaluation(name: str) -> DataLoader[Any]:
            return _loader(trainer, feeds[name], examples_of(name))

        start = time.perf_counter()
        done = checkpoint_of(folder / STATE, module, table)["global_step"] if resume else 0
        if resume and config.has_dev:  # found damaged now, not after training; the state's weights replace these
            load_weights(module.model, weights(folder / BEST, module.run), folder)
        with _interruptible(), restoring(folder / STATE, table) if resume else nullcontext():
            trainer.fit(
                module,
                _loader(trainer, feeds["train"], feeds["train"].endless(size, config.seed), done * config.accumulate),
                evaluation("dev") if config.has_dev else None,
                ckpt_path=folder / STATE if resume else None,
            )
        if trainer.global_step < config.steps:
            raise SbmtError(f"{config.steps} steps", trainer.global_step, "go on with --resume")
        seconds = time.perf_counter() - start
        if config.has_dev:
            load_weights(module.model, weights(folder / BEST, module.run), folder)
        tests = {}
        for name in data.tests:
            with _interruptible():
                trainer.test(module, evaluation(name), verbose=False)
            tests[name] = module.scores
    about = describe(config, data, table.rows, tests) | origin
    run = Run(config, module.model.cpu(), table.rows, tests["test"], about, seconds, data.tokenizer)
    if trainer.is_global_zero:
        run.save(folder)
        for name in (STATE, BEST):
            (folder / name).unlink(missing_ok=True)
    return run


def _make_trainer(config: TrainingConfig, folder: Path, callbacks: list[Any], where: dict[str, Any]) -> "Trainer":
    from lightning.pytorch import Trainer
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    from sbmt.experiments.training.checkpoints import TensorsAndJson

    try:
        trainer = Trainer(
            **where,
            precision=config.precision,
            max_steps=config.steps,
            max_epochs=-1,
            accumulate_grad_batches=config.accumulate,
            val_check_interval=config.checkpoint_every * config.accumulate,
            check_val_every_n_epoch=None,
            num_sanity_val_steps=0,
            callbacks=callbacks,
            plugins=[TensorsAndJson()],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            inference_mode=False,
            default_root_dir=folder,
        )
    except (MisconfigurationException, ValueError) as error:
        got = str(error).strip().splitlines()[0]
        do = "ask for fewer, or others"
        raise SbmtError("devices that this machine has, and a strategy for them", got, do) from error
    if trainer.precision != config.precision:  # Lightning has taken another one
        do = "take bf16-mixed, or a GPU"
        raise SbmtError(f"a device that can compute with precision {config.precision}", "a CPU", do)
    parts = config.accumulate * trainer.world_size
    if config.batch_size % parts:
        raise SbmtError(f"a batch size divisible by {parts} parts", config.batch_size, "change one of them")
    return trainer


def _check_labels(name: str, batches: Iterable[Batch]) -> None:
    """Raises SbmtError if no example of an evaluation has a label: a small corpus may have no token to be guessed."""
    if not any(len(batch.labels) for batch in batches):
        do = "evaluate on more of them, or on longer ones"
        raise SbmtError(f"a label to be guessed among the examples of {name}", "none", do)


def _loader(trainer: "Trainer", feed: Feed, examples_of: ExamplesOf, first: int = 0) -> DataLoader[Any]:
    """The batches from number ``first`` on, each divided among the processes of a trainer."""
    stream = BatchStream(feed, examples_of, rank=trainer.global_rank, n_ranks=trainer.world_size, first=first)
    return DataLoader(stream, batch_size=None)


def claim(folder: Path, config: TrainingConfig, resume: bool) -> None:
    """Makes the folder this configuration's, or checks that it is.

    Raises:
        SbmtError: If it holds another run, or none to resume.
    """
    path = folder / "config.json"
    if not is_first_process():
        return
    if resume:
        found = read_json(path)
        if not has_kept(folder):
            raise SbmtError(f"a checkpoint in {folder}", "none", "begin anew: leave --resume out")
        before, now = (one.to_dict() for one in (type(config).from_dict(found), config))
        before, now = before | before.pop("options"), now | now.pop("options")
        if changed := sorted(name for name in before | now if before.get(name) != now.get(name)):
            raise SbmtError(f"the settings in {path}", f"others for {', '.join(changed)}", "resume with the same ones")
        if not (folder / STATE).exists():
            raise SbmtError(f"a checkpoint in {folder}", "none", "it is finished")
    elif has_kept(folder):
        raise SbmtError("a folder without a run", folder, "name another folder, or go on with --resume")
    else:
        write_json(path, config.to_dict())
    remove_parts(folder)


def has_kept(folder: Path) -> bool:
    """Whether a folder holds a run's checkpoint or its results, so that something would be lost if it began anew."""
    return any((folder / name).exists() for name in _KEPT)


def is_first_process() -> bool:
    """Whether this process is the one that writes and prints."""
    return not any(int(os.environ.get(name, 0)) for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


@contextmanager
def _interruptible() -> Iterator[None]:
    """Keeps Ctrl-C a KeyboardInterrupt: Lightning would leave the process, and ignore the next one."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as leaving:
        if not isinstance(leaving.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences Lightning's advice, all of which is about things that are done here on purpose."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for about in (
                "does not have many workers",
                "exists and is not empty",
                "IterableDataset",
                "litlogger",
                "sync_dist",
                "LeafSpec",
                "have no `val_dataloader`",
                "precision='16-mixed'",  # which is refused
            ):
                warnings.filterwarnings("ignore", f".*{about}.*")
            yield
    finally:
        logger.setLevel(level)

"""Trains a model on prepared examples with Lightning."""

import logging
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch.utils.data import DataLoader

from sbmt.errors import SbmtError, check_sizes
from sbmt.experiments.files import read_json, remove_parts, write_json
from sbmt.experiments.locks import only_writer
from sbmt.experiments.training.callbacks import BEST, STATE, EveryStep, MetricsTable, checkpoints
from sbmt.experiments.training.checkpoints import TensorsAndJson, checkpoint_of, weights
from sbmt.experiments.training.language import GlueConfig
from sbmt.experiments.training.loop import Step
from sbmt.experiments.training.module import SequenceModule
from sbmt.experiments.training.runs import load_weights
from sbmt.experiments.training.sequence_config import SequenceConfig
from sbmt.experiments.training.streams import BatchStream
from sbmt.experiments.training.task_data import ExamplesOf, TaskData, open_data
from sbmt.experiments.training.task_runs import TaskRun, describe, load_pretrained


def fit(
    config: SequenceConfig,
    folder: Path,
    *,
    resume: bool = False,
    on_step: Callable[[Step], None] | None = None,
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    strategy: str = "auto",
) -> TaskRun:
    """Trains a model, keeps the weights that do best on dev, and tests them.

    Fine-tuning starts from the encoder of the pre-training run that its configuration names.

    Args:
        config: What to train.
        folder: Where the run is written, and its checkpoints while it lasts.
        resume: Whether to go on from the checkpoint in ``folder``. The result equals an uninterrupted run's, on the
            same machine and number of threads.
        on_step: Called after every optimiser step.
        accelerator: Lightning's: ``auto``, ``cpu``, ``gpu``.
        devices: Processes on this machine, each with its own device.
        nodes: Machines.
        strategy: Lightning's: ``auto``, ``ddp``.

    Raises:
        SbmtError: If the data or the pre-training run are not there, the folder holds another run or another process
            writes into it, there is nothing to resume, a batch does not divide among the processes, or the loss is not
            finite.
    """
    check_sizes(devices=devices, nodes=nodes)
    with only_writer(folder if is_first_process() else None):
        return _fit(config, folder, resume, on_step, accelerator, devices, nodes, strategy)


def _fit(
    config: SequenceConfig,
    folder: Path,
    resume: bool,
    on_step: Callable[[Step], None] | None,
    accelerator: str,
    devices: int,
    nodes: int,
    strategy: str,
) -> TaskRun:
    data = open_data(config)
    module = SequenceModule(config, data.info)
    origin = {}
    if isinstance(config, GlueConfig) and config.pretrained:
        origin = {"pretrained": load_pretrained(module.model.get_submodule("encoder"), Path(config.pretrained))}
    table = MetricsTable(folder, config.steps)
    steps = [] if on_step is None else [EveryStep(on_step)]
    with _quiet():
        try:
            trainer = Trainer(
                accelerator=accelerator,
                devices=devices,
                num_nodes=nodes,
                strategy=strategy,
                precision=config.precision,
                max_steps=config.steps,
                max_epochs=-1,
                accumulate_grad_batches=config.accumulate,
                val_check_interval=min(config.eval_every, config.steps) * config.accumulate,
                check_val_every_n_epoch=None,
                num_sanity_val_steps=0,
                callbacks=[*steps, table, *checkpoints(folder, config.best_by)],
                plugins=[TensorsAndJson()],
                logger=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                use_distributed_sampler=False,
                inference_mode=False,
                default_root_dir=folder,
            )
        except MisconfigurationException as error:
            got = str(error).strip().splitlines()[0]
            raise SbmtError("devices that this machine has", got, "ask for fewer, or others") from error
        if config.batch_size % (config.accumulate * trainer.world_size):
            parts = config.accumulate * trainer.world_size
            raise SbmtError(f"a batch size divisible by {parts} parts", config.batch_size, "change one of them")
        claim(folder, config, resume)  # not before all that can be wrong with the settings has been seen
        loaders = _Loaders(config, data, trainer)
        start = time.perf_counter()
        state = folder / f"{STATE}.safetensors"
        with _interruptible():
            trainer.fit(
                module,
                loaders.train(checkpoint_of(state, module.run)["global_step"] if resume else 0),
                loaders.evaluation("dev"),
                ckpt_path=state if resume else None,
            )
        if trainer.global_step < config.steps:
            raise SbmtError(f"{config.steps} steps", trainer.global_step, "go on with --resume")
        seconds = time.perf_counter() - start
        best = folder / f"{BEST}.safetensors"
        checkpoint_of(best, module.run)
        load_weights(module.model, weights(best), folder)
        tests = {}
        for name in data.tests:
            with _interruptible():
                trainer.test(module, loaders.evaluation(name), verbose=False)
            tests[name] = module.scores
    about = describe(config, data, table.rows, tests) | origin
    run = TaskRun(config, module.model, table.rows, tests["test"], about, seconds, data.tokenizer)
    if trainer.is_global_zero:
        run.save(folder)
        for name in (STATE, BEST):
            (folder / f"{name}.safetensors").unlink(missing_ok=True)
    return run


def claim(folder: Path, config: SequenceConfig, resume: bool) -> None:
    """Makes the folder this configuration's, or checks that it is.

    Raises:
        SbmtError: If it holds another run, or none to resume.
    """
    path = folder / "config.json"
    if not is_first_process():
        return
    if resume:
        if type(config).from_dict(read_json(path)) != config:
            raise SbmtError(f"the configuration in {path}", "another", "resume with the same settings")
        if not (folder / f"{STATE}.safetensors").exists():
            done = (folder / "result.json").exists()
            raise SbmtError(f"a checkpoint in {folder}", "none", "it is finished" if done else "remove the folder")
    elif path.exists():
        raise SbmtError("a folder without a run", folder, "name another folder, or go on with --resume")
    else:
        write_json(path, config.to_dict())
    remove_parts(folder)


def is_first_process() -> bool:
    """Whether this process is the one that writes and prints."""
    return not any(int(os.environ.get(name, 0)) for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


class _Loaders:
    """The streams of a run, each divided among the processes of a trainer."""

    def __init__(self, config: SequenceConfig, data: TaskData, trainer: Trainer) -> None:
        self.config, self.data, self.trainer = config, data, trainer
        self.size = config.batch_size // config.accumulate

    def train(self, step: int) -> DataLoader[Any]:
        first = step * self.config.accumulate
        return self._loader("train", self.data.feeds["train"].endless(self.size, self.config.seed), first)

    def evaluation(self, name: str) -> DataLoader[Any]:
        n_examples = self.config.dev_examples if name == "dev" else self.config.test_examples
        feed = self.data.feeds[name]
        return self._loader(name, feed.once(self.size, min(len(feed), n_examples or len(feed))), 0)

    def _loader(self, name: str, examples_of: ExamplesOf, first: int) -> DataLoader[Any]:
        ranks = {"rank": self.trainer.global_rank, "n_ranks": self.trainer.world_size}
        return DataLoader(BatchStream(self.data.feeds[name], examples_of, first=first, **ranks), batch_size=None)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Lightning answers Ctrl-C by leaving the process, and is deaf to the next; here it stays a KeyboardInterrupt."""
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
    """Without Lightning's advice: what it advises against here is meant."""
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
            ):
                warnings.filterwarnings("ignore", f".*{about}.*")
            yield
    finally:
        logger.setLevel(level)

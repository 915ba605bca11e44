"""Training with Lightning: the module with its batches and metrics, the checkpoints, and the trainer."""

import io
import zipfile
from dataclasses import asdict
from functools import partial
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor
from torch.utils.data import DataLoader

from sbmt.block_model.fit import auxiliary_loss, density_penalty
from sbmt.counter_rng import examples_from
from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.files import check_regular, write_bytes, write_tensors
from sbmt.experiments.training.config import TrainingConfig, build_model
from sbmt.experiments.training.data import BatchStream, ExamplesOf, TaskData
from sbmt.experiments.training.evaluate import answers, inputs, joined
from sbmt.experiments.training.generated import TEST_SEED
from sbmt.experiments.training.run import BEST, STATE, OnStep, Step, best_row, metrics_csv
from sbmt.models import ModelOutput

ROWS = 200  # number of training rows in the table of metrics; runs on generated sequences have a row per step instead
_EVALUATION = 1 << 62  # larger than any number of a training batch


class TrainingModule(LightningModule):
    """The batches, loss, scores, optimiser, schedule and metrics table of a run, as its configuration defines them.

    Several processes, or a resumed run, draw the same masks and dropout as one uninterrupted process. The table
    contains means over equal stretches of training, and every evaluation on dev. The weights that score best on dev
    are saved in the folder; if several score equally, the earliest are kept.
    """

    def __init__(
        self, config: TrainingConfig, data: TaskData, folder: Path | None = None, on_step: OnStep | None = None
    ) -> None:
        super().__init__()
        self.config, self.data, self.folder, self.on_step = config, data, folder, on_step
        self.model = build_model(config, data.info)
        self.about = config.start_from(self.model)  # facts about the initial weights, for the result
        self.origin = {"examples": data.info.get("sha256"), "tokenizer": data.info.get("tokenizer")} | self.about
        self.masks = torch.Generator().manual_seed(config.seed + 1)
        self.test_masks = torch.Generator()
        self.answers: list[tuple[Tensor, ...]] = []  # for the batches of an evaluation
        self.latest: dict[str, Tensor] = {}  # scores of the last batch
        self.rows: list[dict[str, Any]] = []
        self.stretch: dict[str, Tensor] = {}  # sums over the batches since the last row, and the number of batches

    def mask_generator(self, number: int) -> torch.Generator:
        """Returns the generator of a batch's masks. All generated sequences share one; other batches have their own."""
        if not self.config.is_generated:
            key = self.config.seed, number if self.training else _EVALUATION + number
            state = np.random.SeedSequence(key).generate_state(1, np.uint64)
            return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        if self.training:
            return self.masks
        return self.test_masks.manual_seed(2 * TEST_SEED) if number == 0 else self.test_masks

    def forward(self, batch: Batch) -> ModelOutput:
        """Computes the logits, along with the output of every attention layer."""
        generator = self.mask_generator(batch.number)
        if self.training and not self.config.is_generated:  # dropout draws from the global generator
            torch.manual_seed(generator.initial_seed() + batch.first_example)
        with examples_from(batch.first_example * self.data.info.get("n_documents", 1)):
            output: ModelOutput = self.model(**inputs(batch), generator=generator)
            return output

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Returns the loss plus λ times the density, plus the auxiliary loss of block models trained by likelihood."""
        output = self(batch)
        loss = self.config.loss(output.values, batch.labels) * batch.weight
        if not torch.isfinite(loss):
            raise SbmtError("a finite loss", f"{loss} at step {self.global_step + 1}", "lower the learning rate")
        n_right = (self.config.predict(output.values) == batch.labels).float().sum()
        accuracy = n_right / max(1, len(batch.labels)) * batch.weight
        density = torch.stack([a.density for a in output.attention]).detach().float().mean()
        self.latest = {"loss": loss.detach(), "accuracy": accuracy, "density": density}
        if weight := self.config.density_weight:
            loss = loss + weight * density_penalty(output.attention, self.config.density_kind)
        if (fit := auxiliary_loss(output)).requires_grad:
            self.latest["auxiliary_loss"] = fit.detach()
            loss = loss + fit
        for name, x in {"n": torch.ones(()), **self.latest}.items():
            self.stretch[name] = x + self.stretch.get(name, 0)
        return loss

    def optimizer_step(self, *arguments: Any, **named: Any) -> None:
        """Takes a step, reports it, and adds a row if the stretch is complete. Checkpoints are written afterwards."""
        super().optimizer_step(*arguments, **named)
        step = self.global_step + 1
        if self.on_step is not None and self.trainer.is_global_zero:
            self.on_step(Step(step, **{name: float(x) for name, x in self.latest.items()}))
        if self.config.is_generated or step % max(1, self.config.steps // ROWS) == 0:
            n, mean = self.stretch.pop("n").item(), partial(self.trainer.strategy.reduce, reduce_op="mean")
            means = {name: float(mean(x / n)) for name, x in self.stretch.items()}
            self.rows.append({"step": step, "split": "train"} | means)
            self.stretch = {}

    def validation_step(self, batch: Batch, _: int) -> None:
        """Stores the answers for a batch of dev or test."""
        self.answers.append(answers(self.config, batch, [self(batch)]))

    test_step = validation_step

    def on_test_epoch_end(self) -> None:
        """Computes the scores on dev or test from the answers of all processes."""
        parts = [self.answers]
        if dist.is_initialized():
            parts = parts * dist.get_world_size()
            dist.all_gather_object(parts, self.answers)
        self.answers = []
        self.scores = joined(self.config, list(chain(*parts))).scores
        if not isfinite(loss := self.scores.loss):
            raise SbmtError("a finite loss", f"{loss} at step {self.global_step}", "lower the learning rate")

    def on_validation_epoch_end(self) -> None:
        """Adds a row for dev, writes the table, and saves the weights if they are the best so far."""
        self.on_test_epoch_end()
        means = {name: value for name, value in asdict(self.scores).items() if isinstance(value, float)}
        self.rows.append({"step": self.global_step, "split": "dev"} | means | self.scores.metrics)
        if self.folder is not None and self.trainer.is_global_zero:
            write_bytes(self.folder / "metrics.csv", metrics_csv(self.rows))
            if best_row(self.config, self.rows) is self.rows[-1]:
                write_tensors(self.folder / BEST, self.model.state_dict())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds the origin of data and weights, the state of the mask generator, and the table to a checkpoint."""
        checkpoint |= {"origin": self.origin, "masks": self.masks.get_state()}
        checkpoint |= {"rows": self.rows, "stretch": self.stretch}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the mask generator and table; raises SbmtError if examples, tokeniser or initial weights differ."""
        if changed := [name for name, value in self.origin.items() if checkpoint["origin"].get(name) != value]:
            raise SbmtError("a checkpoint of this run", f"one with different {', '.join(changed)}", "restore the files")
        self.masks.set_state(checkpoint["masks"])
        self.rows, self.stretch = checkpoint["rows"], checkpoint["stretch"]

    def configure_optimizers(self) -> Any:
        """Returns the optimiser and the learning-rate schedule of the task."""
        optimizer = self.config.make_optimizer(self.config.parameter_groups(self.model))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.config.learning_rate_share(step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def train_dataloader(self) -> DataLoader[Any]:
        """Returns the training batches, starting with the next step."""
        accumulate, first = self.config.accumulate, self.global_step * self.config.accumulate
        order = self.data.feeds["train"].endless(self.config.batch_size // accumulate, self.config.seed)
        return self._loader("train", order, first)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        """Returns the batches of the dev split, if there is one."""
        return [] if self.config.is_generated else [self.evaluation("dev")]

    def evaluation(self, split: str) -> DataLoader[Any]:
        """Returns the batches of the dev split or a test split. Generated sequences are the same in all runs."""
        config = self.config
        size = config.evaluation_batch if config.is_generated else config.batch_size // config.accumulate
        return self._loader(split, self.data.feeds[split].once(size, config.n_examples(split)))

    def _loader(self, split: str, examples_of: ExamplesOf, first: int = 0) -> DataLoader[Any]:
        part = {"rank": self.trainer.global_rank, "n_ranks": self.trainer.world_size, "first": first}
        return DataLoader(BatchStream(self.data.feeds[split], examples_of, **part), batch_size=None)


class WholeFiles(TorchCheckpointIO):
    """Writes Lightning's checkpoints atomically, and reads nothing but tensors, numbers and names from them."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Writes a checkpoint atomically."""
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write_bytes(Path(path), content.getvalue())

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        """Reads a checkpoint. A file that is missing, damaged or written by another program raises SbmtError."""
        check_regular(Path(path))
        try:
            with zipfile.ZipFile(path) as parts:  # torch does not verify the checksums
                if (damaged := parts.testzip()) is not None:
                    raise ValueError(f"{damaged} is damaged")
            checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if "origin" not in checkpoint:
                raise ValueError("a checkpoint of another program")
            return checkpoint
        except Exception as error:  # any exception, since the content may be anything
            got = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SbmtError(f"an intact checkpoint {path}", got, "delete its folder and train again") from error


def make_trainer(config: TrainingConfig, folder: Path, where: dict[str, Any]) -> Trainer:
    """Returns a trainer for the devices in ``where``. Absent devices, or too many for a batch, raise SbmtError."""
    state: dict[str, Any] = {"dirpath": folder, "filename": Path(STATE).stem, "enable_version_counter": False}
    if config.is_generated:  # other runs save after every evaluation on dev
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
        )
    except (MisconfigurationException, ImportError, ValueError, RuntimeError) as error:  # or invalid SLURM variables
        got = str(error).strip().splitlines()[0]
        raise SbmtError("devices that this machine has", got, "choose other devices") from error
    parts = config.accumulate * trainer.world_size
    if config.batch_size % parts:
        raise SbmtError(f"batch_size divisible by {parts}, the number of parts", config.batch_size, "choose a multiple")
    return trainer

"""What Lightning trains: a model on a task, the batches that it reads, checkpoints, and the table of metrics."""

import io
import zipfile
from collections.abc import Callable
from math import isfinite, nan
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor
from torch.utils.data import DataLoader
from torchmetrics import Metric, MetricCollection

from sbmt.block_model.fit import auxiliary_loss, density_penalty
from sbmt.counter_rng import examples_from
from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.files import check_regular, write_bytes, write_tensors
from sbmt.experiments.training.config import TrainingConfig, build_model
from sbmt.experiments.training.data import BatchStream, ExamplesOf, TaskData
from sbmt.experiments.training.evaluate import call_model
from sbmt.experiments.training.run import BEST, Scores, Step, best_row, metrics_csv
from sbmt.layers import SBMAttention
from sbmt.models import ModelOutput

_EVALUATION = 1 << 62  # no batch of a training has so large a number


class Totals(Metric):
    """Sums over the batches of an evaluation, and over processes; ``n_densities`` is the number of all heads."""

    full_state_update = False
    sums: Tensor
    counts: Tensor

    def __init__(self, n_densities: int, dtype: torch.dtype) -> None:
        super().__init__()
        # loss, right labels; expected density, densities
        self.add_state("sums", torch.zeros(3 + n_densities, dtype=dtype), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(2, dtype=torch.int64), dist_reduce_fx="sum")  # labels, examples

    def update(self, loss: Tensor, n_right: Tensor, n_labels: int, output: ModelOutput) -> None:
        """Adds a batch, given its mean loss."""
        dtype = self.sums.dtype
        expected = torch.stack([a.expected_density.to(dtype).mean() for a in output.attention]).mean()
        densities = densities_of(output, dtype)
        scores = torch.stack([loss.to(dtype) * n_labels, n_right.to(dtype)])
        self.sums += torch.cat([scores, torch.cat([expected[None], densities.mean(0)]) * len(densities)])
        self.counts += torch.tensor([n_labels, len(densities)], device=self.counts.device)

    def compute(self) -> tuple[float, float, float, Tensor]:
        """Loss, accuracy, expected density, and the densities of all heads."""
        n_labels, n_examples = self.counts.to(self.sums.dtype)
        densities = (self.sums[2:] / n_examples).double().cpu()
        return float(self.sums[0] / n_labels), float(self.sums[1] / n_labels), float(densities[0]), densities[1:]


class TrainingModule(LightningModule):
    """Loss, scores, optimiser and schedule of a run, as its configuration says.

    Where masks and dropout come from (seed, number of the batch), processes that share a batch draw what one process
    would. A run that goes on from a checkpoint draws what it would have drawn without a stop.
    """

    def __init__(self, config: TrainingConfig, info: dict[str, Any]) -> None:
        super().__init__()
        self.config, self.n_documents = config, info.get("n_documents", 1)
        self.model = build_model(config, info)
        self.origin = {"settings": config.to_dict(), "examples": info.get("sha256"), "tokenizer": info.get("tokenizer")}
        about = config.start_from(self.model)
        self.about = about  # what the result says of the weights that training starts from
        self.origin["pre-trained weights"] = about["pretrained"]["sha256"] if about else None
        self.fitted = {  # layers that learn by likelihood, and the c that they end with
            layer: layer.edges_per_query
            for layer in self.model.modules()
            if isinstance(layer, SBMAttention) and layer.edges_per_query is not None
        }
        self.masks = torch.Generator().manual_seed(config.seed + 1)
        self.test_masks = torch.Generator()
        self.totals = Totals(config.n_layers * config.n_heads, config.score_type)
        self.metrics = MetricCollection(
            dict(config.make_metrics(len(info.get("class_names", ())))), compute_groups=False
        )
        self.latest: dict[str, Tensor] = {}  # of the last batch, for the progress bar and the table of metrics

    def mask_generator(self, number: int) -> torch.Generator:
        """What the masks of a batch are drawn from.

        One generator for all of training and one that every evaluation starts anew, or a generator for every batch,
        seeded by (seed, number), so that any batch can be computed by itself.
        """
        if not self.config.is_generated:
            key = self.config.seed, number if self.training else _EVALUATION + number
            state = np.random.SeedSequence(key).generate_state(1, np.uint64)
            return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        if self.training:
            return self.masks
        return self.test_masks.manual_seed(self.config.evaluation_seed) if number == 0 else self.test_masks

    def forward(self, batch: Batch) -> ModelOutput:
        """Logits and attention."""
        generator = self.mask_generator(batch.number)
        if self.training and self.config.has_dropout:  # dropout draws from the global generator
            torch.manual_seed(generator.initial_seed() + batch.first_example)
        with examples_from(batch.first_example * self.n_documents):
            try:
                return call_model(self.model, batch, generator)
            except SbmtError as error:
                if "NaN" not in str(error):
                    raise
                raise self._diverged(nan) from error  # which a block model has noticed before the loss does

    def _diverged(self, got: float) -> SbmtError:
        step = self.global_step + self.training
        return SbmtError("a finite loss", f"{got} at step {step}", "lower the learning rate")

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """The loss, λ times the density, and what block models learn from by likelihood."""
        step = self.global_step + 1
        for layer, edges in self.fitted.items():
            layer.is_dense = step <= self.config.dense_steps
            layer.edges_per_query = self.config.edges_per_query_at(step, edges)
        output = self(batch)
        loss = self.config.loss(output.values, batch.labels) * batch.weight
        if not torch.isfinite(loss):
            raise self._diverged(loss.item())
        n_right = (self.config.predict(output.values) == batch.labels).float().sum()
        accuracy = n_right / max(1, len(batch.labels)) * batch.weight
        densities = densities_of(output, torch.float32).mean(0).detach()
        self.latest = {"loss": loss.detach(), "accuracy": accuracy, "densities": densities}
        if weight := self.config.density_weight_at(step):
            loss = loss + weight * density_penalty(output.attention, self.config.density_kind)
        if (fit := auxiliary_loss(output)).requires_grad:
            self.latest["auxiliary_loss"] = fit.detach()
            loss = loss + self.config.auxiliary_weight * fit
        return loss

    def on_train_end(self) -> None:
        """Leaves the layers as their configuration says, wherever training stopped."""
        for layer, edges in self.fitted.items():
            layer.is_dense, layer.edges_per_query = False, edges

    def validation_step(self, batch: Batch, _: int) -> None:
        """Counts a batch of dev or test in."""
        output = self(batch)
        predicted = self.config.predict(output.values)
        if len(batch.labels):
            self.metrics.update(predicted, batch.labels)
        loss = self.config.loss(output.values, batch.labels)
        self.totals.update(loss, (predicted == batch.labels).sum(), len(batch.labels), output)

    test_step = validation_step

    def on_validation_epoch_end(self) -> None:
        """Keeps how dev or test went."""
        loss, accuracy, expected, densities = self.totals.compute()
        if not isfinite(loss):
            raise self._diverged(loss)
        metrics = {name: float(value) for name, value in self.metrics.compute().items()}
        self.totals.reset()
        self.metrics.reset()
        layers = densities.view(self.config.n_layers, self.config.n_heads).tolist()
        metrics |= self.config.metrics_of(loss)
        self.scores = Scores(loss, accuracy, float(densities.mean()), expected, layers, metrics)

    on_test_epoch_end = on_validation_epoch_end

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Says whose checkpoint it is, and how masks go on."""
        checkpoint |= {"origin": self.origin, "masks": self.masks.get_state()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes the masks up; SbmtError if settings, examples, tokeniser or starting weights are others."""
        found = checkpoint.get("origin") or {}
        if changed := [name for name, value in self.origin.items() if found.get(name) != value]:
            do = "restore what has changed, or remove the run's folder and train again"
            raise SbmtError("a checkpoint of this run", f"one with other {', '.join(changed)}", do)
        self.masks.set_state(checkpoint["masks"])

    def configure_optimizers(self) -> Any:
        """The task's optimiser and learning rates."""
        optimizer = self.config.make_optimizer(self.config.parameter_groups(self.model))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.config.learning_rate_share(step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class RunData(LightningDataModule):
    """The batches of a run, each divided among the processes of its trainer."""

    def __init__(self, config: TrainingConfig, data: TaskData) -> None:
        super().__init__()
        self.config, self.data, self.tested = config, data, "test"
        self.size = config.batch_size // config.accumulate
        self.first = 0  # batch of training

    def examples_of(self, split: str) -> ExamplesOf:
        """The batches of an evaluation; of generated sequences the same for every run."""
        size = self.config.evaluation_batch if self.config.is_generated else self.size
        return self.data.feeds[split].once(size, self.config.n_examples(split))

    def check_labels(self, split: str) -> None:
        """Raises SbmtError if no example of an evaluation has a label: a small corpus may have nothing to guess."""
        if not any(len(batch.labels) for batch in BatchStream(self.data.feeds[split], self.examples_of(split))):
            do = "evaluate on more of them, or on longer ones"
            raise SbmtError(f"a label to be guessed among the examples of {split}", "none", do)

    def _loader(self, split: str, examples_of: ExamplesOf, first: int = 0) -> DataLoader[Any]:
        trainer = cast(Trainer, self.trainer)
        part = {"rank": trainer.global_rank, "n_ranks": trainer.world_size, "first": first}
        return DataLoader(BatchStream(self.data.feeds[split], examples_of, **part), batch_size=None)

    def train_dataloader(self) -> DataLoader[Any]:
        """Training, from the first step that is not done."""
        return self._loader("train", self.data.feeds["train"].endless(self.size, self.config.seed), self.first)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        """Dev, where there is one."""
        return [self._loader("dev", self.examples_of("dev"))] if self.config.has_dev else []

    def test_dataloader(self) -> DataLoader[Any]:
        """The split ``tested``."""
        return self._loader(self.tested, self.examples_of(self.tested))

    def state_dict(self) -> dict[str, Any]:
        """How far training has come."""
        return {"first": cast(Trainer, self.trainer).global_step * self.config.accumulate}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from there."""
        self.first = state["first"]


class WholeFiles(TorchCheckpointIO):
    """Lightning's checkpoints, written whole or not at all, and read as tensors, numbers and names only."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Writes one."""
        content = io.BytesIO()
        torch.save(checkpoint, content)
        write_bytes(Path(path), content.getvalue())

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        """Reads one; SbmtError if the file is missing or damaged, or holds anything else."""
        check_regular(Path(path))
        try:
            with zipfile.ZipFile(path) as parts:  # torch does not look at the checksums
                if (damaged := parts.testzip()) is not None:
                    raise ValueError(f"damage in {damaged}")
            checkpoint: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if checkpoint["origin"].keys() and checkpoint["global_step"] > 0:
                return checkpoint
            raise ValueError("a run that has not begun")
        except Exception as error:  # of many kinds: the content is anybody's
            got = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SbmtError(f"a whole checkpoint {path}", got, "remove its folder and train again") from error


class MetricsTable(Callback):
    """Means over equal stretches of training and every evaluation on dev, kept with the checkpoints.

    Also reports optimiser steps to ``on_step``, and keeps the weights that do best on dev; among equals, the first.
    """

    def __init__(self, folder: Path, on_step: Callable[[Step], None] | None = None) -> None:
        self.folder, self.on_step = folder, on_step
        self.rows: list[dict[str, Any]] = []
        self._sums: dict[str, Tensor] = {}
        self._count, self._last = 0, 0

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        """Starts after the steps that a checkpoint holds."""
        self._last = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Adds a batch to the current stretch, and reports the step that it completes, if it does."""
        latest, config, step = module.latest, module.config, trainer.global_step
        for name, value in latest.items():
            self._sums[name] = self._sums[name].to(value.device) + value if name in self._sums else value.clone()
        self._count += 1
        if step == self._last:
            return
        self._last = step
        if self.on_step is not None and trainer.is_global_zero:
            values = {name: float(value.mean()) for name, value in latest.items()}
            self.on_step(Step(step, density=values.pop("densities"), **values))
        if step % config.row_every:
            return
        means = {name: trainer.strategy.reduce(x / self._count, reduce_op="mean") for name, x in self._sums.items()}
        densities = means.pop("densities").double().cpu()
        loss, accuracy, *fits = (float(x) for x in means.values())
        metrics = config.metrics_of(loss) | ({"auxiliary_loss": fits[0]} if fits else {})
        layers = densities.view(config.n_layers, config.n_heads).tolist()
        scores = Scores(loss, accuracy, float(densities.mean()), nan, layers, metrics)
        self.rows.append({"step": step, "split": "train"} | scores.row())
        self._sums, self._count = {}, 0

    def on_validation_end(self, trainer: Trainer, module: Any) -> None:
        """Adds a row for dev, and writes the table, and the weights if they are the best so far."""
        self.rows.append({"step": trainer.global_step, "split": "dev"} | module.scores.row())
        if trainer.is_global_zero:
            write_bytes(self.folder / "metrics.csv", metrics_csv(self.rows))
            if best_row(module.config, self.rows) is self.rows[-1]:
                write_tensors(self.folder / BEST, module.model.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """The rows and the current stretch, for a checkpoint."""
        return {"rows": self.rows, "sums": self._sums, "count": self._count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.rows, self._sums, self._count = state["rows"], state["sums"], state["count"]


def densities_of(output: ModelOutput, dtype: torch.dtype) -> Tensor:
    """Density of every example (rows) in every head of every layer (columns)."""
    return torch.cat([a.density.to(dtype) for a in output.attention], 1)

"""What Lightning trains: a model on a task, the table of its metrics, the batches that it reads, and checkpoints."""

import io
import zipfile
from collections.abc import Callable
from math import isfinite, nan
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor
from torch.utils.data import DataLoader
from torchmetrics import MetricCollection

from sbmt.block_model.fit import auxiliary_loss, density_penalty
from sbmt.counter_rng import examples_from
from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.files import check_regular, write_bytes, write_tensors
from sbmt.experiments.training.config import TrainingConfig, build_model
from sbmt.experiments.training.data import BatchStream, ExamplesOf, TaskData
from sbmt.experiments.training.evaluate import call_model
from sbmt.experiments.training.generated import TEST_SEED
from sbmt.experiments.training.run import BEST, Scores, Step, best_row, metrics_csv
from sbmt.models import ModelOutput

ROWS = 200  # of training in the table of metrics; of generated sequences there is one for every step
_EVALUATION = 1 << 62  # no batch of a training has so large a number


class TrainingModule(LightningModule):
    """Loss, scores, optimiser and schedule of a run, as its configuration says, and its table of metrics.

    Where masks and dropout come from (seed, number of the batch), processes that share a batch draw what one process
    would. A run that goes on from a checkpoint draws what it would have drawn without a stop. The table, kept with the
    checkpoints, has means over equal stretches of training and every evaluation on dev. The weights that do best on dev
    are kept in the folder; among equals, the first.
    """

    def __init__(
        self,
        config: TrainingConfig,
        info: dict[str, Any],
        folder: Path | None = None,
        on_step: Callable[[Step], None] | None = None,
    ) -> None:
        super().__init__()
        self.config, self.n_documents, self.folder, self.on_step = config, info.get("n_documents", 1), folder, on_step
        self.model = build_model(config, info)
        self.about = config.start_from(self.model)  # what the result says of the weights that training starts from
        self.origin = {"examples": info.get("sha256"), "tokenizer": info.get("tokenizer")}
        self.origin["pre-trained weights"] = self.about["pretrained"]["sha256"] if self.about else None
        self.masks = torch.Generator().manual_seed(config.seed + 1)
        self.test_masks = torch.Generator()
        dtype = torch.float64 if config.is_generated else torch.float32
        self.nothing = torch.zeros(5 + config.n_layers * config.n_heads, dtype=dtype)
        self.total = self.nothing  # of an evaluation
        metrics: Any = config.make_metrics(len(info.get("class_names", ())))
        self.metrics = MetricCollection(metrics, compute_groups=False)
        self.latest: dict[str, Tensor] = {}  # of the last batch
        self.rows: list[dict[str, Any]] = []
        self.stretch: dict[str, Tensor] = {}  # sums over the batches since the last row, and their number

    def mask_generator(self, number: int) -> torch.Generator:
        """What the masks of a batch are drawn from: of generated sequences one generator that goes on, else its own."""
        if not self.config.is_generated:
            key = self.config.seed, number if self.training else _EVALUATION + number
            state = np.random.SeedSequence(key).generate_state(1, np.uint64)
            return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        if self.training:
            return self.masks
        return self.test_masks.manual_seed(2 * TEST_SEED) if number == 0 else self.test_masks

    def forward(self, batch: Batch) -> ModelOutput:
        """Logits and attention."""
        generator = self.mask_generator(batch.number)
        if self.training and not self.config.is_generated:  # dropout draws from the global generator
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
        output = self(batch)
        loss = self.config.loss(output.values, batch.labels) * batch.weight
        if not torch.isfinite(loss):
            raise self._diverged(loss.item())
        n_right = (self.config.predict(output.values) == batch.labels).float().sum()
        accuracy = n_right / max(1, len(batch.labels)) * batch.weight
        densities = densities_of(output, torch.float32).mean(0).detach()
        self.latest = {"loss": loss.detach(), "accuracy": accuracy, "densities": densities}
        if weight := self.config.density_weight:
            loss = loss + weight * density_penalty(output.attention, self.config.density_kind)
        if (fit := auxiliary_loss(output)).requires_grad:
            self.latest["auxiliary_loss"] = fit.detach()
            loss = loss + fit
        for name, x in {"n": torch.ones(()), **self.latest}.items():
            self.stretch[name] = self.stretch[name].to(x.device) + x if name in self.stretch else x.clone()
        return loss

    def optimizer_step(self, *arguments: Any, **named: Any) -> None:
        """Takes a step, reports it, and ends the stretch if it is complete; a checkpoint comes after that."""
        super().optimizer_step(*arguments, **named)
        step = self.global_step + 1
        if self.on_step is not None and self.trainer.is_global_zero:
            values = {name: float(value.mean()) for name, value in self.latest.items()}
            self.on_step(Step(step, density=values.pop("densities"), **values))
        if self.config.is_generated or step % max(1, self.config.steps // ROWS) == 0:
            n = self.stretch.pop("n").item()
            means = {name: self.trainer.strategy.reduce(x / n, reduce_op="mean") for name, x in self.stretch.items()}
            densities = means.pop("densities").double().cpu()
            loss, accuracy, *fits = (float(x) for x in means.values())
            scores = self._scores(loss, accuracy, nan, densities, {"auxiliary_loss": fits[0]} if fits else {})
            self.rows.append({"step": step, "split": "train"} | scores.row())
            self.stretch = {}

    def _scores(self, loss: float, accuracy: float, expected: float, densities: Tensor, metrics: Any) -> Scores:
        layers = densities.view(self.config.n_layers, self.config.n_heads).tolist()
        return Scores(loss, accuracy, float(densities.mean()), expected, layers, metrics | self.config.metrics_of(loss))

    def validation_step(self, batch: Batch, _: int) -> None:
        """Counts a batch of dev or test in."""
        output, dtype = self(batch), self.total.dtype
        predicted, densities = self.config.predict(output.values), densities_of(output, dtype)
        if len(batch.labels):
            self.metrics.update(predicted, batch.labels)
        n_labels, n_examples = (densities.new_tensor(n) for n in (len(batch.labels), len(densities)))
        loss = self.config.loss(output.values, batch.labels).to(dtype) * n_labels
        expected = torch.stack([a.expected_density.to(dtype).mean() for a in output.attention]).mean() * n_examples
        n_right = (predicted == batch.labels).sum().to(dtype)
        scores = torch.stack([loss, n_right, n_labels, expected, n_examples])
        self.total = self.total.to(scores.device) + torch.cat([scores, densities.mean(0) * n_examples])

    test_step = validation_step

    def on_test_epoch_end(self) -> None:
        """Keeps how dev or test went."""
        total = self.total.to(self.device)
        if dist.is_initialized():
            dist.all_reduce(total)
        loss, n_right, n_labels, expected, n_examples = total[:5]
        if not isfinite(loss):
            raise self._diverged(float(loss))
        metrics = {name: float(value) for name, value in self.metrics.compute().items()}
        densities, accuracy = (total[5:] / n_examples).double().cpu(), float(n_right / n_labels)
        self.scores = self._scores(float(loss / n_labels), accuracy, float(expected / n_examples), densities, metrics)
        self.total = self.nothing
        self.metrics.reset()

    def on_validation_epoch_end(self) -> None:
        """Adds a row for dev, and writes the table, and the weights if they are the best so far."""
        self.on_test_epoch_end()
        self.rows.append({"step": self.global_step, "split": "dev"} | self.scores.row())
        if self.folder is not None and self.trainer.is_global_zero:
            write_bytes(self.folder / "metrics.csv", metrics_csv(self.rows))
            if best_row(self.config, self.rows) is self.rows[-1]:
                write_tensors(self.folder / BEST, self.model.state_dict())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Says whose checkpoint it is, and how masks and table go on."""
        checkpoint |= {"origin": self.origin, "masks": self.masks.get_state()}
        checkpoint |= {"rows": self.rows, "stretch": self.stretch}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes masks and table up; SbmtError if examples, tokeniser or starting weights are others."""
        if changed := [name for name, value in self.origin.items() if checkpoint["origin"].get(name) != value]:
            do = "restore what has changed, or remove the run's folder and train again"
            raise SbmtError("a checkpoint of this run", f"one with other {', '.join(changed)}", do)
        self.masks.set_state(checkpoint["masks"])
        self.rows, self.stretch = checkpoint["rows"], checkpoint["stretch"]

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

    def examples_of(self, split: str) -> ExamplesOf:
        """The batches of an evaluation; of generated sequences the same for every run."""
        size = self.config.evaluation_batch if self.config.is_generated else self.size
        return self.data.feeds[split].once(size, self.config.n_examples(split))

    def _loader(self, split: str, examples_of: ExamplesOf, first: int = 0) -> DataLoader[Any]:
        trainer = cast(Trainer, self.trainer)
        part = {"rank": trainer.global_rank, "n_ranks": trainer.world_size, "first": first}
        return DataLoader(BatchStream(self.data.feeds[split], examples_of, **part), batch_size=None)

    def train_dataloader(self) -> DataLoader[Any]:
        """Training, from the first step that is not done."""
        first = cast(Trainer, self.trainer).global_step * self.config.accumulate
        return self._loader("train", self.data.feeds["train"].endless(self.size, self.config.seed), first)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        """Dev, where there is one."""
        return [self._loader("dev", self.examples_of("dev"))] if not self.config.is_generated else []

    def test_dataloader(self) -> DataLoader[Any]:
        """The split ``tested``."""
        return self._loader(self.tested, self.examples_of(self.tested))


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
            if not checkpoint["origin"].keys() or checkpoint["global_step"] <= 0:
                raise ValueError("a run that has not begun")
            return checkpoint
        except Exception as error:  # of many kinds: the content is anybody's
            got = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise SbmtError(f"a whole checkpoint {path}", got, "remove its folder and train again") from error


def densities_of(output: ModelOutput, dtype: torch.dtype) -> Tensor:
    """Density of every example (rows) in every head of every layer (columns)."""
    return torch.cat([a.density.to(dtype) for a in output.attention], 1)

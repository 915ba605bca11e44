"""What Lightning trains: one model on one task."""

from math import isfinite, nan
from typing import Any, cast

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics import Metric

from sbmt.block_model.fit import auxiliary_loss, density_penalty
from sbmt.counter_rng import examples_from
from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.training.config import TrainingConfig, build_model
from sbmt.experiments.training.evaluate import call_model
from sbmt.experiments.training.run import Scores
from sbmt.layers import SBMAttention
from sbmt.models import ModelOutput


class Totals(Metric):
    """Sums over the batches of an evaluation, and over processes.

    Args:
        n_densities: Heads of all layers.
        dtype: Of the sums.
    """

    full_state_update = False
    loss: Tensor
    densities: Tensor
    n_right: Tensor
    n_labels: Tensor
    n_examples: Tensor

    def __init__(self, n_densities: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.add_state("loss", torch.zeros((), dtype=dtype), dist_reduce_fx="sum")
        self.add_state("densities", torch.zeros(1 + n_densities, dtype=dtype), dist_reduce_fx="sum")
        for name in ("n_right", "n_labels", "n_examples"):
            self.add_state(name, torch.tensor(0), dist_reduce_fx="sum")

    def update(self, loss: Tensor, n_right: Tensor, n_labels: int, output: ModelOutput) -> None:
        """Adds a batch, given its mean loss."""
        dtype = self.loss.dtype
        expected = torch.stack([a.expected_density.to(dtype).mean() for a in output.attention]).mean()
        densities = densities_of(output, dtype)
        self.loss += loss.to(dtype) * n_labels
        self.densities += torch.cat([expected[None], densities.mean(0)]) * len(densities)
        self.n_right += n_right
        self.n_labels += n_labels
        self.n_examples += len(densities)

    def compute(self) -> tuple[float, float, float, Tensor]:
        """Loss, accuracy, expected density, and the densities of all heads."""
        dtype = self.loss.dtype
        loss, accuracy = (x.to(dtype) / self.n_labels.to(dtype) for x in (self.loss, self.n_right))
        densities = (self.densities / self.n_examples.to(dtype)).double().cpu()
        return float(loss), float(accuracy), float(densities[0]), densities[1:]


class TrainingModule(LightningModule):
    """Loss, scores, optimiser and schedule of a run, as its configuration says.

    Where masks and dropout come from (seed, number of the batch), processes that share a batch draw what one process
    would. A run that goes on from a checkpoint draws what it would have drawn without a stop.

    Args:
        config: What is trained.
        info: Of the examples.
    """

    def __init__(self, config: TrainingConfig, info: dict[str, Any]) -> None:
        super().__init__()
        self.config, self.n_documents = config, info.get("n_documents", 1)
        self.run = {"config": config.to_dict(), "examples": info.get("sha256")}
        self.model = build_model(config, info)
        self.fitted = {  # layers that learn by likelihood, and the c that they end with
            layer: layer.edges_per_query
            for layer in self.model.modules()
            if isinstance(layer, SBMAttention) and layer.edges_per_query is not None
        }
        self.masks = config.make_masks()
        self.totals = Totals(config.n_layers * config.n_heads, config.score_type)
        self.metrics = nn.ModuleDict(config.make_metrics(len(info.get("class_names", ()))))
        self.latest: dict[str, Tensor] = {}  # of the last batch, for the progress bar and the table of metrics

    def forward(self, batch: Batch) -> ModelOutput:
        """Logits and attention."""
        generator = self.masks.generator(batch.number, is_training=self.training)
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
        for layer, edges in self.fitted.items():
            layer.is_dense = self.global_step < self.config.dense_steps
            layer.edges_per_query = edges_per_query_at(self.config, edges, self.global_step + 1)
        output = self(batch)
        loss = self.config.loss(output.values, batch.labels) * batch.weight
        if not torch.isfinite(loss):
            raise self._diverged(loss.item())
        n_right = (self.config.predict(output.values) == batch.labels).float().sum()
        accuracy = n_right / max(1, len(batch.labels)) * batch.weight
        densities = densities_of(output, torch.float32).mean(0).detach()
        self.latest = {"loss": loss.detach(), "accuracy": accuracy, "densities": densities}
        if weight := density_weight_at(self.config, self.global_step + 1):
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
            for metric in self.metrics.values():
                cast(Metric, metric).update(predicted, batch.labels)
        loss = self.config.loss(output.values, batch.labels)
        self.totals.update(loss, (predicted == batch.labels).sum(), len(batch.labels), output)

    test_step = validation_step

    def on_validation_epoch_end(self) -> None:
        """Tells the callbacks how dev went."""
        self.scores = self._collect()
        self.log(f"dev_{self.config.best_by}", getattr(self.scores, self.config.best_by), logger=False)

    def on_test_epoch_end(self) -> None:
        """Keeps how the test went."""
        self.scores = self._collect()

    def _collect(self) -> Scores:
        loss, accuracy, expected, densities = self.totals.compute()
        if not isfinite(loss):
            raise self._diverged(loss)
        metrics = {name: float(cast(Metric, metric).compute()) for name, metric in self.metrics.items()}
        for metric in (self.totals, *self.metrics.values()):
            cast(Metric, metric).reset()
        layers = densities.view(self.config.n_layers, self.config.n_heads).tolist()
        metrics |= self.config.metrics_of(loss)
        return Scores(loss, accuracy, float(densities.mean()), expected, layers, metrics)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Says whose checkpoint it is, and how masks go on."""
        checkpoint |= self.run | {"masks": self.masks.state()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes the masks up."""
        self.masks.restore(checkpoint.get("masks"))

    def configure_optimizers(self) -> Any:
        """The task's optimiser and learning rates."""
        optimizer = self.config.make_optimizer(self.config.parameter_groups(self.model))
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.config.learning_rate_share(step))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, _: int) -> Batch:
        """Moves a batch."""
        return batch.to(device)


def densities_of(output: ModelOutput, dtype: torch.dtype) -> Tensor:
    """Density of every example (rows) in every head of every layer (columns)."""
    return torch.cat([a.density.to(dtype) for a in output.attention], 1)


def density_weight_at(config: TrainingConfig, step: int) -> float:
    """λ at a step (from 1): 0 up to ``density_start``, then a line over ``density_ramp`` steps to its full size."""
    share = (step - config.density_start) / max(1, config.density_ramp)
    return config.density_weight * max(0.0, min(1.0, share))


def edges_per_query_at(config: TrainingConfig, last: float, step: int) -> float:
    """Edges per query at a step (from 1): from ``edges_from`` to the last in ``edges_ramp`` steps of equal ratio."""
    if config.edges_from is None:
        return last
    share = min(1.0, (step - 1) / config.edges_ramp)
    return config.edges_from ** (1 - share) * last**share

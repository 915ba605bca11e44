"""What Lightning trains: one model on one task."""

from dataclasses import asdict, dataclass, field
from math import exp
from typing import Any, cast

import numpy as np
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torchmetrics import MeanMetric, Metric
from torchmetrics.classification import MulticlassAccuracy

from sbmt.block_model.density import density_penalty
from sbmt.counter_rng import examples_from
from sbmt.errors import SbmtError
from sbmt.experiments.data.batches import Batch
from sbmt.experiments.training.build import build_model
from sbmt.experiments.training.f1 import glue_metrics
from sbmt.experiments.training.language import GlueConfig, MlmConfig
from sbmt.experiments.training.sequence_config import SequenceConfig
from sbmt.models import ModelOutput

_EVALUATION = 1 << 62  # no batch of a training has a number so large


@dataclass(frozen=True)
class Scores:
    """Means over labels (of a masked language model, over selected tokens), and densities, which are over examples.

    Attributes:
        loss: Cross entropy in nats.
        accuracy: Share of labels that are right, in [0, 1].
        density: Share of pairs attended, in [0, 1]: mean over heads and layers.
        expected_density: Mean edge probability, in [0, 1].
        densities: Density per layer and head.
        metrics: Further numbers by name: F1 of several kinds on GLUE, ``perplexity`` of a masked language model.
    """

    loss: float
    accuracy: float
    density: float
    expected_density: float
    densities: list[list[float]]
    metrics: dict[str, float] = field(default_factory=dict)

    def row(self) -> dict[str, float]:
        """One flat row of a table: ``density_l0h1`` is that of head 1 of layer 0."""
        values = asdict(self)
        layers, metrics = values.pop("densities"), values.pop("metrics")
        return (
            values | metrics | {f"density_l{a}h{b}": x for a, heads in enumerate(layers) for b, x in enumerate(heads)}
        )


class SequenceModule(LightningModule):
    """Loss, metrics, optimiser and schedule of a run.

    Every random number of a step comes from (seed, number of the batch), so a run goes on from a checkpoint as if it
    had never stopped, and processes that share a batch draw what one process would.

    Args:
        config: What is trained.
        info: Of the prepared examples.
    """

    def __init__(self, config: SequenceConfig, info: dict[str, Any]) -> None:
        super().__init__()
        self.config, self.n_documents = config, info["n_documents"]
        self.run = {"config": config.to_dict(), "examples": info.get("sha256")}
        self.model = build_model(config, info)
        is_mlm = isinstance(config, MlmConfig)
        n_classes = info["vocab_size"] if is_mlm else len(info["class_names"])
        self.accuracy = MulticlassAccuracy(n_classes, average="micro")
        self.metrics = nn.ModuleDict(glue_metrics(n_classes) if isinstance(config, GlueConfig) else {})
        # of the loss, of the expected density, and of the density in every head of every layer
        self.means = nn.ModuleList(MeanMetric() for _ in range(2 + config.n_layers * config.n_heads))
        self.latest: dict[str, Tensor] = {}  # of the last batch, for the progress bar and the table of metrics

    def forward(self, batch: Batch) -> ModelOutput:
        """Logits and attention; masks are drawn from (seed, batch number, place in the batch)."""
        number = batch.number if self.training else _EVALUATION + batch.number
        state = np.random.SeedSequence((self.config.seed, number)).generate_state(1, np.uint64)
        masks = torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        if self.training and self.config.dropout + self.config.attention_dropout > 0:  # drawn from the global generator
            torch.manual_seed(int(state[0] >> np.uint64(1)) + batch.first_example)
        is_whole = bool(batch.mask.all())
        with examples_from(batch.first_example * self.n_documents):
            asked = {} if batch.selected is None else {"selected": batch.selected}
            output: ModelOutput = self.model(batch.tokens, None if is_whole else batch.mask, generator=masks, **asked)
        return output

    def training_step(self, batch: Batch, _: int) -> Tensor:
        """Cross entropy plus λ times the density."""
        output = self(batch)
        loss = _cross_entropy(output.values, batch.labels) * batch.weight
        if not torch.isfinite(loss):
            raise SbmtError("a finite loss", f"{loss.item()} at step {self.global_step + 1}", "lower the learning rate")
        accuracy = (output.values.argmax(-1) == batch.labels).float().sum() / max(1, len(batch.labels)) * batch.weight
        self.latest = {"loss": loss.detach(), "accuracy": accuracy, "densities": _densities(output).mean(0).detach()}
        if weight := self.config.density_weight_at(self.global_step + 1):
            loss = loss + weight * density_penalty(output.attention, self.config.density_kind)
        return loss

    def validation_step(self, batch: Batch, _: int) -> None:
        """Counts a batch of dev or test in."""
        output = self(batch)
        for metric in (self.accuracy, *self.metrics.values()):
            if len(batch.labels):
                cast(Metric, metric).update(output.values.argmax(-1), batch.labels)
        loss = _cross_entropy(output.values, batch.labels)
        expected = torch.stack([a.expected_density.float().mean() for a in output.attention]).mean()
        numbers = (loss, expected, *_densities(output).mean(0))
        weights = (len(batch.labels), *[len(batch.tokens)] * (len(numbers) - 1))
        for metric, value, n in zip(self.means, numbers, weights, strict=True):
            cast(MeanMetric, metric).update(value, n)

    test_step = validation_step

    def on_validation_epoch_end(self) -> None:
        """Tells the callbacks how dev went."""
        self.scores = self._collect()
        self.log(f"dev_{self.config.best_by}", getattr(self.scores, self.config.best_by), logger=False)

    def on_test_epoch_end(self) -> None:
        """Keeps how the test went."""
        self.scores = self._collect()

    def _collect(self) -> Scores:
        means = torch.stack([cast(MeanMetric, metric).compute() for metric in self.means]).double().cpu()
        accuracy = float(self.accuracy.compute())
        loss, expected = means[:2].tolist()
        metrics = {name: float(cast(Metric, metric).compute()) for name, metric in self.metrics.items()}
        for metric in (self.accuracy, *self.means, *self.metrics.values()):
            cast(Metric, metric).reset()
        layers = means[2:].view(self.config.n_layers, self.config.n_heads).tolist()
        return Scores(loss, accuracy, float(means[2:].mean()), expected, layers, metrics | self.perplexity(loss))

    def perplexity(self, loss: float) -> dict[str, float]:
        """E to the loss, of a masked language model; nothing of other models."""
        return {"perplexity": exp(loss)} if isinstance(self.config, MlmConfig) else {}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Says whose checkpoint it is."""
        checkpoint |= self.run

    def configure_optimizers(self) -> Any:
        """AdamW, whose rate rises along a line and falls along another."""
        config = self.config
        optimizer = torch.optim.AdamW(
            self.model.parameters(), config.learning_rate, eps=1e-6, weight_decay=config.weight_decay
        )

        def share(step: int) -> float:
            if step < config.warmup_steps:
                return (step + 1) / (config.warmup_steps + 1)
            return (config.steps - step) / (config.steps - config.warmup_steps)

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, share)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, _: int) -> Batch:
        """Moves a batch."""
        return batch.to(device)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """In nats; 0 without labels."""
    return nn.functional.cross_entropy(logits.float(), labels) if len(labels) else 0.0 * logits.float().sum()


def _densities(output: ModelOutput) -> Tensor:
    """Density of every example (rows) in every head of every layer (columns)."""
    return torch.cat([a.density.float() for a in output.attention], 1)

"""What accompanies training: the table of metrics, checkpoints, reports of progress, a warning of collapse."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor

from sbmt.attention import edge_attention
from sbmt.block_model.reweighting import reweighting_bias
from sbmt.experiments.files import write_bytes
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.run import METRICS, Scores, Step, metrics_csv
from sbmt.layers import SBMAttention
from sbmt.samplers import law_of, sample_edges

FEWEST_CLUSTERS = 1.5
"""Effective clusters of a group below which it has put all tokens into one."""
LEAST_GAIN = 2.0
"""Attention seen, in multiples of what a random mask of the same density sees, below which a mask is no better."""
LEAST_STEPS = 100
"""Shorter trainings are not judged: nothing can be expected of their masks."""


def require(is_met: bool, what: str) -> None:
    """Raises ValueError, which names a part of a checkpoint, unless a condition is met."""
    if not is_met:
        raise ValueError(f"{what} cannot have been written by this run")


def is_like(found: Any, template: Any) -> bool:
    """Whether two nested values have the same keys, lengths and types, and their tensors the same shapes."""
    if isinstance(template, Tensor):
        is_tensor = isinstance(found, Tensor)
        return is_tensor and found.shape == template.shape and found.dtype == template.dtype
    if type(found) is not type(template) and not (isinstance(found, dict) and isinstance(template, dict)):
        return False
    if isinstance(template, dict):
        return found.keys() == template.keys() and all(is_like(found[name], x) for name, x in template.items())
    if isinstance(template, list | tuple):
        return len(found) == len(template) and all(map(is_like, found, template))
    return True


class MetricsTable(Callback):
    """Means over equal stretches of training and every evaluation on dev, kept with the checkpoints.

    Args:
        folder: Where ``metrics.csv`` goes.
        every: Steps of a stretch.
    """

    def __init__(self, folder: Path, every: int) -> None:
        self.path, self.every = folder / "metrics.csv", every
        self.rows: list[dict[str, Any]] = []
        self._sums: dict[str, Tensor] = {}
        self._count, self._last = 0, 0
        self._step: int | None = None  # of the checkpoint that the run goes on from
        self.is_training = False

    def check(self, state: dict[str, Any], step: int, config: TrainingConfig) -> None:
        """Raises ValueError unless a state is one that this table can have at a step."""
        expected = []
        for number in range(1, step + 1):
            expected += [(number, "train")] if number % self.every == 0 else []
            expected += [(number, "dev")] if config.has_dev and number % config.checkpoint_every == 0 else []
        rows, last = state["rows"], step - step % self.every
        require([(row["step"], row["split"]) for row in rows] == expected, "the steps of its metrics")
        numbers = [{name: x for name, x in row.items() if name not in ("step", "split")} for row in rows]
        are_numbers = all(x is None or isinstance(x, float) for row in numbers for x in row.values())
        require(are_numbers and all(isinstance(row[x], float) for row in numbers for x in METRICS), "its metrics")
        template = {name: torch.zeros(()) for name in ("loss", "accuracy")}
        template |= {"densities": torch.zeros(config.n_layers * config.n_heads)}
        n_batches = (step - last) * config.accumulate
        if "auxiliary_loss" in state["sums"]:
            template |= {"auxiliary_loss": torch.zeros(())}
        require(is_like(state["sums"], template if n_batches else {}), "the sums of its metrics")
        require((state["count"], state["last"]) == (n_batches, last), "the counts of its metrics")
        self._step = step

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Adds a batch to the current stretch."""
        for name, value in module.latest.items():
            self._sums[name] = self._sums[name].to(value.device) + value if name in self._sums else value.clone()
        self._count += 1
        step = trainer.global_step
        if step == self._last or step % self.every:
            return
        shape = module.config.n_layers, module.config.n_heads
        means = {name: trainer.strategy.reduce(x / self._count, reduce_op="mean") for name, x in self._sums.items()}
        densities = means.pop("densities").double().cpu()
        loss, accuracy = (float(means[name]) for name in ("loss", "accuracy"))
        layers = densities.view(shape).tolist()
        metrics = module.config.metrics_of(loss)
        metrics |= {name: float(means[name]) for name in ("auxiliary_loss",) if name in means}
        scores = Scores(loss, accuracy, float(densities.mean()), float("nan"), layers, metrics)
        self.rows.append({"step": step, "split": "train"} | scores.row())
        self._sums, self._count, self._last = {}, 0, step

    def on_validation_end(self, trainer: Trainer, module: Any) -> None:
        """Adds a row for dev, and writes the table."""
        self.rows.append({"step": trainer.global_step, "split": "dev"} | module.scores.row())
        if trainer.is_global_zero:
            write_bytes(self.path, metrics_csv(self.rows))

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        """Everything has been restored; see :func:`~sbmt.experiments.training.checkpoints.restoring`.

        Raises:
            ValueError: If the counters of a checkpoint belong to another step.
        """
        require(self._step in (None, trainer.global_step), "its counters")
        self.is_training = True

    def state_dict(self) -> dict[str, Any]:
        """The rows and the current stretch, for a checkpoint."""
        rows = [{k: None if v != v else v for k, v in row.items()} for row in self.rows]
        return {"rows": rows, "sums": dict(self._sums), "count": self._count, "last": self._last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.rows = [{k: float("nan") if v is None else v for k, v in row.items()} for row in state["rows"]]
        self._sums, self._count, self._last = dict(state["sums"]), state["count"], state["last"]


class EveryStep(Callback):
    """Reports optimiser steps.

    Args:
        on_step: Called with each.
    """

    def __init__(self, on_step: Callable[[Step], None]) -> None:
        self.on_step, self._last = on_step, 0

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        """Starts after the steps that a checkpoint holds, which have been reported before."""
        self._last = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Reports the step that this batch completed, if it did."""
        step = trainer.global_step
        if step > self._last and trainer.is_global_zero:
            latest = module.latest
            density = float(latest["densities"].mean())
            fit = float(latest["auxiliary_loss"]) if "auxiliary_loss" in latest else None
            self.on_step(Step(step, float(latest["loss"]), float(latest["accuracy"]), density, fit))
        self._last = step


class _Checkpoint(ModelCheckpoint):
    FILE_EXTENSION = ".safetensors"

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the best score, with paths in the current folder: a run may have been moved."""
        scores = [state["best_model_score"], *state["best_k_models"].values()]
        require(all(x is None or is_like(x, torch.zeros(())) for x in scores), "its best scores")
        here = Path(self.dirpath or "")
        paths = ("best_model_path", "kth_best_model_path", "last_model_path")
        moved = {name: str(here / Path(state[name]).name) if state[name] else "" for name in paths}
        best = {str(here / Path(path).name): score for path, score in state["best_k_models"].items()}
        super().load_state_dict(state | moved | {"best_k_models": best, "dirpath": self.dirpath})


class _State(_Checkpoint):
    """The last state, at the end of every evaluation."""


def checkpoints(folder: Path, config: TrainingConfig) -> list[ModelCheckpoint]:
    """The callbacks that write checkpoints.

    Where dev examples choose the weights, the best ones and the last state are kept at every evaluation; among equals,
    the first ones are best. Otherwise the last state is kept every so many steps.

    Args:
        folder: Where they go.
        config: Of the run.
    """
    shared: dict[str, Any] = {"dirpath": folder, "enable_version_counter": False, "save_on_train_epoch_end": False}
    if not config.has_dev:
        return [_State(filename="state", every_n_train_steps=config.checkpoint_every, **shared)]
    mode = "max" if config.best_by == "accuracy" else "min"
    best = _Checkpoint(filename="best", monitor=f"dev_{config.best_by}", mode=mode, save_weights_only=True, **shared)
    return [best, _State(filename="state", **shared)]


@torch.no_grad()
def effective_clusters(layer: SBMAttention, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
    """The exponential of the entropy of the clusters' shares of all tokens, ``(heads, groups)``; 1 is one cluster."""
    model = layer.block_model(tokens, tokens, mask, mask)
    share = model.key_membership.sum((0, 2)).unflatten(-1, (layer.n_groups, -1))
    share = share / share.sum(-1, keepdim=True).clamp(min=torch.finfo(share.dtype).tiny)
    return torch.special.entr(share).sum(-1).exp()


@torch.no_grad()
def attention_seen(
    layer: SBMAttention, query: Tensor, key: Tensor, value: Tensor, masks: tuple[Tensor | None, Tensor | None]
) -> tuple[Tensor, Tensor]:
    r"""The share of full attention that falls on drawn edges, and the share of pairs that are drawn, for each head.

    An edge of attention a and probability p stands for a/p: of $\sum a_{ij} p_{ij}$ against $\sum a_{ij}$, both sums
    over drawn edges with reweighted attention are estimates.
    """
    model = layer.block_model(query, key, *masks)
    edges = sample_edges(model, layer.sampler, generator=torch.Generator().manual_seed(0))
    rate = model.edge_rate(edges)
    if edges.shape[1] < query.shape[1]:  # heads share a graph
        edges, source = edges.for_heads(query.shape[1])
        rate = rate[source]
    bias = reweighting_bias(law_of(layer.sampler, layer.link).probability(rate))
    _, weights = edge_attention(query, key, value, edges, bias=bias, sink=layer.sink, return_weights=True)
    head = edges.rows() // edges.shape[2] % edges.shape[1]
    zeros = weights.new_zeros(edges.shape[1])
    seen = zeros.index_add(0, head, weights * (-bias).exp().to(weights.dtype))
    return seen / zeros.index_add(0, head, weights).clamp(min=1e-30), edges.density().mean(0)


class WatchForCollapse(Callback):
    """Looks at every block model that learns by likelihood in the last step of training, and warns if it collapsed."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._seen: dict[str, tuple[SBMAttention, tuple[Tensor, ...], dict[str, Any]]] = {}
        self._hooks: list[Any] = []

    def on_train_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Keeps what the layers are given in the last step."""
        if trainer.global_step != self.steps - 1 or self.steps < LEAST_STEPS or self._hooks:
            return
        for name, layer in module.model.named_modules():
            if isinstance(layer, SBMAttention) and layer.learning == "likelihood":

                def keep(layer: Any, given: Any, named: Any, name: str = name) -> None:
                    self._seen[name] = layer, tuple(t.detach() for t in given), named

                self._hooks.append(layer.register_forward_pre_hook(keep, with_kwargs=True))

    def on_train_end(self, trainer: Trainer, module: Any) -> None:
        """Warns of each layer whose mask knows nothing."""
        for hook in self._hooks:
            hook.remove()
        for name, (layer, tokens, named) in self._seen.items():
            if trainer.is_global_zero and (trouble := self._trouble(layer, tokens, named)):
                do = "try more edges_per_query, or a smaller block_model_rate"
                warnings.warn(f"the block model of {name} {trouble}: {do}", stacklevel=2)

    def _trouble(self, layer: SBMAttention, tokens: tuple[Tensor, ...], named: dict[str, Any]) -> str:
        masks = named.get("query_mask"), named.get("key_mask")
        clusters = effective_clusters(layer, tokens[1], masks[1])
        if (clusters < FEWEST_CLUSTERS).any(-1).any():
            return f"has put all tokens into {float(clusters.min()):.1f} clusters of a group"
        query, key, value = tokens
        seen, density = attention_seen(layer, query, key, value, masks)
        if ((seen < LEAST_GAIN * density) & (density < 0.4)).any():
            least = int((seen - LEAST_GAIN * density).argmin())
            return f"sees {float(seen[least]):.1%} of the attention with {float(density[least]):.1%} of all pairs"
        return ""

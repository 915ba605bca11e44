"""Fitting block models to a network that is left as it is."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import cos, pi
from typing import Any

import torch
from torch import nn

from sbmt.errors import SbmtError, check_sizes
from sbmt.sparsification.convert import fitted_layers
from sbmt.sparsification.recall import MaskReport, measure_masks
from sbmt.sparsification.watch import attending_all, call, fitting_loss

BETAS = 0.9, 0.99
"""Of Adam. Rates are exponentials, so that now and then a gradient is far larger than usual, best soon forgotten."""


@dataclass(frozen=True, eq=False)
class FitReport:
    """What a fit did, and what the masks see that it ended with.

    Attributes:
        losses: The auxiliary loss of every step, summed over layers.
        masks: Measured on the batches that come after the last step. They are new to the fit unless it has gone through
            all there are.
    """

    losses: tuple[float, ...]
    masks: MaskReport

    def __str__(self) -> str:
        """The table of the masks."""
        return str(self.masks)


def fit_block_models(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    steps: int,
    learning_rate: float = 1e-2,
    n_measured: int = 4,
    on_step: Callable[[int, float], None] | None = None,
) -> FitReport:
    r"""Fits the block models of a network to its attention, with everything else frozen.

    While it runs, every layer attends all pairs, as the network was trained to, and its block model learns by
    likelihood where that attention goes (:func:`~sbmt.block_model.fit.fit_loss`). Dropout is off. Afterwards the layers
    draw masks.

    Args:
        model: From :func:`~sbmt.sparsify`, or trained with the preset ``fitted``. Its block models change, and nothing
            else does.
        batches: What the model is called with, batch by batch: a tensor, a tuple of arguments, or a mapping of named
            ones. They are gone through as often as it takes.
        steps: Steps of Adam, one batch each; some hundreds are enough.
        learning_rate: The largest; it falls to zero over the last third, along a cosine.
        n_measured: How many batches to measure the masks on afterwards.
        on_step: Called after each step with its number, from 1, and its loss.

    Raises:
        SbmtError: If the model has no fitted masks, a number is out of range, the batches run out or do not reach all
            masks, or gradients are off.

    Cost: ``steps`` forward passes with full attention, and as many backward passes through the block models, in
    O(n²) each.

    Paper: not in it.
    """
    check_sizes(steps=steps, n_measured=n_measured)
    if not isinstance(learning_rate, (int, float)) or not 0 < learning_rate < float("inf"):
        raise SbmtError("learning_rate > 0", learning_rate, "1e-2 is a start")
    layers = fitted_layers(model)
    optimizer = torch.optim.Adam(
        [p for layer in layers.values() for p in layer.block_parameters()], learning_rate, betas=BETAS
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: falling(step / steps))
    supply = again_and_again(batches)
    losses: list[float] = []
    with attending_all(model) as outputs:
        for step in range(1, steps + 1):
            outputs.clear()
            call(model, next(supply))
            if not outputs:
                do = "check how the model is called, and a Hugging Face model's set_attn_implementation"
                raise SbmtError("batches that reach a fitted mask", "none reached", do)
            loss = fitting_loss(outputs)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if on_step is not None:
                on_step(step, losses[-1])
    return FitReport(tuple(losses), measure_masks(model, [next(supply) for _ in range(n_measured)]))


def falling(done: float) -> float:
    """The share of the learning rate after this share of all steps: it falls to zero over the last third."""
    return 1.0 if done < 2 / 3 else (1 + cos(3 * pi * (done - 2 / 3))) / 2


def again_and_again(batches: Iterable[Any]) -> Iterator[Any]:
    """Batches without end.

    Raises:
        SbmtError: If there are none, or they cannot be gone through twice.
    """
    is_empty = True
    while True:
        for batch in batches:
            is_empty = False
            yield batch
        if is_empty or iter(batches) is batches:
            got = "none" if is_empty else "an iterator that has come to its end"
            raise SbmtError("batches for all steps", got, "pass a list or a DataLoader, or take fewer steps")

"""Training a whole network further under its masks."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.errors import SbmtError, check_sizes
from sbmt.layers import SBMAttention
from sbmt.sparsification.fit import endless, falling, fitting_loss, kept, watched

LARGEST_NORM = 1.0
"""Of a step's gradient, block models left out; longer ones are shortened."""


def fine_tune(
    model: nn.Module,
    batches: Iterable[Any],
    loss: Callable[[nn.Module, Any], Tensor],
    *,
    steps: int,
    learning_rate: float = 1e-4,
    block_model_rate: float = 1e-3,
    on_step: Callable[[int, float], None] | None = None,
) -> tuple[float, ...]:
    """Trains all weights of a network under the masks that it has, so that it gets used to them.

    Block models that learn by likelihood, fitted by :func:`~sbmt.fit_block_models`, go on following the attention by
    the auxiliary losses of their layers. A model without any is trained just so, for comparison.

    Args:
        model: It is changed.
        batches: What ``loss`` is called with, gone through as often as it takes.
        loss: Called as ``loss(model, batch)``; returns the loss of the task, a scalar.
        steps: Steps of Adam, one batch each.
        learning_rate: Of the network; it falls to zero over the last third, along a cosine.
        block_model_rate: Of the block models, likewise.
        on_step: Called after each step with its number, from 1, and the loss of the task.

    Returns:
        The loss of the task at every step.
    """
    check_sizes(steps=steps)
    for name, rate in (("learning_rate", learning_rate), ("block_model_rate", block_model_rate)):
        if not isinstance(rate, (int, float)) or not 0 < rate < float("inf"):
            raise SbmtError(f"{name} > 0", rate, "1e-4 and 1e-3 are a start")
    fitted = {n: m for n, m in model.named_modules() if isinstance(m, SBMAttention) and m.learning == "likelihood"}
    blocks = [p for layer in fitted.values() for p in layer.block_parameters()]
    block_ids = {id(p) for p in blocks}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in block_ids]
    groups = [{"params": others, "lr": learning_rate}, {"params": blocks, "lr": block_model_rate}]
    optimizer = torch.optim.Adam([group for group in groups if group["params"]])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: falling(step / steps))
    learning = {n: m for n, m in fitted.items() if any(p.requires_grad for p in m.block_parameters())}
    supply, found = endless(batches), []
    with kept(model.modules(), "training"), watched(learning) as calls:
        model.train()
        for step in range(1, steps + 1):
            calls.clear()
            task = loss(model, next(supply))
            if not torch.isfinite(task):
                raise SbmtError("a finite loss", f"{task.item()} at step {step}", "lower the learning rate")
            total = task + fitting_loss(calls) if calls else task
            optimizer.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(others, LARGEST_NORM)
            optimizer.step()
            schedule.step()
            found.append(task.item())
            if on_step is not None:
                on_step(step, found[-1])
    return tuple(found)

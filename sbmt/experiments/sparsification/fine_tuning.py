"""Training a whole network further under its masks."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.block_model.fit import auxiliary_loss
from sbmt.errors import SbmtError, check_sizes
from sbmt.layers import SBMAttention
from sbmt.sparsification.fit import endless, falling, kept
from sbmt.types import AttentionOutput

LARGEST_NORM = 1.0
"""Of a step's gradient without block models; longer gradients are clipped."""


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
    """Trains all weights of a network under its masks with Adam, and returns the task's loss at every step.

    Fitted block models keep following the attention by the auxiliary losses of their layers. ``loss(model, batch)`` is
    the task's; both rates fall to zero over the last third. ``on_step`` is called with a step's number and its loss.
    """
    check_sizes(steps=steps)
    for name, rate in (("learning_rate", learning_rate), ("block_model_rate", block_model_rate)):
        if not isinstance(rate, (int, float)) or not 0 < rate < float("inf"):
            raise SbmtError(f"{name} > 0", rate, "start with 1e-4 or 1e-3")
    fitted = [m for m in model.modules() if isinstance(m, SBMAttention) and m.learning == "likelihood"]
    blocks = [p for layer in fitted for p in layer.block_parameters()]
    block_ids = {id(p) for p in blocks}
    others = [p for p in model.parameters() if p.requires_grad and id(p) not in block_ids]
    groups = [{"params": others, "lr": learning_rate}, {"params": blocks, "lr": block_model_rate}]
    optimizer = torch.optim.Adam([group for group in groups if group["params"]])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: falling(step / steps))
    learning = [m for m in fitted if any(p.requires_grad for p in m.block_parameters())]
    supply, found = endless(batches), []
    with kept(model.modules(), "training"), auxiliary_outputs(learning) as outputs:
        model.train()
        for step in range(1, steps + 1):
            outputs.clear()
            task = loss(model, next(supply))
            if not torch.isfinite(task):
                raise SbmtError("a finite loss", f"{task.item()} at step {step}", "lower the learning rate")
            total = task + fitting_loss(outputs) if outputs else task
            optimizer.zero_grad()
            total.backward()
            nn.utils.clip_grad_norm_(others, LARGEST_NORM)
            optimizer.step()
            schedule.step()
            found.append(task.item())
            if on_step is not None:
                on_step(step, found[-1])
    return tuple(found)


@contextmanager
def auxiliary_outputs(layers: Iterable[nn.Module]) -> Iterator[dict[nn.Module, list[AttentionOutput]]]:
    """Yields a mapping to which every output of these layers is added within the block."""
    outputs: dict[nn.Module, list[AttentionOutput]] = defaultdict(list)
    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_hook(lambda layer, _, output: outputs[layer].append(output)).remove)
        yield outputs


def fitting_loss(outputs: dict[nn.Module, list[AttentionOutput]]) -> Tensor:
    """The sum of all auxiliary losses; raises SbmtError if a layer learns nothing from any of its calls."""
    if not all(any(output.auxiliary_loss.requires_grad for output in found) for found in outputs.values()):
        do = "do not use torch.no_grad() or eval(), and checkpoint activations with use_reentrant=False"
        raise SbmtError("an auxiliary loss with a gradient from every fitted layer", "one without", do)
    return auxiliary_loss([output for found in outputs.values() for output in found])

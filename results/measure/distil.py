"""Distillation of an encoder under fitted masks: its weights learn to reproduce the embeddings of full attention."""

from collections.abc import Sequence
from inspect import unwrap
from itertools import islice
from typing import Any

import torch
from torch import nn

from sbmt.block_model.fit import auxiliary_loss
from sbmt.experiments.sparsification.pretrained import Batch, embed
from sbmt.sparsification.convert import fitted_layers
from sbmt.sparsification.fit import endless, falling


def distil(sparse: nn.Module, teacher: nn.Module, batches: Sequence[Batch], steps: int) -> None:
    """Trains all weights with the loss 1 − cosine. Masks are drawn as in use, and stay fitted to the attention."""
    layers = fitted_layers(sparse).values()
    blocks = [p for layer in layers for p in layer.block_parameters()]
    others = [p for p in sparse.parameters() if all(p is not block for block in blocks)]
    optimizer = torch.optim.Adam([{"params": others, "lr": 1e-4}, {"params": blocks, "lr": 1e-3}])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: falling(step / steps))
    outputs: list[Any] = []
    hooks = [layer.register_forward_hook(lambda *call: outputs.append(call[-1])) for layer in layers]
    for batch in islice(endless(batches), steps):
        outputs.clear()
        embedded = unwrap(embed)(sparse, [batch])  # with gradients
        loss = 1 - (embedded * embed(teacher, [batch])).sum(-1).mean() + auxiliary_loss(outputs)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(others, 1.0)
        optimizer.step()
        schedule.step()
    for hook in hooks:
        hook.remove()

"""Distillation of an encoder under masks: its weights learn to reproduce the embeddings of full attention."""

from collections.abc import Sequence
from inspect import unwrap
from typing import Any

import torch
from torch import nn

from sbmt.block_model.fit import auxiliary_loss
from sbmt.experiments.sparsification.pretrained import Batch, embed
from sbmt.layers import SBMAttention
from sbmt.sparsification.fit import falling


def distil(masked: nn.Module, teacher: nn.Module, batches: Sequence[Batch]) -> None:
    """Trains all weights, one step per batch, with the loss 1 − cosine, while fitted masks follow the attention."""
    layers = [module for module in masked.modules() if isinstance(module, SBMAttention)]
    blocks = [p for layer in layers for p in layer.block_parameters()]
    others = [p for p in masked.parameters() if all(p is not block for block in blocks)]
    optimizer = torch.optim.Adam([{"params": others, "lr": 1e-4}, {"params": blocks, "lr": 1e-3}])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: falling(step / len(batches)))
    outputs: list[Any] = []
    hooks = [layer.register_forward_hook(lambda *call: outputs.append(call[-1])) for layer in layers]
    for batch in batches:
        outputs.clear()
        embedded = unwrap(embed)(masked, [batch])  # with gradients
        loss = 1 - (embedded * embed(teacher, [batch])).sum(-1).mean() + (auxiliary_loss(outputs) if outputs else 0)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(others, 1.0)
        optimizer.step()
        schedule.step()
    for hook in hooks:
        hook.remove()

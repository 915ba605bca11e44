"""The cache of previous tokens that a layer needs for token-by-token decoding."""

from typing import Any

import torch
from torch import Tensor

from sbmt.errors import SbmtError


class Cache:
    """The keys and values of the previous tokens, and other data that a layer stores for them.

    A causal attention layer called with a cache treats its queries as the tokens that follow the cached ones, and
    appends their keys and values. A full buffer doubles in size, so the cost per token does not grow with the context.
    """

    def __init__(self) -> None:
        self.length = 0  # number of cached tokens
        self._buffers: list[Tensor] = []
        self.kept: Any = None  # the state of the compiled loop that draws edges
        self.embedded: Tensor | None = None  # the last embeddings, for the encoder's convolution

    def append(self, *new: Tensor) -> list[Tensor]:
        """Appends tensors ``(batch, heads, n, …)`` and returns their buffers, whose third axis has spare capacity."""
        n = new[0].shape[2]
        before, now = ([(*x.shape[:2], *x.shape[3:]) for x in some] for some in (self._buffers, new))
        if self._buffers and before != now:
            expected = f"a batch size and head count of {tuple(self._buffers[0].shape[:2])}, as in the cache"
            raise SbmtError(expected, tuple(new[0].shape[:2]), "start with a new cache")
        if not self._buffers or self.length + n > self._buffers[0].shape[2]:
            capacity = max(64, 2 * (self.length + n))
            buffers = [x.new_zeros(*x.shape[:2], capacity, *x.shape[3:]) for x in new]
            for old, larger in zip(self._buffers, buffers, strict=False):
                larger[:, :, : self.length] = old[:, :, : self.length]
            self._buffers = buffers
        for buffer, x in zip(self._buffers, new, strict=True):
            buffer[:, :, self.length : self.length + n] = x
        self.length += n
        return list(self._buffers)


def check_decoding(module: Any, *masks: Tensor | None) -> None:
    """Raises SbmtError unless a layer may use a cache: it must be causal and in eval mode, without padding masks."""
    if not getattr(module, "causal", False):
        raise SbmtError(f"a cache requires causal attention: build {type(module).__name__} with causal=True")
    if module.training or torch.is_grad_enabled():
        got = "training mode" if module.training else "enabled gradients"
        raise SbmtError("eval mode and torch.no_grad() with a cache", got, "use both, or decode without a cache")
    if any(mask is not None for mask in masks):
        raise SbmtError("a cache does not support padding masks: decode sequences of equal length together")

"""Decoding token by token: the cache of previous tokens of a layer."""

from typing import Any

import torch
from torch import Tensor

from sbmt.errors import SbmtError


class Cache:
    """The keys and values of the previous tokens, and other data that a layer stores for them.

    A causal attention that is called with a cache takes its queries for the tokens that follow those in it, and adds
    their keys and values. Room doubles when it runs out, so that a token costs the same however many came before.
    """

    def __init__(self) -> None:
        self.length = 0  # how many tokens there are
        self._room: list[Tensor] = []
        self.kept: Any = None  # the drawing loop's own memory
        self.embedded: Tensor | None = None  # embeddings that a convolution of the next token covers

    def append(self, *new: Tensor) -> list[Tensor]:
        """Adds tensors ``(batch, heads, n, …)``; returns all so far with room for more at the end of the third axis."""
        n = new[0].shape[2]
        before, now = ([(*x.shape[:2], *x.shape[3:]) for x in some] for some in (self._room, new))
        if self._room and before != now:
            got = f"{tuple(new[0].shape[:2])} after {tuple(self._room[0].shape[:2])}"
            raise SbmtError("with a cache, as many examples and heads as before", got, "start with a new cache")
        if not self._room or self.length + n > self._room[0].shape[2]:
            n_room = max(64, 2 * (self.length + n))
            room = [x.new_zeros(*x.shape[:2], n_room, *x.shape[3:]) for x in new]
            for old, larger in zip(self._room, room, strict=False):
                larger[:, :, : self.length] = old[:, :, : self.length]
            self._room = room
        for room_of, x in zip(self._room, new, strict=True):
            room_of[:, :, self.length : self.length + n] = x
        self.length += n
        return list(self._room)


def check_decoding(module: Any, *masks: Tensor | None) -> None:
    """Raises SbmtError unless an attention can be called with a cache: causal, in eval mode, and without padding."""
    if not getattr(module, "causal", False):
        raise SbmtError("a causal attention with a cache", type(module).__name__, "build it with causal=True")
    if module.training or torch.is_grad_enabled():
        got = "training mode" if module.training else "gradients on"
        raise SbmtError("eval mode and torch.no_grad() with a cache", got, "call eval(), or leave the cache out")
    if any(mask is not None for mask in masks):
        raise SbmtError("no padding with a cache", "a mask", "decode sequences of equal length together")

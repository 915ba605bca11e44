"""The output of every attention, the types of computation, and checks for compilers and transforms."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.errors import SbmtError, describe

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, eq=False)
class AttentionOutput:
    """The values of an attention, its densities and its auxiliary loss.

    Attributes:
        values: ``(batch, heads, n_queries, d)``; padded queries and queries without a key are zero.
        density: ``(batch, heads)``, share of the real query-key pairs that were attended, in [0, 1].
            Its gradient with respect to the block model is straight-through (see :mod:`sbmt.block_model.fit`).
        expected_density: ``(batch, heads)``, mean edge probability over real pairs without exploration.
            Equals ``density`` for attentions that draw nothing. Where it has no closed form, it is an unbiased estimate
            from the edges that were drawn.
        edges: The :class:`~sbmt.graph.edges.EdgeList` that was attended, if it was asked for.
        auxiliary_loss: A scalar to be added to the loss of the task: how badly a block model that learns by likelihood
            explains the attention (:mod:`sbmt.block_model.fit`). 0 for all else, and where gradients are off.
    """

    values: Float[Tensor, "batch heads n_queries d"]
    density: Float[Tensor, "batch heads"]
    expected_density: Float[Tensor, "batch heads"]
    edges: Any = None  # an EdgeList, which this file cannot import: it stands below all others
    auxiliary_loss: Float[Tensor, ""] = field(default_factory=lambda: torch.zeros(()))


def accumulator(value: Tensor) -> torch.dtype:
    """The type of sums: float64 for float64, else float32."""
    return torch.float64 if value.dtype == torch.float64 else torch.float32


def full_precision(like: Tensor) -> AbstractContextManager[Any]:
    """Switches autocast off: probabilities are float32 at least, whatever the rest of a model is."""
    device = like.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def is_fake(x: Tensor) -> bool:
    """Whether a tensor has a shape and no numbers: on ``torch.device("meta")``, or in ``FakeTensorMode``."""
    return x.is_meta or type(x).__name__ == "FakeTensor"


def is_traced(x: Tensor) -> bool:
    """Whether a compiler or exporter follows the operations on ``x``, whose numbers cannot be looked at then."""
    return torch.compiler.is_compiling() or is_fake(x)


def check_floating(**tensors: Any) -> None:
    """Raises SbmtError unless all are floating-point tensors."""
    for name, x in tensors.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise SbmtError(f"{name} as a floating-point tensor", describe(x), "convert or embed integers first")


def check_untransformed(*tensors: Any) -> None:
    """Raises SbmtError inside ``torch.func.vmap``, ``torch.func.grad`` and the like, and under ``torch.fx``.

    Their tensors have no memory of their own, which compiled loops read.
    """
    if torch.compiler.is_compiling():
        return
    if any(isinstance(t, torch.fx.Proxy) for t in tensors):
        raise SbmtError("tensors", "proxies of torch.fx", "use torch.export or torch.compile to get a graph")
    try:
        for t in tensors:
            if isinstance(t, Tensor):
                t.untyped_storage()
    except NotImplementedError as error:
        got = "one without memory, such as the wrappers of vmap and grad"
        do = "use a batch dimension instead of vmap, and torch.autograd.grad or backward() instead of torch.func.grad"
        raise SbmtError("dense tensors outside torch.func", got, do) from error


def not_compiled(function: Function) -> Function:
    """``torch.compiler.disable``, which itself imports the compiler and so doubles the time of ``import torch``.

    As long as nobody has imported the compiler, there is nothing to keep it from.
    """
    disabled = cache(lambda: torch.compiler.disable(function))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (disabled() if "torch._dynamo" in sys.modules else function)(*args, **kwargs)

    return call  # type: ignore[return-value]

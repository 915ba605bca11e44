"""The output of all attentions, types of computation, and checks for compilers and transforms."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sbmt.errors import SbmtError, describe

Function = TypeVar("Function", bound=Callable[..., Any])


class _Output(NamedTuple):
    values: Tensor
    density: Tensor
    expected_density: Tensor
    edges: Any
    auxiliary_loss: Tensor


class AttentionOutput(_Output):
    """The values of an attention, its densities and its auxiliary loss, as a tuple, which PyTorch's hooks need.

    Attributes:
        values: ``(batch, heads, n_queries, d)``; padded queries and queries without a key are zero.
        density: ``(batch, heads)``, share of the real query-key pairs that were attended to, in [0, 1].
            Its gradient with respect to the block model is straight-through (see :mod:`sbmt.block_model.fit`).
        expected_density: ``(batch, heads)``, mean edge probability over real pairs without exploration: in closed form,
            or an unbiased estimate from the drawn edges. Equals ``density`` for attentions that draw nothing.
        edges: The :class:`~sbmt.graph.edges.EdgeList` along which it attended, if it was requested.
        auxiliary_loss: A scalar to be added to the loss of the task: the loss of a block model that learns by
            likelihood (:mod:`sbmt.block_model.fit`); 0 for all others, and where gradients are off.
    """

    def __new__(
        cls,
        values: Float[Tensor, "batch heads n_queries d"],
        density: Float[Tensor, "batch heads"],
        expected_density: Float[Tensor, "batch heads"],
        edges: Any = None,
        auxiliary_loss: Float[Tensor, ""] | None = None,
    ) -> "AttentionOutput":
        """The loss is 0 if none is given."""
        loss = values.new_zeros((), dtype=torch.float32) if auxiliary_loss is None else auxiliary_loss
        return super().__new__(cls, values, density, expected_density, edges, loss)


def accumulator(value: Tensor) -> torch.dtype:
    """The type in which to sum: float64 for float64, else float32."""
    return torch.float64 if value.dtype == torch.float64 else torch.float32


def full_precision(like: Tensor) -> AbstractContextManager[Any]:
    """Switches autocast off, since probabilities need float32 or float64."""
    device = like.device.type
    is_on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)  # never on the meta device
    return torch.autocast(device, enabled=False) if is_on else nullcontext()


def is_fake(x: Tensor) -> bool:
    """Whether a tensor has a shape but no numbers: on ``torch.device("meta")``, or in ``FakeTensorMode``."""
    return x.is_meta or type(x).__name__ == "FakeTensor"


def has_kernels_for(x: Tensor) -> bool:
    """Whether :mod:`sbmt.kernels.gpu` can process a tensor: float32 on a GPU, with Triton installed."""
    return x.is_cuda and x.dtype == torch.float32 and not is_fake(x) and find_spec("triton") is not None


def is_traced(x: Tensor) -> bool:
    """Whether a compiler or exporter traces the operations on ``x``, so that its numbers cannot be read."""
    return torch.compiler.is_compiling() or is_fake(x)


def shapes_alone(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> AttentionOutput | None:
    """The output, without edges, of an empty batch or of tensors without numbers; None if a mask can be drawn.

    Gradients of an empty batch are zeros. Raises SbmtError inside ``torch.export``, which would fix the seed.
    """
    if torch.compiler.is_exporting():
        raise SbmtError("torch.export would store a fixed mask: export the rest of the model, or use torch.compile")
    if len(query) and (torch.compiler.is_compiling() or not is_fake(query)):
        return None
    values, nothing = query @ (key.mT @ value), query.new_zeros(query.shape[:2], dtype=torch.float32)
    for parameter in () if len(query) else module.parameters():
        values = values + parameter.flatten()[:0].sum().to(values.dtype)
    return AttentionOutput(values, nothing, nothing)


def check_no_proxies(**tensors: Any) -> None:
    """Raises SbmtError under ``torch.fx.symbolic_trace``."""
    for name, x in tensors.items():
        if isinstance(x, torch.fx.Proxy):
            do = "use torch.compile to get a graph"
            raise SbmtError(f"{name} as a tensor", "a proxy of torch.fx.symbolic_trace, which cannot trace masks", do)


def check_floating(**tensors: Any) -> None:
    """Raises SbmtError unless all are floating-point tensors."""
    check_no_proxies(**tensors)
    for name, x in tensors.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise SbmtError(f"{name} as a floating-point tensor", describe(x), "convert or embed integers first")


def check_untransformed(*tensors: Any) -> None:
    """Raises SbmtError inside ``torch.func.vmap``, ``grad`` and the like: compiled loops cannot read such tensors."""
    if torch.compiler.is_compiling():
        return
    try:
        for t in tensors:
            if isinstance(t, Tensor):
                t.untyped_storage()
    except NotImplementedError as error:
        got = "a tensor without memory, such as a wrapper of vmap or grad"
        do = "use a batch dimension instead of vmap, and torch.autograd.grad or backward() instead of torch.func.grad"
        raise SbmtError("dense tensors outside torch.func", got, do) from error


def not_compiled(function: Function) -> Function:
    """``torch.compiler.disable``, but without importing the compiler, which would take as long as importing torch."""
    disabled = cache(lambda: torch.compiler.disable(function))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (disabled() if "torch._dynamo" in sys.modules else function)(*args, **kwargs)

    return call  # type: ignore[return-value]

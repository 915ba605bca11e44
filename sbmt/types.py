"""The output type of attention layers, dtypes for computations, and checks for compilers and transforms."""

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
    """The output of an attention layer, a named tuple so that PyTorch's hooks can process it.

    Attributes:
        values: ``(batch, heads, n_queries, d)``; zero for padded queries and for queries without a key.
        density: ``(batch, heads)``, the share of real query-key pairs that are edges, in [0, 1].
            Its gradient with respect to the block model is straight-through (see :mod:`sbmt.block_model.fit`).
        expected_density: ``(batch, heads)``, the mean edge probability over real pairs without exploration, either in
            closed form or as an unbiased estimate from the drawn edges; equals ``density`` if nothing is drawn.
        edges: The :class:`~sbmt.graph.edges.EdgeList` along which the layer attended; None unless it was requested.
        auxiliary_loss: A scalar to add to the task loss if the block model learns by likelihood
            (:mod:`sbmt.block_model.fit`); 0 for all other layers and when gradients are disabled.
    """

    def __new__(
        cls,
        values: Float[Tensor, "batch heads n_queries d"],
        density: Float[Tensor, "batch heads"],
        expected_density: Float[Tensor, "batch heads"],
        edges: Any = None,
        auxiliary_loss: Float[Tensor, ""] | None = None,
    ) -> "AttentionOutput":
        """Creates an output, with an auxiliary loss of 0 unless one is passed."""
        loss = values.new_zeros((), dtype=torch.float32) if auxiliary_loss is None else auxiliary_loss
        return super().__new__(cls, values, density, expected_density, edges, loss)


def accumulator(value: Tensor) -> torch.dtype:
    """Returns the dtype in which to sum the entries of a tensor, float64 for float64 and float32 otherwise."""
    return torch.float64 if value.dtype == torch.float64 else torch.float32


def full_precision(like: Tensor) -> AbstractContextManager[Any]:
    """Returns a context manager that disables autocast, since probabilities require float32 or float64."""
    device = like.device.type
    is_on = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)  # never on the meta device
    return torch.autocast(device, enabled=False) if is_on else nullcontext()


def is_fake(x: Tensor) -> bool:
    """Returns whether a tensor has a shape but no data, as on ``torch.device("meta")`` or in ``FakeTensorMode``."""
    return x.is_meta or type(x).__name__ == "FakeTensor"


def has_kernels_for(x: Tensor) -> bool:
    """Returns whether :mod:`sbmt.kernels.gpu` can process ``x``, which requires float32, a GPU and Triton."""
    return x.is_cuda and x.dtype == torch.float32 and not is_fake(x) and find_spec("triton") is not None


def is_traced(x: Tensor) -> bool:
    """Returns whether a compiler or exporter is tracing the operations on ``x``, so that its data cannot be read."""
    return torch.compiler.is_compiling() or is_fake(x)


def shapes_alone(module: nn.Module, query: Tensor, key: Tensor, value: Tensor) -> AttentionOutput | None:
    """Returns an output without edges for an empty batch or tensors without data, or None if a mask can be drawn.

    Gradients for an empty batch are zero. Raises SbmtError inside ``torch.export``, which would store a fixed seed.
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
            do = "use torch.compile to get a graph, since symbolic_trace cannot trace masks"
            raise SbmtError(f"{name} to be a tensor", "a torch.fx.Proxy from symbolic_trace", do)


def check_floating(**tensors: Any) -> None:
    """Raises SbmtError unless all arguments are floating-point tensors."""
    check_no_proxies(**tensors)
    for name, x in tensors.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            raise SbmtError(f"{name} to be a floating-point tensor", describe(x), "convert or embed integers first")


def check_untransformed(*tensors: Any) -> None:
    """Raises SbmtError inside transforms such as ``torch.func.vmap``, whose tensors compiled loops cannot read."""
    if torch.compiler.is_compiling():
        return
    try:
        for t in tensors:
            if isinstance(t, Tensor):
                t.untyped_storage()
    except NotImplementedError as error:
        got = "a tensor without storage, as inside torch.func.vmap or torch.func.grad"
        do = "use a batch dimension instead of vmap, and torch.autograd.grad or backward() instead of torch.func.grad"
        raise SbmtError("tensors with storage", got, do) from error


def not_compiled(function: Function) -> Function:
    """Excludes a function from compilation like ``torch.compiler.disable``, without the slow import of the compiler."""
    disabled = cache(lambda: torch.compiler.disable(function))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (disabled() if "torch._dynamo" in sys.modules else function)(*args, **kwargs)

    return call  # type: ignore[return-value]

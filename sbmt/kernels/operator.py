"""Functions of tensors as operators of torch, which autograd, ``torch.compile`` and ``torch.export`` then know."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import torch

from sbmt.compiling import not_compiled


class Operator:
    """A function as an operator, as ``torch.library.custom_op`` makes one, but at less cost.

    That function's operators import torch's compiler on their first call, which takes longer than ``import torch``, and
    ask on every call whether a result shares memory with an argument, as it must not. Here a test asks instead.

    Example:
        >>> @operator("examples::twice", device_types="cpu")
        ... def twice(x: torch.Tensor) -> torch.Tensor:
        ...     return 2 * x
        >>> twice.register_fake(torch.empty_like)
        >>> twice.register_autograd(lambda ctx, grad: 2 * grad)
        >>> twice(torch.ones(2))
        tensor([2., 2.])
    """

    def __init__(self, name: str, function: Callable[..., Any], schema: str | None, device_types: str) -> None:
        update_wrapper(self, function)
        self.name, (namespace, short) = name, name.split("::")
        self._library = torch.library.Library(namespace, "FRAGMENT")  # the operator lives as long as it does
        schema = schema or torch.library.infer_schema(function, mutates_args=())
        self._library.define(short + schema, tags=torch.Tag.pt2_compliant_tag)
        key = "CompositeExplicitAutograd" if device_types == "all" else device_types.upper()
        self._library.impl(short, not_compiled(function), key)
        self.overload = getattr(getattr(torch.ops, namespace), short).default
        self._backward: Callable[..., Any] = self._refuse
        self._setup_context: Callable[..., None] = lambda ctx, inputs, output: None
        torch.library.register_autograd(self.name, self._differentiate, setup_context=self._save, lib=self._library)

    def __call__(self, *arguments: Any) -> Any:
        """Calls the operator."""
        return self.overload(*arguments)

    def register_fake(self, function: Callable[..., Any]) -> None:
        """Registers what makes results of the right shape and type, of whatever content."""
        torch.library.register_fake(self.name, function, lib=self._library)

    def register_autograd(
        self, backward: Callable[..., Any], *, setup_context: Callable[..., None] | None = None
    ) -> None:
        """Registers the gradients; otherwise nobody may ask for any. See ``torch.library.register_autograd``."""
        self._backward, self._setup_context = backward, setup_context or self._setup_context

    def _save(self, ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        self._setup_context(ctx, inputs, output)

    def _differentiate(self, ctx: Any, *grads: Any) -> Any:
        return self._backward(ctx, *grads)

    def _refuse(self, ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(f"{self.name} has no gradients: no autograd formula was registered")


def operator(name: str, *, schema: str | None = None, device_types: str = "all") -> Callable[..., Operator]:
    """Makes an :class:`Operator` of a function that changes none of its arguments.

    Args:
        name: ``"namespace::name"``.
        schema: Types of arguments and results; by default, what the function's annotations say.
        device_types: ``"cpu"``, or ``"all"``.
    """
    return lambda function: Operator(name, function, schema, device_types)

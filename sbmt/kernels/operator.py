"""Functions of tensors as operators of torch, which autograd, ``torch.compile`` and ``torch.export`` then know."""

from collections.abc import Callable, Iterable, Iterator
from functools import update_wrapper
from typing import Any

import torch
from torch import Tensor, nn

from sbmt.compiling import not_compiled


class Operator:
    """A function as an operator, as ``torch.library.custom_op`` makes one, but at less cost.

    That function's operators import torch's compiler on their first call, which takes longer than ``import torch``, and
    ask on every call whether a result shares memory with an argument, as it must not. Here a test asks instead. And a
    call that only autograd has to know of does not go through torch's dispatcher, which would take some 10 to 60 µs.

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
        self._function, self._with_gradients = function, self._as_autograd_function(function)

    def __call__(self, *arguments: Any) -> Any:
        """Calls the operator."""
        if not _is_watched(arguments):
            if not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in _tensors(arguments))):
                return self._function(*arguments)
            if self._backward != self._refuse:
                return self._with_gradients(*arguments)
        return self.overload(*arguments)

    def register_fake(self, function: Callable[..., Any]) -> None:
        """Registers what makes results of the right shape and type, of whatever content."""
        torch.library.register_fake(self.name, function, lib=self._library)

    def register_autograd(
        self, backward: Callable[..., Any], *, setup_context: Callable[..., None] | None = None
    ) -> None:
        """Registers the gradients; otherwise nobody may ask for any. See ``torch.library.register_autograd``."""
        self._backward, self._setup_context = backward, setup_context or self._setup_context

    def _as_autograd_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def forward(ctx: Any, *arguments: Any) -> Any:
            output = function(*arguments)
            self._save(ctx, arguments, output)
            return output

        methods = {"forward": staticmethod(forward), "backward": staticmethod(self._differentiate)}
        direct: Any = type(self.name.replace("::", "_"), (torch.autograd.Function,), methods)
        apply: Callable[..., Any] = direct.apply
        return apply

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


def _tensors(arguments: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among them, and in lists among them."""
    for x in arguments:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, list):
            yield from _tensors(x)


def _is_watched(arguments: tuple[Any, ...]) -> bool:
    """Whether somebody besides autograd looks at operators: a compiler, a mode, a profiler, or a tensor's own class."""
    return (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch.autograd._profiler_enabled()
        or torch._C._len_torch_dispatch_stack() > 0
        or any(type(tensor) not in (Tensor, nn.Parameter) for tensor in _tensors(arguments))
    )


@operator("sbmt::saved_backward", schema="(Tensor grad, Tensor[] gradients, Tensor[] inputs) -> Tensor[]")
def saved_backward(grad: Tensor, gradients: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    """The backward pass where the forward pass has found the gradients of a number, which ``grad`` now multiplies.

    The inputs, of which they are the gradients, have second derivatives refused.
    """
    return [grad * gradient for gradient in gradients]


@saved_backward.register_fake
def _(grad: Tensor, gradients: list[Tensor], inputs: list[Tensor]) -> list[Tensor]:
    return [torch.empty_like(gradient) for gradient in gradients]

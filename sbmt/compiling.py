"""What ``torch.compile`` leaves alone."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
T = TypeVar("T")


def not_compiled(function: Callable[P, T]) -> Callable[P, T]:
    """``torch.compiler.disable``, which itself imports the compiler and so doubles the time of ``import torch``.

    As long as nobody has imported the compiler, there is nothing to keep it from.
    """
    disabled = torch._disable_dynamo(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return (disabled if "torch._dynamo" in sys.modules else function)(*args, **kwargs)

    return call

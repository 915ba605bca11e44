"""How GPU kernels are built."""

import inspect
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from sbmt.kernels.gpu import is_interpreted

IS_INTERPRETED = tl.constexpr(is_interpreted())


def kernel(function: Callable[..., Any]) -> Any:
    """Makes a function a Triton kernel, or a part of one.

    It is built at its first launch, once per combination of types and constants. Arguments that differ from call to
    call are not among those constants.
    """
    function = inspect.unwrap(function)  # tests wrap everything in shape checks, which cannot be part of a kernel
    changing = {"seed", "dropout_seed", "first_example"} & inspect.signature(function).parameters.keys()
    return triton.jit(function, do_not_specialize=sorted(changing))


def constant(function: Callable[..., Any]) -> Any:
    """Makes a function of constants that is evaluated while a kernel is built."""
    return triton.constexpr_function(inspect.unwrap(function))

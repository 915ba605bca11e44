"""How kernels are built."""

import inspect
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from sbmt.kernels.gpu import is_interpreted

IS_INTERPRETED = tl.constexpr(is_interpreted())


def kernel(function: Callable[..., Any]) -> Any:
    """A Triton kernel, or a part of one, built when it is first launched, once per combination of types and constants.

    Seeds and first examples differ from call to call, so that kernels are not built for values of theirs.
    """
    plain = _unwrapped(function)
    changing = [
        name for name in inspect.signature(plain).parameters if name in ("seed", "dropout_seed", "first_example")
    ]
    return triton.jit(plain, do_not_specialize=changing)


def constant(function: Callable[..., Any]) -> Any:
    """A function of constants that is evaluated while a kernel is built."""
    return triton.constexpr_function(_unwrapped(function))


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return inspect.unwrap(function)  # tests wrap everything in shape checks, which are no part of a kernel

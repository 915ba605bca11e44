"""How the loops are compiled."""

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numba
from filelock import FileLock

_REGROUPED = {"contract", "reassoc", "nsz"}  # sums may be regrouped, which vectorises them; NaN keeps its meaning


def loop(function: Callable[..., Any], *, inline: bool = False, fastmath: Any = _REGROUPED) -> Any:
    """Compiles a function at its first call, once per combination of types; it releases the GIL while it runs.

    Machine code is kept beside the source, or in the user's cache directory; where neither can be written, each process
    compiles for itself.
    """
    function = inspect.unwrap(function)  # tests wrap functions in shape checks, which cannot be compiled
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath, "forceinline": inline}
    try:
        return numba.njit(**options, cache=not inline)(function)
    except RuntimeError:  # there is no such directory
        return numba.njit(**options)(function)


def inline_loop(function: Callable[..., Any]) -> Any:
    """:func:`loop` that becomes part of the loops that call it, so that these can be vectorised."""
    return loop(function, inline=True)


def strict_loop(function: Callable[..., Any]) -> Any:
    """:func:`loop` in which the order of operations is kept, so that equal numbers give equal results anywhere."""
    return loop(function, fastmath=False)


def compile_for(function: Any, arguments: tuple[Any, ...]) -> None:
    """Compiles a loop for arguments of these types, before threads call it.

    Processes take turns, since numba's files on disk get mixed up by several that write at once.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    with FileLock(Path(gettempdir()) / f"sbmt-compile-{user}.lock"):
        function.compile(tuple(numba.typeof(argument) for argument in arguments))

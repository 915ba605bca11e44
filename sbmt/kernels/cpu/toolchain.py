"""How kernels are compiled, and where the machine code is kept."""

import hashlib
import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, config

from sbmt import counter_rng
from sbmt.kernels import structures

# Products may be fused into sums, and sums regrouped, which vectorises them. NaN and infinity keep their meaning.
_FAST = {"contract", "reassoc", "nsz"}


def kernel(function: Callable[..., Any], *, fast: set[str] = _FAST) -> Callable[..., Any]:
    """Compiles a function on its first call, once per combination of types; releases the GIL while it runs.

    The machine code is kept beside the source, or in the user's cache directory where that is read-only, or in
    ``NUMBA_CACHE_DIR``; where none can be written, each process compiles for itself. With ``NUMBA_BOUNDSCHECK=1`` every
    index is checked.
    """
    function = inspect.unwrap(function)  # tests wrap everything in shape checks, which cannot be compiled
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath=fast)(function)
    try:
        compiled._cache = _KernelCache(function)
    except RuntimeError:  # numba's word for: no directory can be written
        pass
    return compiled


def to_the_letter(function: Callable[..., Any]) -> Callable[..., Any]:
    """:func:`kernel` for code in which the order of operations matters."""
    return kernel(function, fast={"contract"})


@cache
def _stamp() -> str:
    """A hash of all that goes into kernels: code is inlined across files, so a file's own hash would miss changes."""
    sources = sorted([*Path(__file__).parent.rglob("*.py"), Path(structures.__file__), Path(counter_rng.__file__)])
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def _in_one_piece(locator: Any) -> Any:
    class OfAllKernels(locator):
        def get_source_stamp(self) -> str:
            return _stamp()

        def get_disambiguator(self) -> str:
            return "checked" if config.BOUNDSCHECK else "fast"  # the flag is not part of numba's own key

    return OfAllKernels


class _KernelCacheImpl(caching.CompileResultCacheImpl):
    _locator_classes = [  # noqa: RUF012 - numba's own attribute
        _in_one_piece(where)
        for where in (caching.UserProvidedCacheLocator, caching.InTreeCacheLocator, caching.UserWideCacheLocator)
    ]


class _KernelCache(caching.FunctionCache):
    _impl_class = _KernelCacheImpl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # files that a machine without power or room has cut short raise anything
            with suppress(OSError):
                self._cache_file.flush()  # forgets all, or saving would read the same
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk costs the next process a compilation, not this one its result
            super().save_overload(sig, data)

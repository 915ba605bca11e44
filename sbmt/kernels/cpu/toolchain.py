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


def kernel(
    function: Callable[..., Any], *, fast: set[str] = _FAST, forceinline: bool = False, counts_references: bool = True
) -> Callable[..., Any]:
    """Compiles a function on its first call, once per combination of types; releases the GIL while it runs.

    The machine code is kept beside the source, or in the user's cache directory where that is read-only, or in
    ``NUMBA_CACHE_DIR``; where none can be written, each process compiles for itself. With ``NUMBA_BOUNDSCHECK=1`` every
    index is checked.
    """
    function = inspect.unwrap(function)  # tests wrap everything in shape checks, which cannot be compiled
    options = {"nogil": True, "error_model": "numpy", "fastmath": fast, "forceinline": forceinline}
    return keep_code(numba.njit(**options, _nrt=counts_references)(function), function)


def to_the_letter(function: Callable[..., Any]) -> Callable[..., Any]:
    """:func:`kernel` for code in which the order of operations matters."""
    return kernel(function, fast={"contract"})


def borrowing(function: Callable[..., Any]) -> Callable[..., Any]:
    """:func:`kernel` for loops that make no array and return none, so that the caller holds all that there are.

    Nobody need count references to them then, which takes two calls for each row that is looked at.
    """
    return kernel(function, counts_references=False)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """:func:`borrowing` that becomes part of each kernel that calls it, where a call takes as long as what it does.

    Loops around it can then be vectorised as well.
    """
    return kernel(function, forceinline=True, counts_references=False)


def keep_code(compiled: Any, function: Callable[..., Any]) -> Any:
    """Keeps the machine code of a compiled function, where a directory can be written to."""
    with suppress(RuntimeError):  # numba raises this if it finds none
        compiled._cache = _KernelCache(function)
    return compiled


@cache
def _stamp() -> str:
    """A hash of every source that kernels are made of, since code is inlined across files."""
    sources = sorted([*Path(__file__).parent.rglob("*.py"), Path(structures.__file__), Path(counter_rng.__file__)])
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


class _KeyedFiles(caching.IndexDataCacheFile):
    """Numba's files, each named after what it holds; those made of older sources are deleted.

    Numba numbers them, so that two processes that save at once may give one number to two kernels, and the one would
    then be run for the other.
    """

    def save(self, key: Any, data: Any) -> None:
        name = self._data_name(int(hashlib.sha256(self._dump(key)).hexdigest()[:12], 16))
        index = self._load_index()
        for other in [other for other in index if other[-1] != key[-1]]:
            Path(self._data_path(index.pop(other))).unlink(missing_ok=True)
        self._save_data(name, data)
        self._save_index(index | {key: name})


class _KernelCache(caching.FunctionCache):
    """Numba's cache, which by itself would notice neither changes in other files nor the flag for checked indices."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _KeyedFiles(self._cache_path, self._impl.filename_base, None)

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        sources = self._impl.locator.get_source_stamp(), _stamp()
        return *super()._index_key(sig, codegen), bool(config.BOUNDSCHECK), sources

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # files cut short by a power failure or a full disk raise anything
            with suppress(OSError):
                self._cache_file.flush()  # empties the index; otherwise saving would read the same broken file
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk costs the next process a compilation, not this one its result
            super().save_overload(sig, data)

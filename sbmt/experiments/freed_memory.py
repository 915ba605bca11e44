"""Memory that large tensors leave stays with the process, for the next ones."""

import ctypes
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # what mallopt calls them
_NEVER = 1 << 30  # bytes: the largest power of two that its argument, a C int, can hold


def keep_freed_memory() -> None:
    """Has glibc keep the memory of whatever is freed, for as long as the process lives.

    By default each tensor of 32 MiB or more is given pages of its own, which the system clears one by one when they
    are first touched, and takes back when it is freed; a training step on a long sequence does so many times over.
    Other C libraries are left as they are.
    """
    with suppress(AttributeError, OSError, TypeError):  # TypeError on Windows
        mallopt = ctypes.CDLL(None).mallopt
        for threshold in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            mallopt(threshold, _NEVER)

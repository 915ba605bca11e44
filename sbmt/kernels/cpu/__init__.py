"""Kernels for the CPU, compiled by numba: plain loops over NumPy arrays that know nothing of the library's types.

Each kernel works on a range of rows and writes only there, so :mod:`sbmt.kernels.cpu.threads.parallel` can hand ranges
to any number of threads without changing a bit of the result. A kernel's docstring says what it computes; the caller
explains what that means.
"""

from functools import cache
from importlib.util import find_spec

import torch


@cache
def has_numba() -> bool:
    """Whether kernels can be compiled; numba itself is imported when the first one is called."""
    return find_spec("numba") is not None


def can_run_on(device: torch.device) -> bool:
    """Whether kernels serve tensors on this device."""
    return device.type == "cpu" and has_numba()

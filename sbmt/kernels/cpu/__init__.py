"""Kernels compiled by numba for the CPU: plain loops over NumPy arrays, without torch and without the library's types.

Each kernel works on a range of rows and writes only there, so :mod:`sbmt.kernels.cpu.parallel` can hand ranges to
threads in any number without changing a bit of the result. A kernel's docstring says what it
computes; what that means is explained where it is called.
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

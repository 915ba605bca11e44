"""Kernels for GPUs, written in Triton: programs over blocks of numbers that know nothing of the library's types.

A kernel's docstring says what it computes; the caller explains what that means. If ``TRITON_INTERPRET=1`` was set
before they were first imported, Triton's interpreter runs the same programs on the CPU, slowly.
"""

import os
from functools import cache
from importlib.util import find_spec

import torch


@cache
def has_triton() -> bool:
    """Whether kernels can be built; Triton itself is imported when the first one is called."""
    return find_spec("triton") is not None


def is_interpreted() -> bool:
    """Whether Triton's interpreter runs the kernels, on tensors of the CPU."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def can_run_on(device: torch.device) -> bool:
    """Whether kernels serve tensors on this device."""
    return has_triton() and device.type == ("cpu" if is_interpreted() else "cuda")


def has_gpu() -> bool:
    """Whether kernels serve any device here."""
    return has_triton() and (is_interpreted() or torch.cuda.is_available())

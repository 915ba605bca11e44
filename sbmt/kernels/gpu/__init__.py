"""Triton kernels for crossed memberships: parts, clusters, and attention along edges that are drawn on the way."""

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from sbmt.types import is_fake


def serves(x: Tensor) -> bool:
    """Whether the kernels serve a tensor: one of float32 on a GPU, where Triton is installed, as it is with torch."""
    return x.is_cuda and x.dtype == torch.float32 and not is_fake(x) and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None

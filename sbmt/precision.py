"""In which type numbers are computed: sums in float32 at least, and probabilities so even under autocast."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


def accumulator(value: Tensor) -> torch.dtype:
    """The type of sums: float64 for float64, else float32."""
    return torch.float64 if value.dtype == torch.float64 else torch.float32


def full_precision(like: Tensor) -> AbstractContextManager[Any]:
    """Switches autocast off: probabilities are float32 at least, whatever the rest of a model is."""
    device = like.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()

"""Brings masks to a given size by bisection."""

from collections.abc import Callable, Iterable

import torch

from sbmt.layers import SBMAttention


def bisect(value_at: Callable[[float], float], wanted: float, low: float, high: float, n_steps: int = 20) -> float:
    """Where a function that rises from ``low`` to ``high`` has the value wanted; it is called there last."""
    for _ in range(n_steps):
        middle = (low + high) / 2
        low, high = (middle, high) if value_at(middle) < wanted else (low, middle)
    value_at(high)
    return high


@torch.no_grad()
def scale_rates(
    layers: Iterable[SBMAttention], measure: Callable[[], float], wanted: float, largest: float = 15.0
) -> None:
    """Multiplies the rates of all layers by one factor, at most exp(``largest``), until a measure has a value."""
    starts = {layer: layer.log_start.clone() for layer in layers}

    def measure_at(shift: float) -> float:
        for layer, start in starts.items():
            layer.log_start.copy_(start + shift)
        return measure()

    bisect(measure_at, wanted, -15.0, largest, n_steps=12)

"""Costs of the attentions that draw no mask: one function each, its parts in the order of the forward pass."""

from collections.abc import Callable
from typing import Any

from torch import nn

from sbmt.baselines import (
    FullAttention,
    LinearAttention,
    LinformerAttention,
    NystromAttention,
    PerformerAttention,
    ReformerAttention,
)
from sbmt.cost.parts import ModuleCost, part


def full_cost(layer: FullAttention, n: int) -> ModuleCost:
    """Every query meets every key; a fused kernel does the same in pieces."""
    scaling = (part("scaling of Q by s ln n", elementwise="b·h·n·d"),) if layer.is_log_scaled else ()
    parts = (
        *scaling,
        part("scores Q Kᵀ", "2·b·h·n²·d", "b·h·n²"),
        part("softmax", elementwise="5·b·h·n²"),
        part("weights × V", "2·b·h·n²·d"),
    )
    return ModuleCost(parts, {"h": layer.n_heads, "d": layer.d_head})


def linear_cost(layer: LinearAttention, n: int) -> ModuleCost:
    """Features are as wide as the head."""
    parts = (
        part("features of Q and K", elementwise="8·b·h·n·d"),
        part("features read the keys", "2·b·h·n·d²", "9·b·h·n·d"),
        part("queries read the features", "2·b·h·n·d²", "6·b·h·n·d"),
    )
    return ModuleCost(parts, {"h": layer.n_heads, "d": layer.d_head})


def performer_cost(layer: PerformerAttention, n: int) -> ModuleCost:
    """As linear attention, with k random features. Drawing them, O(k·d²), is not part of a forward pass."""
    parts = (
        part("features of Q and K", "4·b·h·n·k·d", "6·b·h·n·d + 4·b·h·n·k"),
        part("features read the keys", "2·b·h·n·k·d", "9·b·h·n·k"),
        part("queries read the features", "2·b·h·n·k·d", "6·b·h·n·k"),
    )
    return ModuleCost(parts, {"h": layer.n_heads, "d": layer.d_head, "k": layer.n_features})


def linformer_cost(layer: LinformerAttention, n: int) -> ModuleCost:
    """Full attention over k mixtures of keys and values."""
    parts = (
        part("mixtures E K and E V", "4·b·h·n·k·d"),
        part("scores Q (E K)ᵀ", "2·b·h·n·k·d", "b·h·n·k"),
        part("softmax", elementwise="5·b·h·n·k"),
        part("weights × E V", "2·b·h·n·k·d"),
    )
    return ModuleCost(parts, {"h": layer.n_heads, "d": layer.d_head, "k": layer.n_projected})


def nystromformer_cost(layer: NystromAttention, n: int) -> ModuleCost:
    """Three softmax factors, the middle one inverted by i steps of four products each, multiplied from the right."""
    parts = [
        part("landmarks: means of Q and of K", "4·b·h·n·k·d", "b·h·n·d + 8·b·n·k"),
        part("queries to landmarks", "2·b·h·n·k·d", "7·b·h·n·k"),
        part("landmarks to landmarks", "2·b·h·k²·d", "8·b·h·k²"),
        part("landmarks to keys", "2·b·h·n·k·d", "7·b·h·n·k"),
        part("pseudo-inverse", "8·b·h·i·k³", "7·b·h·i·k² + 5·b·h·k²"),
        part("the three factors × V", "4·b·h·n·k·d + 2·b·h·k²·d"),
    ]
    if layer.n_conv is not None:
        parts.append(part("convolution of V", "2·b·h·n·w·d", "b·h·n·d"))
    sizes = {"h": layer.n_heads, "d": layer.d_head, "k": min(layer.n_landmarks, n)}
    return ModuleCost(tuple(parts), sizes | {"i": layer.n_iterations, "w": layer.n_conv or 0})


def reformer_cost(layer: ReformerAttention, n: int) -> ModuleCost:
    """In each of r rounds, a token looks at 2·c others. Sorting is not counted."""
    n_chunk = min(layer.n_chunk, n)
    n_chunks = -(-n // n_chunk)
    parts = (
        part("hashing", "2·b·h·r·N·s·d", "5·b·h·r·N·s"),
        part("pairs", elementwise="8·b·h·r·N·c + 4·b·h·r²·N·c"),
        part("scores", "4·b·h·r·N·c·d", "3·b·h·N·d + 2·b·h·r·N·c"),
        part("softmax", elementwise="18·b·h·r·N·c"),
        part("weights × V", "4·b·h·r·N·c·d"),
        part("rounds put together", elementwise="5·b·h·r·N + 2·b·h·r·N·d"),
    )
    sizes = {"h": layer.n_heads, "d": layer.d_head, "r": layer.n_hashes}
    return ModuleCost(parts, sizes | {"c": n_chunk, "s": n_chunks, "N": n_chunk * n_chunks})


ATTENTIONS: dict[type[nn.Module], Callable[[Any, int], ModuleCost]] = {
    FullAttention: full_cost,
    LinearAttention: linear_cost,
    PerformerAttention: performer_cost,
    LinformerAttention: linformer_cost,
    NystromAttention: nystromformer_cost,
    ReformerAttention: reformer_cost,
}

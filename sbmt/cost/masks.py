"""Costs of the attentions along edges: the paper's, and its controls."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from sbmt.baselines import RandomMaskAttention, RoutingAttention
from sbmt.cost.parts import ModuleCost, Part, part
from sbmt.layers import SBMAttention
from sbmt.layers.sbm_static import StaticSBMAttention


def random_mask_cost(layer: RandomMaskAttention, n: int) -> ModuleCost:
    """A block model of one cluster to which all tokens belong, drawn by the exact sampler, and its window."""
    sampling = (*sampling_parts("exact"), *window_parts(layer.window))
    parts = (*sampling, sum_of_rates(), *edge_parts(layer.backend))
    return ModuleCost(parts, {"h": layer.n_heads, "d": layer.d_head, "k": 1})


def random_mask_density(layer: RandomMaskAttention, n: int) -> float:
    """The density of a random mask on n tokens: its window is full, other pairs have its probability.

    Example:
        >>> random_mask_density(RandomMaskAttention(4, 2, mask_density=0.5, window=2), 4)
        0.8125
    """
    if layer.window is None:
        return layer.mask_density
    reach = min(layer.window // 2, n - 1)
    near = (n * (2 * reach + 1) - reach * (reach + 1)) / n**2
    return near + (1 - near) * layer.mask_density


def routing_cost(layer: RoutingAttention, n: int) -> ModuleCost:
    """The nearest of k centroids, then edges within clusters. Sorting is not counted."""
    parts = (
        part("directions of Q and of the centroids", elementwise="3·b·h·n·d + 3·h·k·d"),
        part("nearest centroid", "2·b·h·n·k·d", "b·h·n·k"),
        *edge_parts(layer.backend),
    )
    return ModuleCost(parts, {"h": layer.n_heads, "d": layer.d_head, "k": layer.n_centroids})


def routing_density(layer: RoutingAttention, n: int) -> float:
    """The density if all clusters are of one size.

    Example:
        >>> routing_density(RoutingAttention(4, 2, n_centroids=8), 64)
        0.125
    """
    return 1 / min(layer.n_centroids, n)


def sbm_cost(layer: SBMAttention, n: int, *, per: str = "b·h") -> ModuleCost:
    """The block model, the draw and the edges; memberships are computed per head of each example, or just per head."""
    n_heads, n_clusters, d_head = layer.clusters.shape
    is_bilinear, is_sigmoid = layer.link.is_linear, layer.membership == "sigmoid"
    pairs = "k²" if layer.n_groups == 1 else "k·s"  # of clusters that meet: those of a group, which has s
    sizes = {"h": n_heads, "d": d_head, "k": n_clusters}
    if layer.n_groups > 1 or layer.n_active is not None:
        sizes["s"] = n_clusters // layer.n_groups
    products = part("memberships: products with C", f"4·{per}·n·k·d", f"{2 if is_sigmoid else 10}·{per}·n·k")
    sampling, rates = sampling_parts(layer.sampler, pairs), rate_parts(layer, pairs)
    if layer.n_active is not None:
        sizes["a"] = layer.n_groups * layer.n_active
        products = part("memberships: products with C", f"4·{per}·n·k·d", f"2·{per}·n·k + 10·{per}·n·a")
    if layer.n_active is not None and layer.sampler == "exact" and layer.link.is_poisson and per == "b·h":
        sampling, rates = few_clusters_parts(pairs)
    parts = (
        part("memberships: MLP of Q and K", f"8·{per}·n·d²", f"6·{per}·n·d"),
        products,
        part("block matrix", f"2·h·{pairs}·d", f"{5 if is_bilinear else 3}·h·{pairs}"),
        *sampling,
        *window_parts(layer.window),
        *rates,
        *edge_parts(layer.backend),
    )
    return ModuleCost(parts, sizes)


def few_clusters_parts(pairs: str) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Drawing, and what the fit needs, where a token is in a of the k clusters: only a row's rates are as wide as k."""
    rates = part("sampling: rates T = Q̂ S", "2·b·h·n·a·s", "2·b·h·n·k")
    members = part("sampling: members of clusters", elementwise="5·b·h·n·a")
    sampling = rates, members, part("sampling: draws", elementwise="4·m")
    sums = part("sum of all rates", f"2·b·h·{pairs} + 2·b·h·k", "2·b·h·n·a")
    return sampling, (sums, part("rates per edge", "2·b·h·n·a·s + 2·m·a", "3·m"))


def sampling_parts(sampler: str, pairs: str = "k²") -> tuple[Part, ...]:
    r"""Drawing the mask, by name of the sampler; ``pairs`` of clusters meet.

    - ``exact``: the rates $T = \hat Q S$, bounds for rows and keys, then at least a gap, a place, a coin and a
      comparison per edge. An edge in doubt takes another 2·k FLOPs, which are **not counted**: the number of such edges
      depends on the memberships, and is 0 if all are alike.
    - ``fastrg``: Algorithm 1's normalisation and tables, then three words and three searches per edge, each counted as
      one. Repeated draws are not counted.
    - ``bernoulli``: the rates, then every pair.
    """
    rates = part("sampling: rates T = Q̂ S", f"2·b·h·n·{pairs}")
    if sampler == "exact":
        return rates, part("sampling: bounds", elementwise="9·b·h·n·k"), part("sampling: draws", elementwise="4·m")
    if sampler == "fastrg":
        return part("sampling: tables", elementwise="8·b·h·n·k + 6·b·h·k²"), part("sampling: draws", elementwise="6·m")
    return rates, part("sampling: every pair", "2·b·h·n²·k", "3·b·h·n²")


def window_parts(window: int | None) -> tuple[Part, ...]:
    """The union of the drawn edges with those of the window; nothing without a window."""
    return () if window is None else (part("union with the window", elementwise="m"),)


def sum_of_rates(pairs: str = "k²") -> Part:
    """What the mean edge probability follows from under the bilinear link, and a fit by likelihood needs."""
    return part("sum of all rates", f"2·b·h·{pairs} + 2·b·h·k", "2·b·h·n·k")


def rate_parts(layer: SBMAttention, pairs: str) -> tuple[Part, ...]:
    """What the mean edge probability, reweighting and the fit are made of: the sum of all rates, and those of edges."""
    is_fitted = layer.learning == "likelihood"
    per_edge = part("rates per edge", "2·m·k", "3·m")
    return (
        *((sum_of_rates(pairs),) if is_fitted or layer.link.is_linear else ()),
        *((per_edge,) if is_fitted or layer.reweight or not layer.link.is_linear else ()),
    )


def edge_parts(backend: str) -> tuple[Part, ...]:
    """Attention along edges; the dense backend visits all pairs instead, and masks those without an edge.

    ``"auto"`` is counted as edges, although it chooses the dense backend for short sequences and dense masks.
    """
    pairs, pair = ("m", "edge") if backend != "dense" else ("b·h·n²", "pair")
    return (
        part(f"scores per {pair}", f"2·{pairs}·d", pairs),
        part(f"softmax per {pair}", elementwise=f"5·{pairs}"),
        part(f"weights × V per {pair}", f"2·{pairs}·d"),
    )


DENSITIES: dict[type[nn.Module], Callable[[Any, int], float]] = {
    RandomMaskAttention: random_mask_density,
    RoutingAttention: routing_density,
}
"""Of attentions that have a density by themselves."""

ATTENTIONS: dict[type[nn.Module], Callable[[Any, int], ModuleCost]] = {
    SBMAttention: sbm_cost,
    StaticSBMAttention: partial(sbm_cost, per="h"),  # memberships of positions, once for the whole batch
    RandomMaskAttention: random_mask_cost,
    RoutingAttention: routing_cost,
}

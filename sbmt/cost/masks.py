"""Costs of the attentions along edges: the paper's, and its controls."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from sbmt.baselines import RandomMaskAttention, RoutingAttention
from sbmt.block_model.crossed import skips_nodes
from sbmt.cost.parts import ModuleCost, Part, part
from sbmt.errors import choose
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
    n_heads, d_head = layer.n_heads, layer.d_head
    n_clusters, n_groups = layer.n_clusters, layer.n_groups
    is_bilinear, is_sigmoid, is_crossed = layer.link.is_linear, layer.membership == "sigmoid", False
    has_nodes = True
    pairs = "k²" if n_groups == 1 else "k·s"  # of clusters that meet: those of a group, which has s
    sizes = {"h": n_heads, "d": d_head, "k": n_clusters}
    nodes = part("memberships: MLP of Q and K", f"8·{per}·n·d²", f"6·{per}·n·d")
    products = part("memberships: products with C", f"4·{per}·n·k·d", f"{2 if is_sigmoid else 10}·{per}·n·k")
    block_matrix = part("block matrix", f"2·h·{pairs}·d", f"{5 if is_bilinear else 3}·h·{pairs}")
    if n_groups > 1:
        sizes["s"] = n_clusters // n_groups
    if layer.membership == "crossed":
        sizes |= {"g": n_groups, "s": layer.clusters.shape[1] // (2 * n_groups), "a": layer.n_active}
        pairs = "g·s⁴"
        nodes = part("memberships: linear map of Q and K", f"4·{per}·n·d²", f"2·{per}·n·d")
        products = part("memberships: products with C", f"8·{per}·n·g·s·d", f"4·{per}·n·g·s + 20·{per}·n·g·a")
        block_matrix = part("block matrix", "4·h·k·d", "6·h·k")
        width = d_head * (n_heads if layer.shared_graph else 1)
        has_nodes = not skips_nodes(d_head, width, layer.clusters.shape[1])
        if not has_nodes:
            nodes = part("memberships: linear map times C", "4·h·g·s·d² + 4·h·g·s·d")
        is_crossed = layer.sampler == "exact" and layer.link.is_poisson and per == "b·h"
    mask = (
        products,
        block_matrix,
        *(CROSSED_SAMPLING if is_crossed else sampling_parts(layer.sampler, pairs)),
        *window_parts(layer.window),
        *(CROSSED_RATES if is_crossed else rate_parts(layer, pairs)),
    )
    if layer.shared_graph:  # the tokens of all heads side by side
        mask = tuple(_for_one_head(part) for part in mask)
        if has_nodes:
            second = "" if layer.membership == "crossed" else " + " + f"4·{per}·n·d²".replace("h·", "")
            nodes = part(nodes.name, f"4·{per}·n·d²" + second, nodes.elementwise.text.replace("h·", ""))
        else:
            nodes = part(nodes.name, "4·h·g·s·d² + 4·g·s·d")
            mask = part(products.name, products.flops.text, mask[0].elementwise.text), *mask[1:]
    return ModuleCost((nodes, *mask, *edge_parts(layer.backend)), sizes)


def _for_one_head(step: Part) -> Part:
    """What a graph that all heads share costs: e edges of it stand for m of theirs."""
    texts = (formula.text.replace("h·", "").replace("m", "e") for formula in (step.flops, step.elementwise))
    return part(step.name, *texts)


CROSSED_SAMPLING = (
    part("sampling: rates T = Q̂ S", "4·b·h·n·g·a·s"),
    part("sampling: members of clusters", elementwise="3·b·h·n·g·a²"),
    part("sampling: lengths of clusters", "2·b·h·g·s³ + 2·b·h·n·g·a·s"),
    part("sampling: draws", elementwise="4·m"),
)
"""Drawing where a token is in a of the parts of crossed partitions."""
CROSSED_RATES = (
    part("sum of all rates", "4·b·h·g·s³", "4·b·h·n·g·a²"),
    part("rates per edge", "4·m·g·a", "3·m"),
)
"""What the fit needs there."""


RATES, DRAWS = "sampling: rates T = Q̂ S", "sampling: draws"
SAMPLING: dict[str, Callable[[str], tuple[Part, ...]]] = {
    "exact": lambda pairs: (
        part(RATES, f"2·b·h·n·{pairs}"),
        part("sampling: bounds", elementwise="9·b·h·n·k"),
        part(DRAWS, elementwise="4·m"),
    ),
    "fastrg": lambda pairs: (
        part("sampling: tables", elementwise="8·b·h·n·k + 6·b·h·k²"),
        part(DRAWS, elementwise="6·m"),
    ),
    "bernoulli": lambda pairs: (
        part(RATES, f"2·b·h·n·{pairs}"),
        part("sampling: every pair", "2·b·h·n²·k", "3·b·h·n²"),
    ),
}
r"""Drawing the mask, by name of the sampler, where ``pairs`` of clusters meet.

- ``exact``: the rates $T = \hat Q S$, bounds for rows and keys, then at least a gap, a place, a coin and a comparison
  per edge. An edge in doubt takes another 2·k FLOPs, which are **not counted**: the number of such edges depends on the
  memberships, and is 0 if all are alike.
- ``fastrg``: Algorithm 1's normalisation and tables, then three words and three searches per edge, each counted as one.
  Repeated draws are not counted.
- ``bernoulli``: the rates, then every pair.
"""


def sampling_parts(sampler: str, pairs: str = "k²") -> tuple[Part, ...]:
    """Drawing the mask; a sampler of the user's is refused, since it must not come out as free.

    Raises:
        SbmtError: If the sampler is none of the library's.
    """
    return choose("sampler whose cost is known", sampler, SAMPLING)(pairs)


def window_parts(window: int | None) -> tuple[Part, ...]:
    """The union of the drawn edges with those of the window; nothing without a window."""
    return () if window is None else (part("union with the window", elementwise="m"),)


def sum_of_rates(pairs: str = "k²") -> Part:
    """What the mean edge probability follows from under the bilinear link, and a fit by likelihood needs."""
    return part("sum of all rates", f"2·b·h·{pairs} + 2·b·h·k", "2·b·h·n·k")


def rate_parts(layer: SBMAttention, pairs: str) -> tuple[Part, ...]:
    """What the mean edge probability, reweighting and the fit are made of: the sum of all rates, and those of edges.

    The fit is counted, though it takes place only where gradients are on.
    """
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

"""Figure 3 of the paper: how the positions of tokens and clusters in the plane determine the mask."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import pi
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.block_model.model import BlockModel
from sbmt.errors import check_sizes, choose
from sbmt.experiments.plots.masks import plot_mask
from sbmt.experiments.plots.style import BLUE, FAINT, VERMILLION, saved_figure
from sbmt.graph.edges import EdgeList

_SCATTER = (0.35, 0.04)  # standard deviations of tokens and clusters from their centres
_CLUSTERS = 6


@dataclass(frozen=True, eq=False)
class Placement:
    """Tokens and clusters in the plane. Each token serves as both a query and a key."""

    name: str
    nodes: Float[Tensor, "n 2"]
    clusters: Float[Tensor, "k 2"]
    block_model: BlockModel  # memberships sigmoid(node · cluster), block matrix softmax(cluster · cluster)


def _circle(n_nodes: int) -> Tensor:
    """Places nodes in three groups of equal size at three points of a circle."""
    angle = 2 * pi * (torch.arange(n_nodes) * 3 // n_nodes) / 3 + pi / 2
    return 3.5 * torch.stack([angle.cos(), angle.sin()], 1)


PLACEMENTS: dict[str, Callable[[int], tuple[Tensor, Tensor]]] = {
    "collapsed": lambda n: (torch.full((n, 2), 2.2), torch.full((_CLUSTERS, 2), 2.2)),
    "separated": lambda n: (_circle(n), _circle(_CLUSTERS)),
    "distant": lambda n: (torch.full((n, 2), 1.1), torch.full((_CLUSTERS, 2), -1.1)),
}
"""Functions that return the centres of tokens and clusters, for a dense, a block-diagonal and a sparse mask."""


def place(name: str, n_tokens: int = 48, seed: int = 0) -> Placement:
    """Places tokens and clusters as in one case of Figure 3, and applies equations 5 to 7 without the MLP."""
    check_sizes(n_tokens=n_tokens)
    generator = torch.Generator().manual_seed(seed)
    nodes, clusters = (
        x + scatter * torch.randn(x.shape, generator=generator)
        for x, scatter in zip(choose("case", name, PLACEMENTS)(n_tokens), _SCATTER, strict=True)
    )
    membership = torch.sigmoid(nodes @ clusters.T)[None, None]  # 1 1 n k
    block_matrix = torch.softmax((clusters @ clusters.T).flatten(), 0).view(1, _CLUSTERS, _CLUSTERS)
    return Placement(name, nodes, clusters, BlockModel(membership, block_matrix, membership))


def draw_placements(placements: Sequence[Placement], edges: Sequence[EdgeList], path: Path) -> None:
    """Writes a figure with one row per case, which shows tokens and clusters, the expected mask and a sampled mask."""
    with saved_figure(path, 9.6, 3.1 * len(placements)) as figure:
        axes = figure.subplots(len(placements), 3, squeeze=False)
        for (plane, expected, sampled), placement, drawn in zip(axes, placements, edges, strict=True):
            plane.grid(color=FAINT)
            tokens, clusters = placement.nodes.T.numpy(), placement.clusters.T.numpy()
            plane.scatter(*tokens, s=18, color=BLUE, alpha=0.7, label="tokens", linewidths=0)
            plane.scatter(*clusters, s=70, color=VERMILLION, marker="X", label="clusters", ec="white")
            plane.set(xlim=(-5, 5), ylim=(-5, 5), aspect="equal", title=placement.name)
            plane.legend(loc="lower right", fontsize=8)
            mean = placement.block_model.expected_density().item()
            plot_mask(placement.block_model.expected_mask(), expected, title=f"edge probability, mean {mean:.3f}")
            plot_mask(drawn, sampled, title=f"one draw, density {drawn.density().item():.3f}")

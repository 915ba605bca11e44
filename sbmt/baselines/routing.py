"""Routing Transformer's attention: tokens attend to those in their cluster."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from sbmt.attention.dispatch import check_backend, edge_attention
from sbmt.baselines.base import Baseline, Inputs, directions, real_tokens
from sbmt.errors import check_sizes
from sbmt.graph.edges import EdgeList
from sbmt.types import AttentionOutput


def same_cluster(cluster: Int[Tensor, "batch heads n"], is_real: Bool[Tensor, "batch n"]) -> EdgeList:
    """Edges from each real token to the others of its cluster (≥ 0), or to itself if none; O(n log n + edges)."""
    batch, heads, n = cluster.shape
    shape = (batch, heads, n, n)
    n_clusters = int(cluster.max()) + 1
    graph = torch.arange(batch * heads, device=cluster.device).view(batch, heads, 1)
    label = torch.where(is_real[:, None], graph * n_clusters + cluster, batch * heads * n_clusters).flatten()
    members = label.argsort(stable=True)  # cluster by cluster, ascending in each; padding last
    size = torch.bincount(label, minlength=batch * heads * n_clusters + 1)
    start = size.cumsum(0) - size
    degree = torch.where(is_real[:, None].expand_as(cluster).flatten(), size[label], 0)
    row = torch.arange(batch * heads * n, device=cluster.device).repeat_interleave(degree)
    first = degree.cumsum(0) - degree
    place = torch.arange(len(row), device=row.device) - first[row] + start[label[row]]
    key = members[place]
    is_kept = (key != row) | (degree[row] == 1)
    return EdgeList.from_cells((row * n + key % n)[is_kept], shape, is_real, is_real)


class RoutingAttention(Baseline):
    r"""Softmax attention within the clusters of k-means, without causality.

    Each head has $k$ learned centroids $\mu_a$, shared by all inputs. With $x$ for the queries and
    $\hat x = x / \lVert x \rVert$, a token belongs to the cluster $c_i = \arg\max_a \hat x_i \cdot \hat\mu_a$ of the
    nearest centroid, and

    $$y_i = \sum_{j \in P_i} \frac{\exp(x_i \cdot \hat x_j)}{Z_i}\, v_j, \qquad
    P_i = \{j \ne i : c_j = c_i\}, \text{ or } \{i\} \text{ if that is empty.}$$

    The query also serves as the key: **the argument** ``key`` **is ignored**. The centroids learn from the output's
    ``auxiliary_loss`` alone, the mean of $1 - \hat x_i \cdot \hat\mu_{c_i}$ over real tokens, which the loss of the
    task must contain.

    Args:
        n_centroids: Centroids k of k-means per head, at least 1.
        backend: What attends along the edges; ``"auto"`` chooses.

    Cost: O(n · k · d + edges · d), where k clusters of equal size have n² / k edges.

    Source: Roy, Saffar, Vaswani and Grangier, "Efficient Content-Based Sparse Attention with Routing Transformers"
    (2021). Deviations: a token is in one cluster, whose size may be anything, while the original gives each centroid
    its n / k nearest tokens; centroids follow the gradient of k-means' objective instead of a moving average; scores
    are those of Reformer; no heads attend locally.
    """

    def __init__(
        self, d_head: int, n_heads: int, *, n_centroids: int = 32, dropout: float = 0.0, backend: str = "auto"
    ) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        check_sizes(n_centroids=n_centroids)
        check_backend(backend)
        self.n_centroids, self.backend = n_centroids, backend
        self.centroids = nn.Parameter(torch.empty(n_heads, n_centroids, d_head))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the centroids anew, as random directions."""
        with torch.no_grad():
            self.centroids.copy_(directions(torch.randn_like(self.centroids)))

    def attend(self, inputs: Inputs) -> AttentionOutput:
        """Assigns and attends; SbmtError if queries and keys differ in number or in masks."""
        query, _, value, _, _, dropout, generator, return_edges = inputs
        is_real = real_tokens(inputs)
        unit, centroids = directions(query), directions(self.centroids).to(query.dtype)
        closeness, cluster = (unit.detach() @ centroids.mT).max(-1)  # batch heads n
        edges = same_cluster(cluster, is_real)
        query = query * self.d_head**0.5  # which the scores are divided by
        values = edge_attention(query, unit, value, edges, backend=self.backend, dropout=dropout, generator=generator)
        n_real = is_real.sum() * self.n_heads
        distance = (1 - closeness).masked_fill(~is_real[:, None], 0.0).sum() / n_real.clamp(min=1)
        density = edges.density()
        return AttentionOutput(values, density, density, edges if return_edges else None, distance)

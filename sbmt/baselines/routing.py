"""Routing Transformer's attention: tokens attend to those in their cluster."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from sbmt.attention.dispatch import check_backend, edge_attention
from sbmt.baselines.base import Baseline, Inputs, directions, real_tokens
from sbmt.errors import check_sizes
from sbmt.graph.edges import EdgeList
from sbmt.types import AttentionOutput, full_precision


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

    The query also serves as the key: **the argument** ``key`` **is ignored**, and the key projection of a surrounding
    layer has no effect. The centroids learn from the output's ``auxiliary_loss``, the mean of
    $1 - \hat x_i \cdot \hat\mu_{c_i}$ over real tokens, which the loss of the task must contain; it reaches nothing
    else, and the loss of the task does not reach them.

    Args:
        n_centroids: Centroids k of k-means per head, at least 1.
        backend: What attends along the edges; ``"auto"`` chooses.

    Cost: O(n · k · d + edges · d), where k clusters of equal size have n² / k edges. Only dropout draws from
    ``generator``, one int64.

    Source: Roy, Saffar, Vaswani and Grangier, "Efficient Content-Based Sparse Attention with Routing Transformers"
    (2021). Deviations: a token is in one cluster, whose size may be anything, while the original gives each centroid
    its n / k nearest tokens, so that a token may be in several or in none; centroids follow the gradient of the
    objective of k-means instead of a moving average of their tokens, so that a forward pass changes nothing; scores are
    as in Reformer, where the query keeps its length and a token attends to itself only as a last resort. Heads with
    local attention are not included.
    """

    def __init__(
        self, d_head: int, n_heads: int, *, n_centroids: int = 32, dropout: float = 0.0, backend: str = "auto"
    ) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        check_sizes(n_centroids=n_centroids)
        check_backend(backend)
        self.n_centroids, self.backend = n_centroids, backend
        self.centroids = nn.Parameter(directions(torch.randn(n_heads, n_centroids, d_head)))

    def attend(self, inputs: Inputs) -> AttentionOutput:
        """Assigns and attends; SbmtError if queries and keys differ in number or in their masks."""
        query, _, value, _, _, dropout, generator, return_edges = inputs
        is_real = real_tokens(inputs)
        dtype = torch.promote_types(torch.promote_types(query.dtype, value.dtype), torch.float32)
        query, value = query.to(dtype), value.to(dtype)
        with full_precision(query):
            unit, centroids = directions(query), directions(self.centroids).to(dtype)
            closeness, cluster = (unit.detach() @ centroids.mT).max(-1)  # batch heads n
            edges = same_cluster(cluster, is_real)
            query = query * self.d_head**0.5  # which the scores are divided by
            values = edge_attention(
                query, unit, value, edges, backend=self.backend, dropout=dropout, generator=generator
            )
        n_real = is_real.sum() * self.n_heads
        distance = (1 - closeness).masked_fill(~is_real[:, None], 0.0).sum() / n_real.clamp(min=1)
        density = edges.density()
        return AttentionOutput(values, density, density, edges if return_edges else None, distance)

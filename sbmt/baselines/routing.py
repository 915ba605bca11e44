"""Routing Transformer's attention: tokens attend to those in their cluster."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sbmt.attention.dispatch import check_backend, edge_attention
from sbmt.attention.inputs import check_attention_inputs, check_dropout
from sbmt.baselines.self_attention import directions, one_mask
from sbmt.errors import check_sizes
from sbmt.graph.edges import EdgeList
from sbmt.precision import full_precision
from sbmt.registration import option
from sbmt.types import AttentionOutput


def same_cluster(cluster: Int[Tensor, "batch heads n"], is_real: Bool[Tensor, "batch n"]) -> EdgeList:
    """Edges from each real token to the others of its cluster, or to itself if there are none.

    Args:
        cluster: A number ≥ 0 for every token of a head.
        is_real: Which tokens are real; padding is in no cluster.

    Cost: O(n log n + edges).
    """
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


@dataclass(frozen=True)
class RoutingOptions:
    """Options of :class:`RoutingAttention`."""

    n_centroids: int = option(32, "centroids of k-means per head")

    def __post_init__(self) -> None:
        check_sizes(n_centroids=self.n_centroids)


class RoutingAttention(nn.Module):
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
        d_head: Width of a head.
        n_heads: Number of heads.
        n_centroids: k, at least 1.
        dropout: On the attention weights while training, in [0, 1).
        backend: What attends along the edges; ``"auto"`` chooses.

    Nothing is random but dropout, which takes one int64 from ``generator``.

    Cost: O(n · k · d + edges · d), where k clusters of equal size have n² / k edges.

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
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads, n_centroids=n_centroids)
        check_dropout(dropout)
        check_backend(backend)
        self.d_head, self.n_heads, self.n_centroids = d_head, n_heads, n_centroids
        self.dropout, self.backend = dropout, backend
        self.centroids = nn.Parameter(directions(torch.randn(n_heads, n_centroids, d_head)))

    def forward(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        value: Float[Tensor, "batch heads n_keys d_value"],
        *,
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> AttentionOutput:
        """Assigns and attends; see :class:`~sbmt.layers.SBMAttention` for arguments.

        Raises:
            SbmtError: If tensors or masks do not fit together, or queries and keys differ in number or in their masks.
        """
        check_attention_inputs(query, key, value)
        is_real = one_mask(query, key, query_mask, key_mask)
        dtype = torch.promote_types(torch.promote_types(query.dtype, value.dtype), torch.float32)
        x, values = (t.to(dtype).masked_fill(~is_real[:, None, :, None], 0.0) for t in (query, value))
        with full_precision(query):
            unit = directions(x)
            centroids = directions(self.centroids).to(dtype)
            closeness, cluster = (unit.detach() @ centroids.mT).max(-1)  # batch heads n
            edges = same_cluster(cluster, is_real)
            dropout = self.dropout if self.training else 0.0
            values = edge_attention(
                x * self.d_head**0.5,  # which the scores are divided by
                unit,
                values,
                edges,
                backend=self.backend,
                dropout=dropout,
                generator=generator,
            )
        n_real = is_real.sum() * self.n_heads
        distance = (1 - closeness).masked_fill(~is_real[:, None], 0.0).sum() / n_real.clamp(min=1)
        density = edges.density()
        return AttentionOutput(values.to(value.dtype), density, density, edges if return_edges else None, distance)

    def extra_repr(self) -> str:
        """The settings in one line."""
        return f"d_head={self.d_head}, n_heads={self.n_heads}, n_centroids={self.n_centroids}, dropout={self.dropout}"

"""Block models whose tokens belong to a few clusters each, and do without an array of all tokens by all clusters."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from sbmt.block_model.link import Link
from sbmt.block_model.model import BlockModel, in_range
from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import zero_padding
from sbmt.kernels import few_clusters as kernels
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.structures import FewClusters


def few_memberships(
    nodes: Float[Tensor, "batch heads n d"], clusters: Float[Tensor, "heads k d"], n_groups: int, n_active: int
) -> tuple[Int[Tensor, "batch heads n chosen"], Float[Tensor, "batch heads n chosen"]]:
    r"""The clusters of largest logit $\langle \text{node}_i, C_a \rangle$ of each group, and their softmax.

    The plain twin sets all other logits of the group to −∞ and takes the softmax of all.

    Args:
        nodes: The tokens as the block model sees them.
        clusters: C.
        n_groups: Groups of clusters, each with a softmax of its own.
        n_active: How many clusters of each group a token belongs to.

    Returns:
        Numbers of clusters, in ascending order, and memberships, which sum to 1 over each group. A token has
        ``n_groups · n_active`` of both.

    Cost: O(n k d) for the logits, of which no gradient is taken; the rest follows the clusters that are chosen.
    """
    batch, heads, n, _ = nodes.shape
    by_head = nodes.transpose(0, 1).flatten(1, 2)  # heads batch·n d
    if can_run_on(nodes.device):
        by_head, clusters = by_head.contiguous(), clusters.contiguous()
        cluster, weight = kernels.choose_clusters(by_head.detach(), clusters.detach(), n_groups, n_active)
        found = cluster, kernels.few_memberships(by_head, clusters, cluster, weight, n_groups)
    else:
        logits = (by_head @ clusters.mT).unflatten(-1, (n_groups, -1))
        cluster = logits.detach().topk(n_active, -1).indices.sort(-1).values
        first = torch.arange(0, clusters.shape[1], logits.shape[-1], device=nodes.device)[:, None]
        found = (cluster + first).flatten(-2), logits.gather(-1, cluster).softmax(-1).flatten(-2)
    cluster, weight = (t.view(heads, batch, n, -1).transpose(0, 1) for t in found)
    return cluster, weight


class FewClustersModel(BlockModel):
    """A :class:`~sbmt.block_model.model.BlockModel` that knows only which clusters a token belongs to, and how much.

    It has the same law, and its dense memberships where somebody asks for them. Sampling under the Poisson link and
    :meth:`edge_rate` never do so on the CPU; elsewhere memberships are made dense.

    Args:
        query: Clusters and memberships of queries, as :func:`few_memberships` returns them.
        blocks: ``(heads, g, k/g, k/g)``.
        key: The same of keys.
        query_mask: bool ``(batch, n_queries)``; None = all real.
        key_mask: bool ``(batch, n_keys)``; None = all real.
        link: How a rate becomes a probability.
    """

    def __init__(
        self,
        query: tuple[Tensor, Tensor],
        blocks: Tensor,
        key: tuple[Tensor, Tensor],
        query_mask: Tensor | None,
        key_mask: Tensor | None,
        link: Link,
    ) -> None:
        self.link, self.query_mask, self.key_mask = link, query_mask, key_mask
        self.query_cluster, self.key_cluster = query[0], key[0]
        self._query = in_range("query_membership", zero_padding(query[1], query_mask), 1.0)
        self._key = in_range("key_membership", zero_padding(key[1], key_mask), 1.0)
        self.blocks = in_range("block_matrix", blocks, link.largest_entry)
        self._rates = None

    @property
    def query_membership(self) -> Float[Tensor, "batch heads n_queries k"]:
        """Memberships in all clusters, most of them 0; computed anew each time."""
        return self._scattered(self.query_cluster, self._query)

    @property
    def key_membership(self) -> Float[Tensor, "batch heads n_keys k"]:
        """Likewise."""
        return self._scattered(self.key_cluster, self._key)

    def sizes(self) -> tuple[Float[Tensor, "batch heads k"], Float[Tensor, "batch heads k"]]:
        """As for any block model, in O(n)."""
        query = self._scattered(self.query_cluster.flatten(2), self._query.flatten(2))
        return query, self._scattered(self.key_cluster.flatten(2), self._key.flatten(2))

    def edge_rate(self, edges: EdgeList) -> Float[Tensor, " n_edges"]:
        """As for any block model, in O(n k + edges)."""
        self.check_edges(edges)
        if not can_run_on(self.blocks.device):
            return super().edge_rate(edges)
        tokens = self.flattened()
        needs_columns = torch.is_grad_enabled() and any(t.requires_grad for t in tokens)
        by_key = edges.by_key if needs_columns else (edges.keys[:0],) * 3
        rate: Tensor = kernels.few_cluster_rates(*tokens, edges.row_ptr, edges.keys, *by_key, *edges.shape[2:])
        return rate

    def flattened(self) -> FewClusters:
        """The tokens of all examples and heads, one after the other."""
        query, key = (self.query_cluster, self._query), (self.key_cluster, self._key)
        clusters, weights = ([t.flatten(0, 2).contiguous() for t in pair] for pair in zip(query, key, strict=True))
        return FewClusters(clusters[0], weights[0], self.blocks.contiguous(), clusters[1], weights[1])

    def _scattered(self, cluster: Tensor, weight: Tensor) -> Tensor:
        return weight.new_zeros(*weight.shape[:-1], self.n_clusters).scatter_add(-1, cluster, weight)

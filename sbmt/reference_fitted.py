"""Attention that fits its block model by likelihood, in plain PyTorch: the preset ``fitted``, which is ours."""

import torch
from torch import Tensor, nn


class FittedAttention(nn.Module):
    """Attends along a sparse mask, makes up for the pairs left out, and learns to draw the pairs that matter."""

    def __init__(
        self,
        d_head: int,
        n_heads: int,
        n_clusters: int,
        n_groups: int = 4,
        edges_per_query: float = 16.0,
        shared_graph: bool = False,
    ):
        super().__init__()
        self.n_partitions, self.n_active, self.edges_per_query, self.extra_keys = 2 * n_groups, 2, edges_per_query, 3.0
        self.shared_graph, width = shared_graph, n_heads * d_head if shared_graph else d_head
        n_graphs = 1 if shared_graph else n_heads  # one for all heads, which broadcasts
        self.node_mlp = nn.Sequential(nn.Linear(width, d_head))  # one layer is enough here
        n_parts = self.n_partitions * round((n_clusters / n_groups) ** 0.5)  # of all partitions; a pair is a cluster
        self.clusters = nn.Parameter(torch.randn(n_graphs, n_parts, d_head) / d_head**0.5)
        self.log_rate, self.sink = nn.Parameter(torch.zeros(n_graphs)), nn.Parameter(torch.zeros(n_heads))
        self.log_start: Tensor  # ln min(1, c/n), so that training starts with about c edges per query
        self.register_buffer("log_start", torch.tensor(0.0))

    def membership(self, tokens: Tensor) -> Tensor:
        """Divides each token among two parts of every partition; the gradient of the task stops here."""
        tokens = tokens.transpose(1, 2).flatten(2)[:, None] if self.shared_graph else tokens  # heads side by side
        logits = (self.node_mlp(tokens.detach()) @ self.clusters.mT).unflatten(-1, (self.n_partitions, -1))
        least = logits.topk(min(self.n_active, logits.shape[-1])).values[..., -1:]
        return logits.masked_fill(logits < least, -torch.inf).softmax(-1).transpose(2, 3)  # batch heads partitions n s

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values and the auxiliary loss, which training adds to the task's; draws a mask where none is given."""
        # A pair's rate r = γ/4 Σ Π Q̂ S K̂ᵀ multiplies two partitions' and sums over groups. p = 1 - exp(-r - ε/n).
        centres = self.clusters.unflatten(1, (self.n_partitions, -1))  # heads partitions s d
        affinity = (centres @ centres.mT + (self.log_rate + self.log_start)[:, None, None, None] / 2).exp() / 2
        by_partition = self.membership(query) @ affinity @ self.membership(key).mT  # batch heads partitions n n
        rate = (by_partition[:, :, 0::2] * by_partition[:, :, 1::2]).sum(2)
        extra = self.extra_keys / key.shape[2] if self.training else 0.0
        p, is_loop = (1 - torch.exp(-rate - extra)).detach(), torch.eye(key.shape[2], dtype=torch.bool)
        mask = is_loop | (torch.rand_like(p) < p if mask is None else mask)
        # A drawn edge stands for 1/p pairs, so its score rises by -ln p; a loop is certain. The sink has no value.
        scores = query @ key.mT / query.shape[-1] ** 0.5 - p.clamp(min=0.05).log().masked_fill(is_loop, 0.0)
        sink = self.sink[:, None, None].expand(*scores.shape[:3], 1)
        weights = torch.cat([scores.masked_fill(~mask, -torch.inf), sink], -1).softmax(-1)[..., :-1]
        # Poisson likelihood of c · weight edges per pair: all keys count in Σ r, but in the rest only those drawn.
        gain = self.edges_per_query * weights.detach() * (rate + extra).clamp(min=1e-30).log()
        return weights @ value, (rate.sum(-1) - gain.masked_fill(is_loop, 0.0).sum(-1)).mean()

"""Attention that fits its block model by likelihood, in plain PyTorch: the preset ``fitted``, which is ours."""

import torch
from torch import Tensor, nn


class FittedAttention(nn.Module):
    """Attends along a sparse mask, makes up for the pairs left out, and learns to draw the pairs that matter."""

    def __init__(self, d_head: int, n_heads: int, n_clusters: int, n_groups: int = 4, edges_per_query: float = 16.0):
        super().__init__()
        self.n_groups, self.n_active, self.edges_per_query, self.extra_keys = n_groups, 4, edges_per_query, 8.0
        self.node_mlp = nn.Sequential(nn.Linear(d_head, d_head), nn.ReLU(), nn.Linear(d_head, d_head))
        self.clusters = nn.Parameter(torch.randn(n_heads, n_clusters, d_head) * (2 / d_head) ** 0.5)
        self.log_rate, self.sink = nn.Parameter(torch.zeros(n_heads)), nn.Parameter(torch.zeros(n_heads))
        self.log_start: Tensor  # ln min(1, c/n), so that training starts with about c edges per query
        self.register_buffer("log_start", torch.tensor(0.0))

    def membership(self, tokens: Tensor) -> Tensor:
        """Divides each token among a few clusters of every group; the gradient of the task stops here."""
        logits = (self.node_mlp(tokens.detach()) @ self.clusters.mT).unflatten(-1, (self.n_groups, -1))
        least = logits.topk(min(self.n_active, logits.shape[-1])).values[..., -1:]
        return logits.masked_fill(logits < least, -torch.inf).softmax(-1).flatten(-2)  # batch heads n k

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values and the auxiliary loss, which training adds to the task's; draws a mask where none is given."""
        # The rate of a pair, r = γ Q̂ B K̂ᵀ, of which p = 1 - exp(-r - ε/n). Clusters of different groups never meet.
        group = torch.arange(self.clusters.shape[1]) * self.n_groups // self.clusters.shape[1]
        affinity = (self.clusters @ self.clusters.mT + (self.log_rate + self.log_start)[:, None, None]).exp() / 4
        rate = self.membership(query) @ (affinity * (group[:, None] == group)) @ self.membership(key).mT
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

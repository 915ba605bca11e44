"""The preset ``fitted`` in plain PyTorch: attention whose block model is fitted by likelihood (not in the paper)."""

import torch
from torch import Tensor, nn


def with_unit_gradient(x: Tensor) -> Tensor:
    """Returns the tensor unchanged but scales its gradient to norm 1 per head, since it is huge in rare steps."""

    def scale(gradient: Tensor) -> Tensor:
        length = gradient.reshape(len(gradient), -1).norm(dim=1).clamp(min=torch.finfo(gradient.dtype).tiny)
        return gradient / length.view(-1, *(1,) * (gradient.dim() - 1))

    x = x.view_as(x)
    if x.requires_grad:
        x.register_hook(scale)
    return x


class FittedAttention(nn.Module):
    """Attends along a sparse mask, reweights edges to make up for missing pairs, and learns which pairs to draw."""

    def __init__(
        self,
        d_head: int,
        n_heads: int,
        n_clusters: int,
        n_groups: int = 4,
        edges_per_query: float = 16.0,
        causal: bool = False,
    ):
        super().__init__()
        self.causal = causal  # whether tokens attend only to themselves and earlier tokens
        self.n_partitions, self.edges_per_query, self.extra_keys = 2 * n_groups, edges_per_query, 8.0
        self.node_mlp = nn.Sequential(nn.Linear(d_head, d_head))  # one layer is enough here
        n_parts = self.n_partitions * round((n_clusters / n_groups) ** 0.5)  # in all partitions; each cluster is a pair
        self.clusters = nn.Parameter(torch.randn(n_heads, n_parts, d_head) * (2 / d_head) ** 0.5)
        self.log_rate, self.sink = nn.Parameter(-torch.ones(n_heads)), nn.Parameter(torch.zeros(n_heads))
        self.log_start: Tensor  # ln min(1, c/n), with which training starts at about c edges per query
        self.register_buffer("log_start", torch.tensor(0.0))

    def membership(self, tokens: Tensor, clusters: Tensor) -> Tensor:
        """Divides each token between two parts of every partition; gradients of the task stop here."""
        nodes = with_unit_gradient(self.node_mlp(tokens.detach()).transpose(0, 1)).transpose(0, 1)
        logits = (nodes @ clusters.mT).unflatten(-1, (self.n_partitions, -1))
        least = logits.topk(min(2, logits.shape[-1])).values[..., -1:]
        return logits.masked_fill(logits < least, -torch.inf).softmax(-1).transpose(2, 3)  # batch heads partitions n s

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Returns values and an auxiliary loss, to be added to the task's; draws a mask unless one is passed."""
        # The rate r = γ/4 Σ Π Q̂ S K̂ᵀ is a product over two partitions, summed over groups. p = 1 - exp(-r - ε/n).
        clusters, log_rate = with_unit_gradient(self.clusters), with_unit_gradient(self.log_rate) + self.log_start
        centres = clusters.unflatten(1, (self.n_partitions, -1))  # heads partitions s d
        affinity = (centres @ centres.mT + log_rate[:, None, None, None] / 2).clamp(max=5.0).exp() / 2
        queries, keys = self.membership(query, clusters), self.membership(key, clusters)
        rate = (queries @ affinity @ keys.mT).unflatten(2, (-1, 2)).prod(3).sum(2)  # over groups; batch heads n n
        is_pair = torch.ones(rate.shape[2:], dtype=torch.bool)
        is_pair = is_pair.tril() if self.causal else is_pair
        extra = min(self.extra_keys * len(is_pair) / is_pair.sum().item(), 0.5) if self.training else 0.0
        rate, is_loop = rate * is_pair, torch.eye(key.shape[2], dtype=torch.bool)
        p = (1 - torch.exp(-rate - extra)).detach() * is_pair
        mask = is_loop | (torch.rand_like(p) < p if mask is None else mask)
        # A drawn edge stands for 1/p pairs, so its score increases by -ln p; a loop is certain. The sink has no value.
        scores = query @ key.mT / query.shape[-1] ** 0.5 - p.clamp(min=0.05).log().masked_fill(is_loop, 0.0)
        sink = self.sink[:, None, None].expand(*scores.shape[:3], 1)
        weights = torch.cat([scores.masked_fill(~mask, -torch.inf), sink], -1).softmax(-1)[..., :-1]
        # Poisson likelihood of c · weight edges per pair: Σ r runs over all keys, the other sum over drawn keys.
        gain = self.edges_per_query * weights.detach() * (rate + extra).clamp(min=1e-30).log()
        return weights @ value, (rate.sum(-1) - gain.masked_fill(is_loop, 0.0).sum(-1)).mean()

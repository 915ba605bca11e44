"""SBM-Transformer from tokens to logits: the whole model in plain PyTorch, to be read from top to bottom.

Masks are dense here, so the cost grows with n². The library computes the same numbers, but only along sampled edges;
``tests/test_reference.py`` compares the two. The weights of :class:`sbmt.TokenTagger` load unchanged; dropout is
omitted. Sections and equations are those of "Transformers meet Stochastic Block Models" (Cho et al., 2022).
"""

from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn


def block_matrix(clusters: Tensor) -> Tensor:
    """Equation 5: S = softmax(C Cᵀ) over all k² entries at once, so the block matrix of each head sums to 1."""
    scores = clusters @ clusters.mT  # heads k k
    return scores.flatten(1).softmax(-1).view_as(scores)


def membership(node: Tensor, clusters: Tensor) -> Tensor:
    """Equations 6 and 7: the degree from 0 to 1 to which each token belongs to each cluster."""
    return torch.sigmoid(node @ clusters.mT)  # batch heads n k


def sample_mask(probability: Tensor, exploration: float = 0.0, generator: Generator | None = None) -> Tensor:
    """Equation 8: one coin flip per pair. In training, exploration δ keeps every edge possible (section 4.2)."""
    return torch.rand(probability.shape, generator=generator).to(probability) < probability + exploration


def straight_through_gate(probability: Tensor) -> Tensor:
    """Equation 9: 1 + (p − sg(p)), whose value is exactly 1 and whose derivative with respect to p is 1."""
    return 1 + (probability - probability.detach())


def masked_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, gate: Tensor) -> Tensor:
    """Equations 3 and 4: a softmax over the keys to which a query has edges; a query without edges gets zeros."""
    scores = gate * (query @ key.mT) / query.shape[-1] ** 0.5  # A: batch heads n n
    has_edge = mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~mask & has_edge, -torch.inf).softmax(-1)  # rows without edges stay finite
    return weights.masked_fill(~has_edge, 0.0) @ value  # and contribute nothing


class Attended(NamedTuple):
    """The output of a layer: its values and the mask that it used."""

    values: Tensor  # batch n d_model; within the attention layer, batch heads n d_head
    mask: Tensor  # batch heads n n, bool: True where query i reads key j
    probability: Tensor  # batch heads n n: the edge probabilities, without exploration
    density: Tensor  # batch heads: the share of pairs of real tokens that are edges


class SBMAttention(nn.Module):
    """Section 4: each head infers a block model from its queries and keys, draws a mask, and attends along it."""

    def __init__(self, d_head: int, n_heads: int, n_clusters: int, exploration: float = 0.01, self_loops: bool = False):
        super().__init__()
        self.exploration, self.self_loops = exploration, self_loops
        self.node_mlp = nn.Sequential(nn.Linear(d_head, d_head), nn.ReLU(), nn.Linear(d_head, d_head))
        self.clusters = nn.Parameter(nn.init.kaiming_normal_(torch.empty(n_heads, n_clusters, d_head)))

    def edge_probability(self, query: Tensor, key: Tensor) -> Tensor:
        """Section 4.1: p = Q̂ S K̂ᵀ, at most 1 because S sums to 1. One MLP serves queries, keys and all heads."""
        query_membership = membership(self.node_mlp(query), self.clusters)
        key_membership = membership(self.node_mlp(key), self.clusters)
        return query_membership @ block_matrix(self.clusters) @ key_membership.mT  # batch heads n n

    def forward(
        self, heads: list[Tensor], is_pair: Tensor, mask: Tensor | None = None, generator: Generator | None = None
    ) -> Attended:
        """Attends along ``mask``, or draws a mask if it is None."""
        query, key, value = heads  # batch heads n d_head
        probability = self.edge_probability(query, key) * is_pair
        is_loop = torch.eye(query.shape[2], dtype=torch.bool, device=query.device) & is_pair & self.self_loops
        if mask is None:
            drawn = sample_mask(probability, self.exploration if self.training else 0.0, generator)
            mask = drawn & is_pair | is_loop
        gate = straight_through_gate(probability).masked_fill(is_loop, 1.0)  # self-loops do not depend on p
        density = (gate * mask).sum((2, 3)) / is_pair.sum((2, 3)).clamp(min=1)
        return Attended(masked_attention(query, key, value, mask, gate), mask, probability, density)


class MultiHeadAttention(nn.Module):
    """Equation 1: projects tokens to the queries, keys and values of all heads, attends, and projects back."""

    def __init__(self, d_model: int, n_heads: int, **settings: Any):
        super().__init__()
        self.n_heads = n_heads
        self.in_proj_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(3 * d_model, d_model)))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * d_model))
        self.out_proj = nn.Linear(d_model, d_model)
        self.attention = SBMAttention(d_model // n_heads, n_heads, **settings)

    def project(self, x: Tensor) -> list[Tensor]:
        """Returns query, key and value, each ``(batch, heads, n, d_head)``."""
        parts = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, -1)  # batch n d_model each
        return [part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in parts]

    def forward(self, x: Tensor, *masks: Any) -> Attended:
        """Takes ``(batch, n, d_model)`` and the masks of :class:`SBMAttention`."""
        attended = self.attention(self.project(x), *masks)
        return attended._replace(values=self.out_proj(attended.values.transpose(1, 2).flatten(2)))


class EncoderBlock(nn.Module):
    """Section 5: x + attention(norm(x)), then x + MLP(norm(x)). An identity layer replaces dropout."""

    def __init__(self, d_model: int, d_hidden: int, **settings: Any):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = MultiHeadAttention(d_model, **settings)
        self.mlp = nn.Sequential(nn.Linear(d_model, d_hidden), nn.GELU(), nn.Identity(), nn.Linear(d_hidden, d_model))

    def forward(self, x: Tensor, *masks: Any) -> Attended:
        """Takes ``(batch, n, d_model)`` and the masks of :class:`SBMAttention`."""
        attended = self.attention(self.attention_norm(x), *masks)
        x = x + attended.values
        return attended._replace(values=x + self.mlp(self.mlp_norm(x)))


class TokenTagger(nn.Module):
    """Section 5.1: embeddings, blocks, a final norm, and logits for every token."""

    def __init__(self, n_labels: int, vocab_size: int, max_length: int, d_model: int, n_layers: int, **settings: Any):
        super().__init__()
        self.causal = settings.pop("causal", False)  # whether tokens attend only to themselves and earlier tokens
        blocks = nn.ModuleList(EncoderBlock(d_model, **settings) for _ in range(n_layers))
        self.encoder: Any = nn.ModuleDict({"blocks": blocks, "norm": nn.LayerNorm(d_model)})
        self.encoder["token_embedding"] = nn.Embedding(vocab_size, d_model)
        if max_length:  # 0 means no positions
            self.encoder["position_embedding"] = nn.Embedding(max_length, d_model)
        self.head = nn.Linear(d_model, n_labels)

    def forward(
        self, tokens: Tensor, is_real: Tensor | None = None, masks: Any = None, generator: Generator | None = None
    ) -> tuple[Tensor, list[Attended]]:
        """Maps ids ``(batch, n)`` to logits ``(batch, n, n_labels)``; also returns the output of each layer."""
        x, layers = self.encoder.token_embedding(tokens), []  # batch n d_model
        if "position_embedding" in self.encoder:
            x = x + self.encoder.position_embedding.weight[: tokens.shape[1]]
        real = torch.ones_like(tokens, dtype=torch.bool) if is_real is None else is_real
        is_pair = (real[:, :, None] & real[:, None, :])[:, None].tril(0 if self.causal else x.shape[1])  # batch 1 n n
        for i, block in enumerate(self.encoder.blocks):
            layers.append(block(x, is_pair, masks[i] if masks else None, generator))
            x = layers[-1].values
        return self.head(self.encoder.norm(x)), layers


def density_penalty(layers: list[Attended]) -> Tensor:
    """Section 5.2: L_s, the mean density over examples, heads and layers. Training adds λ · L_s to the task's loss."""
    return torch.stack([layer.density.mean() for layer in layers]).mean()

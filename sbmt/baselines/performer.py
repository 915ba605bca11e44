"""Performer: the softmax kernel estimated by positive orthogonal random features (FAVOR+)."""

from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.inputs import check_attention_inputs, check_dropout
from sbmt.baselines.all_pairs import all_pairs_output
from sbmt.baselines.linear import feature_attention
from sbmt.block_model.pair_products import full_precision
from sbmt.errors import SbmtError, check_sizes
from sbmt.graph.padding import check_mask, zero_padding
from sbmt.registration import option
from sbmt.types import AttentionOutput


def sample_orthogonal_features(
    n_features: int, d_head: int, *, generator: torch.Generator | None = None
) -> Float[Tensor, "n_features d_head"]:
    r"""Random vectors, each $\mathcal N(0, I)$, and orthogonal within each block of ``d_head`` rows.

    A block is an orthogonal matrix of the uniform (Haar) law; its rows get independent lengths of the chi law with
    ``d_head`` degrees of freedom, those of normal vectors. Blocks are independent; the last one is cut where
    ``n_features`` is no multiple of ``d_head``.

    Args:
        n_features: Number of vectors.
        d_head: Their width.
        generator: Where the numbers come from; None means PyTorch's global generator of the CPU.

    Returns:
        float64, on the generator's device.

    Cost: O(n_features · d_head²).
    """
    check_sizes(n_features=n_features, d_head=d_head)
    device = "cpu" if generator is None else generator.device
    shapes = (-(-n_features // d_head), d_head, d_head), (n_features, d_head)
    blocks, rows = (torch.randn(shape, generator=generator, dtype=torch.float64, device=device) for shape in shapes)
    directions, triangle = torch.linalg.qr(blocks)
    # QR alone prefers some directions: its law is uniform only once the triangle's diagonal is made positive.
    directions = directions * triangle.diagonal(dim1=1, dim2=2).sign()[:, None]
    return rows.norm(dim=1, keepdim=True) * directions.mT.flatten(0, 1)[:n_features]  # n_features d_head


def log_softmax_features(
    tokens: Float[Tensor, "*axes n d_head"], features: Float[Tensor, "n_features d_head"]
) -> Float[Tensor, "*axes n n_features"]:
    r"""$\log \phi(x)$ with $\phi_f(x) = \frac{1}{\sqrt m} \exp(w_f^\top y - \|y\|^2 / 2)$ and $y = x / d^{1/4}$.

    Where all $w_f \sim \mathcal N(0, I)$, orthogonal or not, $\phi(q)^\top \phi(k)$ has mean $e^{q^\top k / \sqrt d}$.
    """
    n_features, d_head = features.shape
    tokens = tokens * d_head**-0.25
    return tokens @ features.mT - tokens.square().sum(-1, keepdim=True) / 2 - log(n_features) / 2


@dataclass(frozen=True)
class PerformerOptions:
    """Options of :class:`PerformerAttention`."""

    n_features: int = option(256, "random features")

    def __post_init__(self) -> None:
        check_sizes(n_features=self.n_features)


class PerformerAttention(nn.Module):
    r"""Softmax attention over all real pairs, estimated with the features of :func:`log_softmax_features`.

    $$o_i = \frac{\sum_j \phi(q_i)^\top \phi(k_j)\, v_j}{\sum_j \phi(q_i)^\top \phi(k_j)}$$

    Numerator and denominator are unbiased, their quotient is not: its error falls as $1/\sqrt m$ in the number m of
    features and grows fast with the length of queries and keys. It is computed by
    :func:`~sbmt.baselines.linear.feature_attention`, in float32 at least: features stay logarithms until maxima over
    the real keys (per feature) and over the features (per query) are subtracted, which cancel. So nothing overflows,
    and where all features of a query miss those of all keys the least improbable ones decide instead of 0/0.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        n_features: m, the number of random features; the paper's comparison has 256.
        dropout: On the output values while training, in [0, 1), because attention weights are never formed. PyTorch
            draws it from its global generator.

    Attributes:
        features: Buffer ``(n_features, d_head)``, part of the state dict: one matrix for all heads and examples, drawn
            at construction from PyTorch's global generator of the CPU, and kept until :meth:`redraw_features`.

    Shapes:
        query ``(batch, heads, n_queries, d_head)``, key ``(batch, heads, n_keys, d_head)``, value
        ``(batch, heads, n_keys, d_value)`` → values ``(batch, heads, n_queries, d_value)``.

    Cost: O(n m d) time, O(n m + m d) memory per head.

    Source: Choromanski et al. (2021), "Rethinking Attention with Performers". Deviation: no epsilon is added to the
    features.

    Paper: section 5 compares with it.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> PerformerAttention(d_head=8, n_heads=2, n_features=16)(x, x, x).values.shape
        torch.Size([1, 2, 5, 8])
    """

    features: Tensor

    def __init__(self, d_head: int, n_heads: int, *, n_features: int = 256, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads, n_features=n_features)
        check_dropout(dropout)
        self.d_head, self.n_heads, self.n_features, self.dropout = d_head, n_heads, n_features, dropout
        self.register_buffer("features", torch.empty(n_features, d_head))
        self.redraw_features()

    def redraw_features(self, generator: torch.Generator | None = None) -> None:
        """Draws all features anew, in place; the forward pass never does.

        Args:
            generator: Where the numbers come from; None means PyTorch's global generator of the CPU.
        """
        self.features.copy_(sample_orthogonal_features(self.n_features, self.d_head, generator=generator))

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
        """Attends all real keys; see :class:`~sbmt.layers.SBMAttention` for arguments.

        Raises:
            SbmtError: On tensors or masks that do not fit together, or tokens of another width than ``d_head``.
        """
        check_attention_inputs(query, key, value)
        if query.shape[3] != self.d_head:
            do = "build the layer for this width"
            raise SbmtError(f"queries and keys of width {self.d_head}", tuple(query.shape), do)
        query_mask = check_mask("query_mask", query_mask, query.shape[0], query.shape[2], query.device)
        key_mask = check_mask("key_mask", key_mask, key.shape[0], key.shape[2], key.device)
        dtype = torch.promote_types(query.dtype, torch.float32)
        masks = (query_mask, key_mask, key_mask)
        queries, keys, reads = (
            zero_padding(tokens, mask).to(dtype) for tokens, mask in zip((query, key, value), masks, strict=True)
        )
        features = self.features.to(dtype)
        with full_precision(query):
            log_query, log_key = (log_softmax_features(tokens, features) for tokens in (queries, keys))
            values = feature_attention(log_query, log_key, reads, key_mask)
        values = nn.functional.dropout(values.to(value.dtype), self.dropout, self.training)
        return all_pairs_output(values, key.shape[2], query_mask, key_mask, return_edges)

    def extra_repr(self) -> str:
        """The settings in one line."""
        sizes = f"d_head={self.d_head}, n_heads={self.n_heads}, n_features={self.n_features}"
        return f"{sizes}, dropout={self.dropout}"

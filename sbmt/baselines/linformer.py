"""Linformer: softmax attention over a fixed number of learned mixtures of keys."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.inputs import check_attention_inputs, check_dropout
from sbmt.baselines.all_pairs import all_pairs_output
from sbmt.errors import SbmtError, check_sizes
from sbmt.graph.padding import check_mask, zero_padding
from sbmt.registration import option
from sbmt.types import AttentionOutput


@dataclass(frozen=True)
class LinformerOptions:
    """Options of :class:`LinformerAttention`."""

    n_projected: int = option(256, "learned mixtures of keys")

    def __post_init__(self) -> None:
        check_sizes(n_projected=self.n_projected)


class LinformerAttention(nn.Module):
    r"""$\operatorname{softmax}\big(Q (E K)^\top / \sqrt d\big)\, E V$ with a learned matrix $E$ over positions.

    Each head has one $E$ of shape ``(n_projected, n_positions)``, the same for keys and values. Padded keys and values
    are zeroed first, so they add nothing to any mixture; an input of n < ``n_positions`` keys uses the first n columns.
    All mixtures compete in the softmax, however few keys are real: unlike in full attention, a query may give weight
    to a mixture that holds little or nothing.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        n_positions: Largest number of keys, padding included.
        n_projected: Number of mixtures, at least 1; the paper's comparison has 256.
        dropout: On the attention weights over mixtures while training, in [0, 1). PyTorch draws it from its global
            generator.

    Attributes:
        projection: E, ``(n_heads, n_projected, n_positions)``, at the start normal with standard deviation 0.02.

    Shapes:
        query ``(batch, n_heads, n_queries, d)``, key ``(batch, n_heads, n_keys, d)``, value
        ``(batch, n_heads, n_keys, d_value)`` → values ``(batch, n_heads, n_queries, d_value)``.

    Cost: O(n · n_projected · d) time, O(n · (n_projected + d)) memory per head, and n_projected · n_positions weights.

    Source: Wang, Li, Khabsa, Fang and Ma (2020), "Linformer: Self-Attention with Linear Complexity", with its
    key-value sharing.

    Paper: section 5 compares with it. Deviation: in the pipeline it uses all layers share the matrices too; here each
    layer has its own.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> LinformerAttention(d_head=8, n_heads=2, n_positions=6, n_projected=3)(x, x, x).values.shape
        torch.Size([1, 2, 5, 8])
    """

    def __init__(
        self, d_head: int, n_heads: int, *, n_positions: int, n_projected: int = 256, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads, n_positions=n_positions, n_projected=n_projected)
        check_dropout(dropout)
        self.d_head, self.n_heads, self.n_positions = d_head, n_heads, n_positions
        self.n_projected, self.dropout = n_projected, dropout
        self.projection = nn.Parameter(torch.empty(n_heads, n_projected, n_positions))
        nn.init.normal_(self.projection, std=0.02)

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
        """Attends mixtures of all real keys; see :class:`~sbmt.layers.SBMAttention` for arguments.

        Raises:
            SbmtError: On tensors or masks that do not fit together, another number of heads than ``n_heads``, or more
                keys than ``n_positions``.
        """
        check_attention_inputs(query, key, value)
        if query.shape[1] != self.n_heads:
            raise SbmtError(f"{self.n_heads} heads", tuple(query.shape), "build the layer for this number of heads")
        n_keys = key.shape[2]
        if n_keys > self.n_positions:
            raise SbmtError(f"at most {self.n_positions} keys", n_keys, "shorten the input or raise n_positions")
        query_mask = check_mask("query_mask", query_mask, query.shape[0], query.shape[2], query.device)
        key_mask = check_mask("key_mask", key_mask, key.shape[0], n_keys, key.device)
        dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
        projection = self.projection[:, :, :n_keys].to(dtype)  # heads n_projected n_keys
        values = nn.functional.scaled_dot_product_attention(
            zero_padding(query, query_mask).to(dtype),
            projection @ zero_padding(key, key_mask).to(dtype),
            projection @ zero_padding(value, key_mask).to(dtype),
            dropout_p=self.dropout if self.training else 0.0,
        ).to(value.dtype)
        return all_pairs_output(values, n_keys, query_mask, key_mask, return_edges)

    def extra_repr(self) -> str:
        """The settings in one line."""
        sizes = f"d_head={self.d_head}, n_heads={self.n_heads}, n_positions={self.n_positions}"
        return f"{sizes}, n_projected={self.n_projected}, dropout={self.dropout}"

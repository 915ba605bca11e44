"""Linformer: softmax attention over a fixed number of learned mixtures of keys."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from sbmt.baselines.all_pairs import AllPairsAttention, Masks
from sbmt.errors import SbmtError, check_sizes
from sbmt.registration import option


@dataclass(frozen=True)
class LinformerOptions:
    """Options of :class:`LinformerAttention`."""

    n_projected: int = option(256, "learned mixtures of keys")

    def __post_init__(self) -> None:
        check_sizes(n_projected=self.n_projected)


class LinformerAttention(AllPairsAttention):
    r"""$\operatorname{softmax}\big(Q (E K)^\top / \sqrt d\big)\, E V$ with a learned matrix $E$ over positions.

    Each head has one $E$ of shape ``(n_projected, n_positions)``, the same for keys and values. Padded keys and values
    are zeroed first, so they add nothing to any mixture; an input of n < ``n_positions`` keys uses the first n columns.
    All mixtures compete in the softmax, however few keys are real: unlike full attention, it may give weight to a
    mixture that holds little or nothing.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        n_positions: Largest number of keys, padding included.
        n_projected: Number of mixtures, at least 1; the paper's comparison has 256.
        dropout: On the attention weights over mixtures while training, in [0, 1). PyTorch draws it from its global
            generator.

    Attributes:
        projection: E, ``(n_heads, n_projected, n_positions)``, initially normal with standard deviation 0.02.

    Cost: O(n · n_projected · d) time, O(n · (n_projected + d)) memory per head, and n_projected · n_positions weights.

    Source: Wang, Li, Khabsa, Fang and Ma (2020), "Linformer: Self-Attention with Linear Complexity", with its
    key-value sharing.

    Paper: section 5 compares with it. Deviation: in the code used there all layers share the matrices too; here each
    layer has its own.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> LinformerAttention(d_head=8, n_heads=2, n_positions=6, n_projected=3)(x, x, x).values.shape
        torch.Size([1, 2, 5, 8])
    """

    settings = ("d_head", "n_heads", "n_positions", "n_projected", "dropout")

    def __init__(
        self, d_head: int, n_heads: int, *, n_positions: int, n_projected: int = 256, dropout: float = 0.0
    ) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        check_sizes(n_positions=n_positions, n_projected=n_projected)
        self.n_positions, self.n_projected = n_positions, n_projected
        self.projection = nn.Parameter(torch.empty(n_heads, n_projected, n_positions))
        nn.init.normal_(self.projection, std=0.02)

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raises SbmtError on another number of heads, or on more keys than positions."""
        if query.shape[1] != self.n_heads:
            raise SbmtError(f"{self.n_heads} heads", tuple(query.shape), "build the layer for this number of heads")
        if key.shape[2] > self.n_positions:
            do = "shorten the input or raise n_positions"
            raise SbmtError(f"at most {self.n_positions} keys", key.shape[2], do)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, masks: Masks, generator: Generator | None) -> Tensor:
        """The values; padded tokens come in as zeros."""
        dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
        projection = self.projection[:, :, : key.shape[2]].to(dtype)  # heads n_projected n_keys
        return nn.functional.scaled_dot_product_attention(
            query.to(dtype),
            projection @ key.to(dtype),
            projection @ value.to(dtype),
            dropout_p=self.dropout if self.training else 0.0,
        )

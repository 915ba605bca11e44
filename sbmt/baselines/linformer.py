"""Linformer: softmax attention over a fixed number of learned mixtures of keys."""

import torch
from torch import Tensor, nn

from sbmt.baselines.base import Baseline, Inputs
from sbmt.errors import SbmtError, check_sizes


class LinformerAttention(Baseline):
    r"""Attention $\operatorname{softmax}(Q (E K)^\top / \sqrt d)\, E V$ with a learned matrix $E$ over positions.

    Each head has one $E$ for both keys and values; if there are fewer than ``n_positions`` keys, only its first columns
    are used. Padded keys and values are zero. All mixtures take part in the softmax, however few keys are real.

    Args:
        n_positions: Largest number of keys, padding included.
        n_projected: Number of learned mixtures of keys, at least 1; the paper uses 256. The entries of $E$ are
            initially normal with standard deviation 0.02.
        dropout: Dropout of the attention weights over mixtures, which draws from PyTorch's global generator.

    Cost: O(n · n_projected · d) time, O(n · (n_projected + d)) memory per head, and n_projected · n_positions weights.
    Source: Wang, Li, Khabsa, Fang and Ma (2020), "Linformer: Self-Attention with Linear Complexity", with its
    key-value sharing; a baseline in the paper's section 5. The paper's code also shares the matrices among layers.
    """

    is_precise = False

    def __init__(
        self, d_head: int, n_heads: int, *, n_positions: int, n_projected: int = 256, dropout: float = 0.0
    ) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        check_sizes(n_positions=n_positions, n_projected=n_projected)
        self.n_positions, self.n_projected = n_positions, n_projected
        self.projection = nn.Parameter(torch.empty(n_heads, n_projected, n_positions))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws a new projection."""
        nn.init.normal_(self.projection, std=0.02)

    def attend(self, inputs: Inputs) -> Tensor:
        """Computes the values; raises SbmtError for a different number of heads or more keys than positions."""
        query, key, value, _, _, dropout, *_ = inputs
        if query.shape[1] != self.n_heads:
            raise SbmtError(f"queries must have {self.n_heads} heads, got shape {tuple(query.shape)}")
        if key.shape[2] > self.n_positions:
            raise SbmtError(f"the number of keys must be at most n_positions = {self.n_positions}, got {key.shape[2]}")
        projection = self.projection[:, :, : key.shape[2]].to(key.dtype)  # heads n_projected n_keys
        mixed_keys, mixed_values = projection @ key, projection @ value
        return nn.functional.scaled_dot_product_attention(query, mixed_keys, mixed_values, dropout_p=dropout)

"""The control for input-dependent masks: a block model of the positions alone."""

from typing import Any

import torch
from torch import Tensor, nn

from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError, check_sizes
from sbmt.layers.sbm import SBMAttention


class StaticSBMAttention(SBMAttention):
    r"""SBM attention whose memberships depend on the position and never on the input.

    With learned tables $P^Q, P^K \in \mathbb{R}^{n \times d}$ per head in place of the queries and keys,

    $$\hat Q = \sigma(\operatorname{MLP}(P^Q)\, C^\top), \quad \hat K = \sigma(\operatorname{MLP}(P^K)\, C^\top), \quad
    M_{ij} \sim \operatorname{Bernoulli}(\hat Q_i S \hat K_j^\top).$$

    Masks are still drawn anew for every call, example and head, and trained through the same gate; scores and values
    are those of the real queries, keys and values. What it lacks against :class:`~sbmt.layers.SBMAttention` is what
    masks gain from looking at the input.

    Args:
        n_positions: Longest sequence of queries or keys.
        **settings: These and other arguments are those of :class:`~sbmt.layers.SBMAttention`.

    Positions count from the first token of the padded sequence. At the start every edge probability is close to ¼: the
    tables are standard normal, as if they were normalised queries and keys.

    Cost: that of :class:`~sbmt.layers.SBMAttention`, with the memberships computed once for the batch, and
    2 · heads · n_positions · d_head parameters more. Not in the paper.
    """

    def __init__(self, d_head: int, n_heads: int, n_clusters: int = 128, *, n_positions: int, **settings: Any) -> None:
        super().__init__(d_head, n_heads, n_clusters, **settings)
        check_sizes(n_positions=n_positions)
        self.n_positions = n_positions
        self.query_positions = nn.Parameter(torch.randn(n_heads, n_positions, d_head))
        self.key_positions = nn.Parameter(torch.randn(n_heads, n_positions, d_head))

    def reset_parameters(self) -> None:
        """Draws all parameters anew, as the constructor does."""
        super().reset_parameters()
        for table in (getattr(self, name, None) for name in ("query_positions", "key_positions")):
            if table is not None:  # the constructor makes them after the others
                nn.init.normal_(table)

    def block_model(
        self, query: Tensor, key: Tensor, query_mask: Tensor | None = None, key_mask: Tensor | None = None
    ) -> BlockModel:
        """The block model of this many positions, for each example; only the shapes of the tensors matter."""
        self._check_tokens(query, key)
        longest = max(query.shape[2], key.shape[2])
        if longest > self.n_positions:
            raise SbmtError(f"at most {self.n_positions} tokens", longest, "build the layer with a larger n_positions")
        queries, keys = self.query_positions[None, :, : query.shape[2]], self.key_positions[None, :, : key.shape[2]]
        once = self._infer(queries, keys, None, None)
        queries = once.query_membership.expand(len(query), -1, -1, -1)
        return BlockModel(queries, once.block_matrix, once.key_membership, query_mask, key_mask, self.link, self.causal)

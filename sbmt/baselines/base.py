"""What attentions that leave no pair out have in common."""

from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from sbmt.attention.inputs import check_attention_inputs, check_dropout
from sbmt.errors import check_sizes
from sbmt.graph.padding import check_mask, count_pairs, zero_padding
from sbmt.graph.patterns import all_pairs
from sbmt.types import AttentionOutput

Masks = tuple[Tensor | None, Tensor | None]
"""``query_mask`` and ``key_mask``: bool ``(batch, n)``, True = real token, None = all real."""


class AllPairsAttention(nn.Module):
    """An attention in which every real query reads every real key, exactly or approximately.

    Padded queries, and all queries of an example without keys, get zeros. The density is 1, or 0 without real pairs. A
    subclass implements :meth:`attend`.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        dropout: See the subclass.
    """

    settings: tuple[str, ...] = ("d_head", "n_heads", "dropout")
    """The attributes that ``repr`` shows."""

    def __init__(self, d_head: int, n_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads)
        check_dropout(dropout)
        self.d_head, self.n_heads, self.dropout = d_head, n_heads, dropout

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raises SbmtError if the layer was built for other sizes; by default any size will do."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, masks: Masks, generator: Generator | None) -> Tensor:
        """Weighted sums of the values, in any floating-point type, with finite weights even in an example without keys.

        Padded tokens come in as zeros. What is returned for padded queries is ignored.
        """
        raise NotImplementedError

    def forward(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        value: Float[Tensor, "batch heads n_keys d_value"],
        *,
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
        generator: Generator | None = None,
        return_edges: bool = False,
    ) -> AttentionOutput:
        """Attends to all real keys; see :class:`~sbmt.layers.SBMAttention` for arguments.

        ``return_edges=True`` lists all real pairs, which takes O(n²) memory.

        Raises:
            SbmtError: If tensors or masks do not fit together, or do not fit the layer.
        """
        check_attention_inputs(query, key, value)
        self.check(query, key)
        shape = batch, heads, n_queries, n_keys = (*query.shape[:3], key.shape[2])
        query_mask = check_mask("query_mask", query_mask, batch, n_queries, query.device)
        key_mask = check_mask("key_mask", key_mask, batch, n_keys, key.device)
        masks = query_mask, key_mask
        inputs = zero_padding(query, query_mask), zero_padding(key, key_mask), zero_padding(value, key_mask)
        values = self.attend(*inputs, masks, generator).to(value.dtype)
        has_pairs = count_pairs(shape, query_mask, key_mask, values.device) > 0
        density = has_pairs[:, None].expand(batch, heads).to(values.dtype)
        edges = all_pairs(shape, *masks, device=values.device) if return_edges else None
        return AttentionOutput(zero_padding(values, query_mask), density, density, edges)

    def extra_repr(self) -> str:
        """The settings in one line."""
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.settings)


def keys_to_read(key_mask: Bool[Tensor, "batch n_keys"]) -> Bool[Tensor, "batch n_keys"]:
    """The real keys, or all keys of an example that has none: its softmax stays finite, and is then set to zero."""
    return key_mask | ~key_mask.any(-1, keepdim=True)

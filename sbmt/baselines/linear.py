"""Linear attention: a kernel whose features are few, so that all pairs are read without visiting any."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sbmt.attention.inputs import check_attention_inputs, check_dropout
from sbmt.baselines.all_pairs import all_pairs_output
from sbmt.block_model.pair_products import full_precision
from sbmt.errors import check_sizes
from sbmt.graph.padding import check_mask, zero_padding
from sbmt.types import AttentionOutput


def feature_attention(
    log_query: Float[Tensor, "batch heads n_queries n_features"],
    log_key: Float[Tensor, "batch heads n_keys n_features"],
    value: Float[Tensor, "batch heads n_keys d_value"],
    key_mask: Bool[Tensor, "batch n_keys"] | None = None,
) -> Float[Tensor, "batch heads n_queries d_value"]:
    r"""Attention with the kernel $\phi(q)^\top \psi(k)$ of positive features, given by their logarithms.

    $$o_i = \frac{\sum_j \phi(q_i)^\top \psi(k_j)\, v_j}{\sum_j \phi(q_i)^\top \psi(k_j)}
          = \sum_f \operatorname{softmax}_f\Big(\log \phi_f(q_i) + \log \sum_j \psi_f(k_j)\Big)
            \sum_j \operatorname{softmax}_j\big(\log \psi_f(k_j)\big)\, v_j$$

    The right side is what is computed: each feature attends the keys, then each query attends the features. Both steps
    subtract maxima that cancel (over the real keys of a feature, over the features of a query), so no sum can vanish,
    also where queries and keys favour different features and every product $\phi_f \psi_f$ underflows. There is no
    epsilon, and every output is a mean of values with positive weights.

    Args:
        log_query: Any finite numbers; a constant added to all features of a query changes nothing.
        log_key: Any finite numbers.
        value: Finite numbers, also at padded keys.
        key_mask: bool ``(batch, n_keys)``, True = real token. An example without keys gets finite values without
            meaning.

    Cost: O(n · n_features · d_value) time, O(n · (n_features + d_value)) memory.
    """
    if key_mask is not None:
        is_read = key_mask[:, None, :, None]
        is_read = is_read | ~is_read.any(2, keepdim=True)  # an example without keys stays finite
        log_key = log_key.masked_fill(~is_read, -torch.inf)
    read_by_feature = log_key.softmax(2).mT @ value  # batch heads n_features d_value
    return (log_query + log_key.logsumexp(2, keepdim=True)).softmax(3) @ read_by_feature


def log_elu_features(tokens: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
    r"""$\log \phi(x)$ with $\phi(x) = \operatorname{elu}(x) + 1$, which is $1 + x$ above 0 and $e^x$ below.

    Written out, it keeps what ``log(elu(x) + 1)`` loses to cancellation from $x \approx -17$ (float32) on.
    """
    return torch.where(tokens > 0, tokens.relu().log1p(), tokens)


class LinearAttention(nn.Module):
    r"""Attention over all real pairs with the kernel of the features $\phi(x) = \operatorname{elu}(x) + 1$.

    $$o_i = \frac{\sum_j \phi(q_i)^\top \phi(k_j)\, v_j}{\sum_j \phi(q_i)^\top \phi(k_j)}$$

    It is computed by :func:`feature_attention`, in float32 at least. It has nothing to learn, and no $1/\sqrt d$: the
    kernel is not the softmax's.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        dropout: On the output values while training, in [0, 1), because attention weights are never formed. PyTorch
            draws it from its global generator.

    Shapes:
        query ``(batch, heads, n_queries, d)``, key ``(batch, heads, n_keys, d)``, value
        ``(batch, heads, n_keys, d_value)`` → values ``(batch, heads, n_queries, d_value)``.

    Cost: O(n d²) time, O(n d + d²) memory per head.

    Source: Katharopoulos, Vyas, Pappas and Fleuret (2020), "Transformers are RNNs: Fast Autoregressive Transformers
    with Linear Attention".

    Paper: section 5 compares with it. Deviation: the pipeline it uses leaves out the denominator and divides by √n,
    where n is the padded length.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> LinearAttention(d_head=8, n_heads=2)(x, x, x).values.shape
        torch.Size([1, 2, 5, 8])
    """

    def __init__(self, d_head: int, n_heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads)
        check_dropout(dropout)
        self.d_head, self.n_heads, self.dropout = d_head, n_heads, dropout

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
            SbmtError: On tensors or masks that do not fit together.
        """
        check_attention_inputs(query, key, value)
        query_mask = check_mask("query_mask", query_mask, query.shape[0], query.shape[2], query.device)
        key_mask = check_mask("key_mask", key_mask, key.shape[0], key.shape[2], key.device)
        dtype = torch.promote_types(query.dtype, torch.float32)
        masks = (query_mask, key_mask, key_mask)
        queries, keys, reads = (
            zero_padding(tokens, mask).to(dtype) for tokens, mask in zip((query, key, value), masks, strict=True)
        )
        with full_precision(query):
            values = feature_attention(log_elu_features(queries), log_elu_features(keys), reads, key_mask)
        values = nn.functional.dropout(values.to(value.dtype), self.dropout, self.training)
        return all_pairs_output(values, key.shape[2], query_mask, key_mask, return_edges)

    def extra_repr(self) -> str:
        """The settings in one line."""
        return f"d_head={self.d_head}, n_heads={self.n_heads}, dropout={self.dropout}"

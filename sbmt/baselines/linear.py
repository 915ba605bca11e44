"""Linear attention: the features of its kernel are few, so all pairs are read without visiting any."""

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from sbmt.baselines.all_pairs import AllPairsAttention, Masks, keys_to_read
from sbmt.precision import full_precision


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

    The right-hand side is what is computed: each feature attends to the keys, then each query attends to the features.
    Both softmaxes subtract maxima that cancel, so the result needs no epsilon and is a weighted mean of the values even
    where every product $\phi_f \psi_f$ underflows.

    Args:
        log_query: Any finite numbers; a constant added to all features of a query changes nothing.
        log_key: Any finite numbers.
        value: Finite numbers, at padded keys too.
        key_mask: bool ``(batch, n_keys)``, True = real token. The values of an example without keys are meaningless.

    Cost: O(n · n_features · d_value) time, O(n · (n_features + d_value)) memory.
    """
    if key_mask is not None:
        log_key = log_key.masked_fill(~keys_to_read(key_mask)[:, None, :, None], -torch.inf)
    read_by_feature = log_key.softmax(2).mT @ value  # batch heads n_features d_value
    return (log_query + log_key.logsumexp(2, keepdim=True)).softmax(3) @ read_by_feature


def log_elu_features(tokens: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes d"]:
    r"""$\log \phi(x)$ with $\phi(x) = \operatorname{elu}(x) + 1$, which is $1 + x$ above 0 and $e^x$ below.

    In float32 ``log(elu(x) + 1)`` would lose everything to cancellation below $x \approx -17$.
    """
    return torch.where(tokens > 0, tokens.relu().log1p(), tokens)


class LinearAttention(AllPairsAttention):
    r"""Attention over all real pairs with the kernel of the features $\phi(x) = \operatorname{elu}(x) + 1$.

    $$o_i = \frac{\sum_j \phi(q_i)^\top \phi(k_j)\, v_j}{\sum_j \phi(q_i)^\top \phi(k_j)}$$

    It is computed by :func:`feature_attention`, in float32 at least. There is nothing to learn, and no $1/\sqrt d$,
    since the kernel is not the softmax's.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        dropout: On the output values while training, in [0, 1), because attention weights are never formed. PyTorch
            draws it from its global generator.

    Cost: O(n d²) time, O(n d + d²) memory per head.

    Source: Katharopoulos, Vyas, Pappas and Fleuret (2020), "Transformers are RNNs: Fast Autoregressive Transformers
    with Linear Attention".

    Paper: section 5 compares with it. Deviation: the code used there omits the denominator and divides by √n, where n
    is the padded length.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> LinearAttention(d_head=8, n_heads=2)(x, x, x).values.shape
        torch.Size([1, 2, 5, 8])
    """

    def log_features(self, tokens: Tensor) -> Tensor:
        """The logarithms of the features of queries or keys."""
        return log_elu_features(tokens)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, masks: Masks, generator: Generator | None) -> Tensor:
        """The values; padded tokens come in as zeros."""
        dtype = torch.promote_types(query.dtype, torch.float32)
        with full_precision(query):
            log_query, log_key = (self.log_features(tokens.to(dtype)) for tokens in (query, key))
            values = feature_attention(log_query, log_key, value.to(dtype), masks[1])
        return nn.functional.dropout(values.to(value.dtype), self.dropout, self.training)

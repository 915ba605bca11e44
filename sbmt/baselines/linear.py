"""Attention over all pairs in linear time, by kernel features: linear attention and Performer (FAVOR+)."""

from math import log

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from sbmt.baselines.base import Baseline, Inputs, keys_to_read
from sbmt.errors import SbmtError, check_sizes
from sbmt.graph.masks import zero_padding

CHUNK = 64  # tokens per chunk in sums over earlier keys


class LinearAttention(Baseline):
    r"""Attention over all real pairs with the kernel of the features $\phi(x) = \operatorname{elu}(x) + 1$.

    $$\begin{aligned}o_i &= \frac{\sum_j \phi(q_i)^\top \phi(k_j)\, v_j}{\sum_j \phi(q_i)^\top \phi(k_j)} \\
          &= \sum_f \operatorname{softmax}_f\Big(\log \phi_f(q_i) + \log \sum_j \phi_f(k_j)\Big)
            \sum_j \operatorname{softmax}_j\big(\log \phi_f(k_j)\big)\, v_j\end{aligned}$$

    The code computes the second line, in float32 or float64: each feature attends to the keys, then each query attends
    to the features. Both softmaxes subtract maxima that cancel, so no epsilon is needed where every product of features
    underflows. Nothing is learned, and there is no $1/\sqrt d$, since this kernel is not that of the softmax.

    Args:
        dropout: Dropout of the output values, as attention weights are never formed; uses torch's global generator.
        causal: If True, no query attends to a later key. Sums are then prefix sums, computed without logarithms.

    Cost: O(n d²) time, O(n d + d²) memory per head; if causal, O(n (d² + d CHUNK)) and O(n (d + d² / CHUNK)).
    Source: Katharopoulos, Vyas, Pappas and Fleuret (2020), "Transformers are RNNs: Fast Autoregressive Transformers
    with Linear Attention"; a baseline in the paper's section 5. Deviation: the code used there omits the denominator
    and divides by √n, where n is the padded length.
    """

    def log_features(self, tokens: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes n_features"]:
        r"""Returns $\log \phi(x)$: $\log (1 + x)$ above 0, and x below, where ``log(elu(x) + 1)`` could round to −∞."""
        return torch.where(tokens > 0, tokens.relu().log1p(), tokens)

    def attend(self, inputs: Inputs) -> Tensor:
        """Computes the values, in logarithms of the features unless attention is causal."""
        query, key, value, _, key_mask, dropout, *_ = inputs
        log_query, log_key = self.log_features(query), self.log_features(key)
        if self.causal:
            return nn.functional.dropout(_read_earlier(log_query.exp(), log_key.exp(), value, key_mask), dropout)
        if key_mask is not None:
            log_key = log_key.masked_fill(~keys_to_read(key_mask)[:, None, :, None], -torch.inf)
        read_by_feature = log_key.softmax(2).mT @ value  # batch heads n_features d_value
        values = (log_query + log_key.logsumexp(2, keepdim=True)).softmax(3) @ read_by_feature
        return nn.functional.dropout(values, dropout)


def _read_earlier(query: Tensor, key: Tensor, value: Tensor, key_mask: Tensor | None) -> Tensor:
    """Attends to keys that are not later: by prefix sums to earlier chunks, and pair by pair in the query's chunk."""
    key = zero_padding(key, key_mask)
    n_queries, n_keys = query.shape[2], key.shape[2]
    value = torch.cat([value, torch.ones_like(value[..., :1])], -1)  # the last column sums weights
    query = pad(query, (0, 0, n_keys - n_queries, 0))  # the queries are the last tokens
    chunks = (pad(x, (0, 0, 0, -n_keys % CHUNK)).unflatten(2, (-1, CHUNK)) for x in (query, key, value))
    query, key, value = chunks  # batch heads chunks CHUNK …
    earlier = pad((key.mT @ value).cumsum(2), (0, 0, 0, 0, 1, -1))  # batch heads chunks n_features d_value+1
    sums = (query @ earlier + (query @ key.mT).tril() @ value).flatten(2, 3)[:, :, n_keys - n_queries : n_keys]
    weight = sums[..., -1:]
    return torch.where(weight > 0, sums[..., :-1] / weight.clamp(min=torch.finfo(weight.dtype).tiny), 0.0)


def sample_orthogonal_features(n_features: int, d_head: int) -> Float[Tensor, "n_features d_head"]:
    r"""Draws random vectors, each $\mathcal N(0, I)$, that are orthogonal within each block of ``d_head`` rows.

    They are float64 and come from PyTorch's global CPU generator. A block is a Haar-distributed orthogonal matrix whose
    rows are scaled to the lengths of normal vectors. The last block may be incomplete. Cost: O(n_features · d_head²).
    """
    shapes = (-(-n_features // d_head), d_head, d_head), (n_features, d_head)
    blocks, rows = (torch.randn(shape, dtype=torch.float64, device="cpu") for shape in shapes)
    directions, triangle = torch.linalg.qr(blocks)
    # QR alone favours some directions; they are uniform if the triangle's diagonal is positive.
    directions = directions * triangle.diagonal(dim1=1, dim2=2).sign()[:, None]
    return rows.norm(dim=1, keepdim=True) * directions.mT.flatten(0, 1)[:n_features]  # n_features d_head


class PerformerAttention(LinearAttention):
    r"""Softmax attention over all real pairs, estimated with m random features of the exponential kernel.

    $$o_i = \frac{\sum_j \phi(q_i)^\top \phi(k_j)\, v_j}{\sum_j \phi(q_i)^\top \phi(k_j)}, \qquad
    \phi_f(x) = \frac{1}{\sqrt m} \exp(w_f^\top y - \|y\|^2 / 2) \text{ with } y = x / d^{1/4}.$$

    If all $w_f \sim \mathcal N(0, I)$, orthogonal or not, $\phi(q)^\top \phi(k)$ has mean $e^{q^\top k / \sqrt d}$.
    So numerator and denominator are unbiased, but their quotient is not. Its error falls as $1/\sqrt m$ and grows fast
    with the norms of queries and keys. The layer computes with logarithms of features, so nothing overflows.

    Args:
        n_features: Number m of random features, drawn at construction and shared by all heads; the paper uses 256.
        dropout: As in :class:`LinearAttention`.

    Cost: O(n m d) time, O(n m + m d) memory per head.
    Source: Choromanski et al. (2021), "Rethinking Attention with Performers"; a baseline in the paper's section 5.
    Deviations: features are never redrawn, and no epsilon is added to them.
    """

    features: Tensor

    def __init__(self, d_head: int, n_heads: int, *, n_features: int = 256, dropout: float = 0.0) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        check_sizes(n_features=n_features)
        self.n_features = n_features
        self.register_buffer("features", torch.empty(n_features, d_head))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws new features."""
        self.features.copy_(sample_orthogonal_features(self.n_features, self.d_head))

    def log_features(self, tokens: Float[Tensor, "*axes d"]) -> Float[Tensor, "*axes n_features"]:
        r"""Returns $\log \phi(x)$ for tokens of width ``d_head``; any other width raises SbmtError."""
        if tokens.shape[-1] != self.d_head:
            raise SbmtError(f"queries and keys must have width {self.d_head}, got shape {tuple(tokens.shape)}")
        features, tokens = self.features.to(tokens.dtype), tokens * self.d_head**-0.25
        return tokens @ features.mT - tokens.square().sum(-1, keepdim=True) / 2 - log(self.n_features) / 2

"""Performer: the softmax kernel estimated by positive orthogonal random features (FAVOR+)."""

from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Float
from torch import Tensor

from sbmt.baselines.linear import LinearAttention
from sbmt.errors import SbmtError, check_sizes
from sbmt.registration import option


def sample_orthogonal_features(
    n_features: int, d_head: int, *, generator: torch.Generator | None = None
) -> Float[Tensor, "n_features d_head"]:
    r"""Random vectors, each $\mathcal N(0, I)$, and orthogonal within each block of ``d_head`` rows.

    A block is a uniformly (Haar) distributed orthogonal matrix whose rows get the independent chi-distributed lengths
    of normal vectors. Blocks are independent; the last one is cut if ``n_features`` is not a multiple of ``d_head``.

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
    # QR alone prefers some directions: they are uniform only once the triangle's diagonal is made positive.
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


class PerformerAttention(LinearAttention):
    r"""Softmax attention over all real pairs, estimated with the features of :func:`log_softmax_features`.

    $$o_i = \frac{\sum_j \phi(q_i)^\top \phi(k_j)\, v_j}{\sum_j \phi(q_i)^\top \phi(k_j)}$$

    Numerator and denominator are unbiased, their quotient is not: its error falls as $1/\sqrt m$ in the number m of
    features and grows fast with the length of queries and keys. Features stay logarithms, as
    :func:`~sbmt.baselines.linear.feature_attention` takes them, so nothing overflows; and where all features of a query
    miss those of all keys, the least improbable ones decide instead of 0/0.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        n_features: m, the number of random features; the paper's comparison has 256.
        dropout: On the output values while training, in [0, 1), because attention weights are never formed. PyTorch
            draws it from its global generator.

    Attributes:
        features: Buffer ``(n_features, d_head)``, part of the state dict: one matrix for all heads and examples, drawn
            at construction from PyTorch's global CPU generator, and kept until :meth:`redraw_features`.

    Cost: O(n m d) time, O(n m + m d) memory per head.

    Source: Choromanski et al. (2021), "Rethinking Attention with Performers". Deviation: no epsilon is added to the
    features.

    Paper: section 5 compares with it.

    Example:
        >>> x = torch.randn(1, 2, 5, 8)
        >>> PerformerAttention(d_head=8, n_heads=2, n_features=16)(x, x, x).values.shape
        torch.Size([1, 2, 5, 8])
    """

    settings = ("d_head", "n_heads", "n_features", "dropout")
    features: Tensor

    def __init__(self, d_head: int, n_heads: int, *, n_features: int = 256, dropout: float = 0.0) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        check_sizes(n_features=n_features)
        self.n_features = n_features
        self.register_buffer("features", torch.empty(n_features, d_head))
        self.redraw_features()

    def redraw_features(self, generator: torch.Generator | None = None) -> None:
        """Draws all features anew, in place; the forward pass never does.

        Args:
            generator: Where the numbers come from; None means PyTorch's global generator of the CPU.
        """
        self.features.copy_(sample_orthogonal_features(self.n_features, self.d_head, generator=generator))

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raises SbmtError on tokens of another width than ``d_head``."""
        if query.shape[3] != self.d_head:
            do = "build the layer for this width"
            raise SbmtError(f"queries and keys of width {self.d_head}", tuple(query.shape), do)

    def log_features(self, tokens: Tensor) -> Tensor:
        """The logarithms of the features of queries or keys."""
        return log_softmax_features(tokens, self.features.to(tokens.dtype))

"""Nyströmformer's attention: the softmax matrix, reconstructed from its values at a few landmarks."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor, nn

from sbmt.baselines.all_pairs import AllPairsAttention, Masks
from sbmt.counter_rng import draw_seed
from sbmt.errors import SbmtError, check_sizes, describe, is_integer
from sbmt.precision import full_precision
from sbmt.registration import option


def segment_means(
    x: Float[Tensor, "batch heads n d"], is_real: Bool[Tensor, "batch n"], n_landmarks: int
) -> tuple[Float[Tensor, "batch heads landmarks d"], Bool[Tensor, "batch landmarks"]]:
    r"""Means of the real tokens of consecutive segments, and which of them exist, in O(n · landmarks · d).

    In an example of n real tokens, the r-th belongs to segment $\lfloor r L / n \rfloor$ with
    $L = \min(n, \text{n\_landmarks})$, so that no segment is empty. Landmarks beyond L are zero.
    ``x`` is zero at padded tokens.
    """
    n_real = is_real.sum(1, keepdim=True)
    n_segments = n_real.clamp(max=n_landmarks)
    segment = (is_real.cumsum(1) - 1) * n_segments // n_real.clamp(min=1)  # batch n
    landmark = torch.arange(min(n_landmarks, x.shape[2]), device=x.device)
    belongs = ((segment[:, None] == landmark[:, None]) & is_real[:, None]).to(x.dtype)  # batch landmarks n
    mean = belongs / belongs.sum(-1, keepdim=True).clamp(min=1)
    return mean[:, None] @ x, landmark < n_segments


def pseudo_inverse(
    matrix: Float[Tensor, "*batch rows columns"], n_iterations: int
) -> Float[Tensor, "*batch columns rows"]:
    r"""The Moore-Penrose inverse $A^+$, approximated by iteration.

    $$Z_0 = \frac{A^\top}{\lVert A \rVert_1 \lVert A \rVert_\infty}, \qquad
    Z \leftarrow \tfrac14 Z\,(13 I - A Z\,(15 I - A Z\,(7 I - A Z))).$$

    Each step maps the error $E = I - AZ$ on the range of A to $\tfrac14 (3 E^3 + E^4)$. Rows and columns of zeros stay
    zero. If A is rank-deficient, rounding errors outside its range grow by a factor of 13/4 per step.

    Args:
        matrix: A, of any rank, 0 included.
        n_iterations: Number of steps. Small singular values need many; a deficient rank tolerates only few.

    Cost: O(iterations · landmarks³).
    """
    norms = matrix.abs().sum(-2).amax(-1) * matrix.abs().sum(-1).amax(-1)
    inverse = matrix.mT / norms.masked_fill(norms == 0, 1.0)[..., None, None]
    identity = torch.eye(matrix.shape[-2], dtype=matrix.dtype, device=matrix.device)
    for _ in range(n_iterations):
        product = matrix @ inverse
        inner = 15 * identity - product @ (7 * identity - product)
        inverse = inverse @ (13 * identity - product @ inner) / 4
    return inverse


def _softmax(scores: Tensor, is_read: Bool[Tensor, "batch n"]) -> Tensor:
    """Softmax over the keys that are read; zeros elsewhere, and if there are none."""
    is_read = is_read[:, None, None]
    return torch.softmax(scores.masked_fill(~is_read, torch.finfo(scores.dtype).min), -1) * is_read


def check_n_conv(n_conv: int | None) -> None:
    """Raises SbmtError unless this is the length of a convolution, or None."""
    if n_conv is not None and (not is_integer(n_conv) or n_conv < 1 or n_conv % 2 == 0):
        raise SbmtError("n_conv as None or an odd integer ≥ 1", describe(n_conv), "an odd kernel has a centre")


@dataclass(frozen=True)
class NystromOptions:
    """Options of :class:`NystromAttention`."""

    n_landmarks: int = option(256, "landmarks at most")
    n_iterations: int = option(6, "steps of the pseudo-inverse")
    n_conv: int | None = option(None, "odd length of a convolution of the values; none by default")

    def __post_init__(self) -> None:
        check_sizes(n_landmarks=self.n_landmarks, n_iterations=self.n_iterations)
        check_n_conv(self.n_conv)


class NystromAttention(AllPairsAttention):
    r"""Attention through landmarks, with O(n) softmax weights instead of n².

    With $\tilde Q, \tilde K$ the means of Q and K over consecutive segments of real tokens and $\sigma$ the softmax of
    rows,

    $$Y = \sigma\!\left(\frac{Q \tilde K^\top}{\sqrt d}\right) \sigma\!\left(\frac{\tilde Q \tilde K^\top}{\sqrt d}
    \right)^{\!+} \sigma\!\left(\frac{\tilde Q K^\top}{\sqrt d}\right) V \;[\,+ \operatorname{conv}(V)\,],$$

    where :func:`pseudo_inverse` approximates the inverse. With a landmark per token and enough iterations it is full
    attention. It is computed in float32 at least.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        n_landmarks: Most segments, at least 1. An example with fewer real tokens has a landmark per token.
        n_iterations: Steps of the pseudo-inverse, at least 1.
        n_conv: Odd length of a convolution of the values over the sequence, one kernel per head, that is added to the
            output; None omits it. Padded values count as zero. It needs as many queries as keys.
        dropout: While training, in [0, 1), on the first factor, the softmax of queries over landmarks. It takes one
            int64 from ``generator``; nothing else takes any.

    Cost: for L landmarks, O(n L d + n L² + iterations · L³) time, O(n L) memory.

    Source: Xiong, Zeng, Chakraborty, Tan, Fung, Li, Singh, "Nyströmformer: A Nyström-Based Algorithm for Approximating
    Self-Attention" (2021). Deviations from the authors' code: landmarks exclude padding, segments need not divide the
    length, $Z_0$ is scaled for each matrix rather than by the largest norms in the batch, so that no example depends on
    another, and there is a dropout.
    """

    settings = ("d_head", "n_heads", "n_landmarks", "n_iterations", "n_conv", "dropout")

    def __init__(
        self,
        d_head: int,
        n_heads: int,
        *,
        n_landmarks: int = 256,
        n_iterations: int = 6,
        n_conv: int | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        check_sizes(n_landmarks=n_landmarks, n_iterations=n_iterations)
        check_n_conv(n_conv)
        self.n_landmarks, self.n_iterations, self.n_conv = n_landmarks, n_iterations, n_conv
        self.conv = None
        if n_conv is not None:
            self.conv = nn.Conv2d(n_heads, n_heads, (n_conv, 1), padding=(n_conv // 2, 0), bias=False, groups=n_heads)

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raises SbmtError if the convolution does not fit: other heads, or other keys than queries."""
        if self.conv is None:
            return
        if query.shape[2] != key.shape[2]:
            got = f"{query.shape[2]} queries and {key.shape[2]} keys"
            raise SbmtError("as many queries as keys", got, "omit n_conv: it adds a token's neighbours to itself")
        if query.shape[1] != self.n_heads:
            raise SbmtError(f"{self.n_heads} heads", tuple(query.shape), "build the layer for this shape")

    def attend(self, query: Tensor, key: Tensor, value: Tensor, masks: Masks, generator: Generator | None) -> Tensor:
        """The values; padded tokens come in as zeros."""
        is_query, is_key = (
            torch.ones(tokens.shape[::2], dtype=torch.bool, device=tokens.device) if mask is None else mask
            for tokens, mask in zip((query, key), masks, strict=True)
        )
        dtype = torch.promote_types(torch.promote_types(query.dtype, value.dtype), torch.float32)
        query, key, value = (query / query.shape[3] ** 0.5).to(dtype), key.to(dtype), value.to(dtype)
        with full_precision(query):
            few_queries, has_query = segment_means(query, is_query, self.n_landmarks)
            few_keys, has_key = segment_means(key, is_key, self.n_landmarks)
            to_landmarks = self._drop(_softmax(query @ few_keys.mT, has_key), generator)
            between = _softmax(few_queries @ few_keys.mT, has_key) * has_query[:, None, :, None]
            from_landmarks = _softmax(few_queries @ key.mT, is_key)
            inverse = pseudo_inverse(between, self.n_iterations)  # batch heads key_landmarks query_landmarks
            attended = to_landmarks @ (inverse @ (from_landmarks @ value))
            if self.conv is not None:
                weight, padding = self.conv.weight.to(dtype), self.conv.padding
                attended = attended + nn.functional.conv2d(value, weight, padding=padding, groups=self.n_heads)
        return attended

    def _drop(self, weights: Tensor, generator: Generator | None) -> Tensor:
        if self.dropout == 0 or not self.training:
            return weights
        source = Generator(weights.device).manual_seed(draw_seed(generator))
        uniform = torch.rand(weights.shape, generator=source, device=weights.device)
        return weights * (uniform >= self.dropout) / (1 - self.dropout)

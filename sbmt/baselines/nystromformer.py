"""Nyströmformer's attention: approximates the softmax matrix from its values at a few landmarks."""

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from sbmt.baselines.base import Baseline, Inputs, all_real
from sbmt.counter_rng import draw_seed
from sbmt.errors import check_sizes


def segment_means(
    x: Float[Tensor, "batch heads n d"], is_real: Bool[Tensor, "batch n"], n_landmarks: int
) -> tuple[Float[Tensor, "batch heads landmarks d"], Bool[Tensor, "batch landmarks"]]:
    r"""Averages the real tokens of consecutive segments; also returns which landmarks exist. O(n · landmarks · d).

    The r-th of n real tokens belongs to segment $\lfloor r L / n \rfloor$ with $L = \min(n, \text{n\_landmarks})$, so
    no segment is empty. Landmarks beyond L are zero.
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
    r"""Approximates the Moore-Penrose inverse $A^+$ of a matrix of any rank by iteration.

    $$Z_0 = \frac{A^\top}{\lVert A \rVert_1 \lVert A \rVert_\infty}, \qquad
    Z \leftarrow \tfrac14 Z\,(13 I - A Z\,(15 I - A Z\,(7 I - A Z))).$$

    On the range of A, each step maps the error $E = I - AZ$ to $\tfrac14 (3 E^3 + E^4)$; small singular values need
    many steps. Outside the range, each step multiplies rounding errors by 13/4. Cost: O(iterations · landmarks³).
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
    """Computes the softmax over keys where ``is_read`` is True, with zeros elsewhere; all zeros if none is True."""
    is_read = is_read[:, None, None]
    return torch.softmax(scores.masked_fill(~is_read, torch.finfo(scores.dtype).min), -1) * is_read


class NystromAttention(Baseline):
    r"""Attention through landmarks, with O(n) softmax weights instead of n².

    Let $\tilde Q, \tilde K$ be the means of Q and K over consecutive segments of real tokens, and $\sigma$ the softmax
    of rows. Then

    $$Y = \sigma\!\left(\frac{Q \tilde K^\top}{\sqrt d}\right) \sigma\!\left(\frac{\tilde Q \tilde K^\top}{\sqrt d}
    \right)^{\!+} \sigma\!\left(\frac{\tilde Q K^\top}{\sqrt d}\right) V,$$

    where :func:`pseudo_inverse` approximates the inverse. With one landmark per token and enough iterations, this is
    full attention.

    Args:
        n_landmarks: Largest number of landmarks, at least 1. If there are fewer real tokens, each is a landmark.
        n_iterations: Number of steps for the pseudo-inverse, at least 1.
        dropout: Dropout of the queries' weights on landmarks, the only step that draws from ``generator``.

    Cost: for L landmarks, O(n L d + n L² + iterations · L³) time, O(n L) memory.
    Source: Xiong, Zeng, Chakraborty, Tan, Fung, Li, Singh, "Nyströmformer: A Nyström-Based Algorithm for Approximating
    Self-Attention" (2021). Deviations from the authors' code: landmarks exclude padding, segments need not divide the
    length, $Z_0$ is scaled for each matrix, weights are dropped out, and no convolution of the values is added.
    """

    def __init__(
        self, d_head: int, n_heads: int, *, n_landmarks: int = 256, n_iterations: int = 6, dropout: float = 0.0
    ) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        check_sizes(n_landmarks=n_landmarks, n_iterations=n_iterations)
        self.n_landmarks, self.n_iterations = n_landmarks, n_iterations

    def attend(self, inputs: Inputs) -> Tensor:
        """Computes the values from weights between queries, landmarks and keys."""
        query, key, value, query_mask, key_mask, dropout, generator, _ = inputs
        is_query, is_key = all_real(query, query_mask), all_real(key, key_mask)
        query = query / query.shape[3] ** 0.5
        few_queries, has_query = segment_means(query, is_query, self.n_landmarks)
        few_keys, has_key = segment_means(key, is_key, self.n_landmarks)
        to_landmarks = _softmax(query @ few_keys.mT, has_key)
        if dropout > 0:
            source = Generator(query.device).manual_seed(draw_seed(generator))
            uniform = torch.rand(to_landmarks.shape, generator=source, device=query.device)
            to_landmarks = to_landmarks * (uniform >= dropout) / (1 - dropout)
        between = _softmax(few_queries @ few_keys.mT, has_key) * has_query[:, None, :, None]
        from_landmarks = _softmax(few_queries @ key.mT, is_key)
        inverse = pseudo_inverse(between, self.n_iterations)  # batch heads key_landmarks query_landmarks
        return to_landmarks @ (inverse @ (from_landmarks @ value))

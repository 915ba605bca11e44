"""Nyström attention is the product of its three factors, and equals full attention if every token is a landmark."""

import pytest
import torch

from sbmt.baselines.nystromformer import NystromAttention, pseudo_inverse
from tests.baselines.cases import same_values_and_gradients
from tests.layers.inputs import seeded, tokens

LENGTHS = torch.tensor([[9], [0], [1], [4]])
REAL = torch.arange(9) < LENGTHS
SCATTERED = torch.rand(4, 9, generator=seeded(5)) < 0.6


def leaves():
    """Returns queries near orthogonal axes and keys near the same axes, for a well-conditioned landmark matrix."""
    axes = torch.linalg.qr(tokens(4, 2, 16, 16, seed=4, dtype=torch.float64))[0][:, :, :9]
    near = (3 * axes + 0.3 * tokens(4, 2, 9, 16, seed=seed, dtype=torch.float64) for seed in (1, 2))
    return [x.requires_grad_() for x in (*near, tokens(4, 2, 9, 3, dtype=torch.float64))]


def landmarks_by_hand(x, n_landmarks):
    """Returns the output for the real tokens of one example, ``(heads, n, d)``."""
    n, count = x.shape[1], min(x.shape[1], n_landmarks)
    return torch.stack([x[:, [r for r in range(n) if r * count // n == s]].mean(1) for s in range(count)], 1)


def attend_by_hand(query, key, value, is_real, n_landmarks):
    """Computes the output per example from real tokens alone, with the exact pseudo-inverse."""
    out = torch.zeros_like(value)
    for b in is_real.any(1).nonzero()[:, 0].tolist():
        x, y, z = (t[b][:, is_real[b]] for t in (query / query.shape[3] ** 0.5, key, value))
        few_x, few_y = landmarks_by_hand(x, n_landmarks), landmarks_by_hand(y, n_landmarks)
        first, middle, last = ((p @ q.mT).softmax(-1) for p, q in ((x, few_y), (few_x, few_y), (few_x, y)))
        attended = (first @ torch.linalg.pinv(middle) @ last @ z).transpose(0, 1)  # n heads d_value
        out = out.transpose(1, 2).index_put((torch.tensor(b), is_real[b].nonzero()[:, 0]), attended).transpose(1, 2)
    return out


@pytest.mark.parametrize("n_landmarks, mask", [(1, REAL), (4, REAL), (2, SCATTERED), (99, SCATTERED)])
def test_it_is_the_product_of_three_factors(mask, n_landmarks):
    inputs = leaves()
    layer = NystromAttention(16, 2, n_landmarks=n_landmarks, n_iterations=25)
    out = layer(*inputs, query_mask=mask, key_mask=mask, return_edges=True)
    by_hand = attend_by_hand(*inputs, mask, n_landmarks)
    same_values_and_gradients(out.values, by_hand, inputs, atol=1e-8)
    pairs = mask[:, None, :, None] & mask[:, None, None, :]
    assert torch.equal(out.edges.to_dense(), pairs.expand(4, 2, 9, 9))
    torch.testing.assert_close(out.density, out.edges.density(), check_dtype=False)


def test_the_iteration_converges_cubically_to_the_pseudo_inverse():
    """The error E becomes (3 E³ + E⁴) / 4 in each step, even for rectangular, rank-deficient or zero matrices."""
    matrix, wide = (torch.softmax(tokens(2, 3, n, 5, dtype=torch.float64) + 4 * torch.eye(n, 5), -1) for n in (5, 3))
    deficient = torch.cat([wide, wide[..., :1, :]], -2)
    padded = torch.nn.functional.pad(matrix, (0, 2, 0, 3))
    for each in (matrix, wide, wide.mT, deficient, padded, torch.zeros_like(matrix)):
        torch.testing.assert_close(pseudo_inverse(each, 8), torch.linalg.pinv(each), rtol=0, atol=1e-8)
    far = [(pseudo_inverse(deficient, n) - torch.linalg.pinv(deficient)).abs().max() for n in (8, 16)]
    assert far[1] > 1000 * far[0]  # rounding errors outside the range grow by 13/4 per step, as documented
    identity = torch.eye(5, dtype=torch.float64)
    error = identity - matrix @ (matrix.mT / (matrix.sum(-2).amax(-1) * matrix.sum(-1).amax(-1))[..., None, None])
    for step in range(1, 4):
        error = (3 * error @ error @ error + error @ error @ error @ error) / 4
        torch.testing.assert_close(identity - matrix @ pseudo_inverse(matrix, step), error, rtol=0, atol=1e-10)

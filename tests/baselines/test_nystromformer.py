"""Nyström attention is the product of its three factors, and full attention when every token is a landmark."""

import pytest
import torch

from sbmt.baselines import FullAttention
from sbmt.baselines.nystromformer import NystromAttention, pseudo_inverse
from sbmt.counter_rng import draw_seed
from tests.baselines.cases import same_values_and_gradients
from tests.layers.inputs import seeded, tokens

LENGTHS = torch.tensor([[9], [0], [1], [4]])
REAL = torch.arange(9) < LENGTHS
SCATTERED = torch.rand(4, 9, generator=seeded(5)) < 0.6


def leaves(n_queries=9, n_keys=9, d=16):
    """Queries near orthogonal axes and keys near the same ones: the landmarks' matrix has a fair condition."""
    axes = torch.linalg.qr(tokens(4, 2, d, d, seed=4, dtype=torch.float64))[0]
    near = (
        3 * axes[:, :, :n] + 0.3 * tokens(4, 2, n, d, seed=seed, dtype=torch.float64)
        for seed, n in enumerate((n_queries, n_keys), start=1)
    )
    return [x.requires_grad_() for x in (*near, tokens(4, 2, n_keys, 3, dtype=torch.float64))]


def landmarks_by_hand(x, n_landmarks):
    """Of one graph's real tokens."""
    n = len(x)
    count = min(n, n_landmarks)
    return torch.stack([x[[r for r in range(n) if r * count // n == s]].mean(0) for s in range(count)])


def attend_by_hand(query, key, value, is_query, is_key, n_landmarks):
    """Graph by graph, on the real tokens alone, with the exact pseudo-inverse."""
    batch, heads, n_queries, d = query.shape
    rows = []
    for b in range(batch):
        for h in range(heads):
            x, y, z = query[b, h][is_query[b]], key[b, h][is_key[b]], value[b, h][is_key[b]]
            out = value.new_zeros(n_queries, value.shape[-1])
            if len(x) and len(y):
                few_x, few_y = landmarks_by_hand(x, n_landmarks), landmarks_by_hand(y, n_landmarks)
                first, middle, last = (
                    torch.softmax(left @ right.T / d**0.5, -1)
                    for left, right in ((x, few_y), (few_x, few_y), (few_x, y))
                )
                out = out.index_put((is_query[b].nonzero()[:, 0],), first @ torch.linalg.pinv(middle) @ last @ z)
            rows.append(out)
    return torch.stack(rows).view(batch, heads, n_queries, -1)


@pytest.mark.parametrize("n_landmarks, mask", [(1, REAL), (4, REAL), (2, SCATTERED), (99, SCATTERED)])
def test_it_is_the_product_of_three_factors(mask, n_landmarks):
    inputs = leaves()
    layer = NystromAttention(16, 2, n_landmarks=n_landmarks, n_iterations=25)
    out = layer(*inputs, query_mask=mask, key_mask=mask, return_edges=True)
    by_hand = attend_by_hand(*inputs, mask, mask, n_landmarks)
    same_values_and_gradients(out.values, by_hand, inputs, atol=1e-8)
    pairs = mask[:, None, :, None] & mask[:, None, None, :]
    assert torch.equal(out.edges.to_dense(), pairs.expand(4, 2, 9, 9))
    torch.testing.assert_close(out.density, out.edges.density(), check_dtype=False)


@pytest.mark.parametrize("n_queries, n_keys", [(9, 5), (1, 9)])
def test_queries_and_keys_have_landmarks_of_their_own(n_queries, n_keys):
    inputs = leaves(n_queries, n_keys)
    query_mask = torch.arange(n_queries) < torch.tensor([[n_queries], [0], [2], [3]])
    key_mask = torch.arange(n_keys) < torch.tensor([[n_keys], [n_keys], [n_keys], [2]])
    masks = query_mask, key_mask
    out = NystromAttention(16, 2, n_landmarks=4, n_iterations=25)(*inputs, query_mask=masks[0], key_mask=masks[1])
    same_values_and_gradients(out.values, attend_by_hand(*inputs, *masks, 4), inputs, atol=1e-8)


def test_with_a_landmark_per_token_it_is_full_attention():
    inputs, masks = leaves(), dict(query_mask=REAL, key_mask=REAL)
    full = FullAttention(16, 2)(*inputs, **masks).values
    values = {n: NystromAttention(16, 2, n_iterations=n)(*inputs, **masks).values for n in (1, 2, 4, 25)}
    errors = [(each - full).abs().max() for each in values.values()]
    assert errors == sorted(errors, reverse=True) and errors[1] > 1e-3  # it takes the iterations to get there
    same_values_and_gradients(values[25], full, inputs)


def test_the_iteration_converges_cubically_to_the_pseudo_inverse():
    """E becomes (3 E³ + E⁴) / 4 in each step; also for matrices that are not square, of deficient rank, or zero."""
    matrix, wide = (torch.softmax(tokens(2, 3, n, 5, dtype=torch.float64) + 4 * torch.eye(n, 5), -1) for n in (5, 3))
    deficient = torch.cat([wide, wide[..., :1, :]], -2)
    padded = torch.nn.functional.pad(matrix, (0, 2, 0, 3))
    for each in (matrix, wide, wide.mT, deficient, padded, torch.zeros_like(matrix)):
        torch.testing.assert_close(pseudo_inverse(each, 8), torch.linalg.pinv(each), rtol=0, atol=1e-8)
    far = [(pseudo_inverse(deficient, n) - torch.linalg.pinv(deficient)).abs().max() for n in (8, 16)]
    assert far[1] > 1000 * far[0]  # rounding outside the range grows by 13/4 a step, as documented
    identity = torch.eye(5, dtype=torch.float64)
    error = identity - matrix @ (matrix.mT / (matrix.sum(-2).amax(-1) * matrix.sum(-1).amax(-1))[..., None, None])
    for step in range(1, 4):
        error = (3 * error @ error @ error + error @ error @ error @ error) / 4
        torch.testing.assert_close(identity - matrix @ pseudo_inverse(matrix, step), error, rtol=0, atol=1e-10)


@pytest.mark.parametrize("n_landmarks", [4, 12])
def test_padding_changes_nothing(n_landmarks):
    """Also before the inverse has converged, and where the longer batch has room for more landmarks."""
    inputs = leaves()
    layer = NystromAttention(16, 2, n_landmarks=n_landmarks, n_iterations=2)
    longer = [torch.nn.functional.pad(x, (0, 0, 0, 7), value=torch.nan) for x in inputs]
    masks = [torch.arange(n) < LENGTHS for n in (9, 16)]
    short, long = (
        layer(*x, query_mask=mask, key_mask=mask).values for x, mask in ((inputs, masks[0]), (longer, masks[1]))
    )
    assert (long[:, :, 9:] == 0).all()
    same_values_and_gradients(long[:, :, :9], short, inputs)


def test_dropout_is_on_the_first_factor_and_keeps_the_mean():
    x = tokens(n=32)
    layer, plain = NystromAttention(4, 3, n_landmarks=8, dropout=0.25), NystromAttention(4, 3, n_landmarks=8)
    draws = torch.stack([layer(x, x, x).values for _ in range(400)])
    z = (draws.mean(0) - plain(x, x, x).values) / (draws.std(0) / 20).clamp(min=1e-6)
    assert draws.std() > 0 and z.abs().max() < 7


def test_a_seed_is_drawn_for_dropout_alone():
    x, generator, untouched = tokens(n=8), seeded(), seeded()
    NystromAttention(4, 3)(x, x, x, generator=generator)
    NystromAttention(4, 3, dropout=0.5).eval()(x, x, x, generator=generator)
    assert torch.equal(generator.get_state(), untouched.get_state())
    NystromAttention(4, 3, dropout=0.5)(x, x, x, generator=generator)
    draw_seed(untouched)
    assert torch.equal(generator.get_state(), untouched.get_state())


def test_equal_tokens_and_nothing_but_padding_keep_gradients_finite():
    x = torch.ones(2, 3, 8, 4, requires_grad=True)
    layer = NystromAttention(4, 3, n_landmarks=4)
    out = layer(x, x, x, query_mask=REAL[:2, :8], key_mask=REAL[:2, :8])
    assert (out.values[0] != 0).all() and (out.values[1] == 0).all()
    assert torch.equal(out.density, torch.tensor([[1.0] * 3, [0.0] * 3]))
    out.values.square().sum().backward()
    assert x.grad.isfinite().all()

"""Compares full, linear, Linformer and Performer attention with slow implementations of their definitions."""

import pytest
import torch
from scipy import stats

from sbmt.baselines import FullAttention, LinearAttention, LinformerAttention
from sbmt.baselines.linear import PerformerAttention, sample_orthogonal_features
from tests.attention.row_loop import attend_row_by_row
from tests.baselines.cases import check_against_twin, masked, same_values_and_gradients
from tests.layers.inputs import tokens


@masked
def test_full_attention_is_the_row_loop(hides_keys, hides_queries):
    check_against_twin(FullAttention(4, 2), attend_row_by_row, hides_keys, hides_queries)


def quadratic_form(query, key, value, mask):
    """Returns the weights φ(q)·φ(k) as a dense matrix, with zeros in rows without a key."""
    query_features, key_features = (torch.nn.functional.elu(x) + 1 for x in (query, key))
    weights = query_features @ key_features.mT * mask
    total = weights.sum(-1, keepdim=True)
    return weights @ value / torch.where(total > 0, total, 1.0)


@masked
def test_linear_attention_equals_its_quadratic_form(hides_keys, hides_queries):
    check_against_twin(LinearAttention(4, 2), quadratic_form, hides_keys, hides_queries, 1e-12)


def over_mixtures(query, key, value, mask, projection):
    """Computes the softmax over mixtures of keys, for one example, head and query at a time."""
    out = torch.zeros(*query.shape[:3], value.shape[3], dtype=query.dtype)
    for b, h, i in mask.any(-1).nonzero().tolist():
        real = mask[b, h, i].nonzero()[:, 0].tolist()
        mixed_keys = sum(torch.outer(projection[h, :, j], key[b, h, j]) for j in real)
        mixed_values = sum(torch.outer(projection[h, :, j], value[b, h, j]) for j in real)
        weights = (mixed_keys @ query[b, h, i] / query.shape[3] ** 0.5).exp()
        out[b, h, i] = weights @ mixed_values / weights.sum()
    return out


@masked
def test_linformer_attends_to_mixtures_of_keys(hides_keys, hides_queries):
    """Shorter inputs use the first columns of the projection."""
    layer = LinformerAttention(4, 2, n_positions=9, n_projected=3).double()
    torch.nn.init.normal_(layer.projection)  # far from uniform, as after training
    check_against_twin(layer, lambda *case: over_mixtures(*case, layer.projection), hides_keys, hides_queries)


# --- Performer: its features estimate the softmax kernel without bias ---


def performer_form(query, key, value, mask, features):
    """Returns the weights mean_w exp(w·x - ‖x‖²/2) exp(w·y - ‖y‖²/2), with x = q / d^¼ and y = k / d^¼."""
    x, y = (t[..., None, :] / t.shape[-1] ** 0.25 for t in (query, key))
    exponents = [(t * features).sum(-1) - t.square().sum(-1) / 2 for t in (x, y)]  # batch heads n n_features
    scores = (exponents[0][:, :, :, None] + exponents[1][:, :, None]).logsumexp(-1)  # batch heads n_queries n_keys
    scores = torch.where(mask.any(-1, keepdim=True), scores.masked_fill(~mask, -torch.inf), 0.0)
    return scores.softmax(-1).masked_fill(~mask, 0.0) @ value


@masked
@pytest.mark.parametrize("n_features", [1, 6])
def test_performer_is_the_quadratic_form(n_features, hides_keys, hides_queries):
    layer = PerformerAttention(4, 2, n_features=n_features).double()
    check_against_twin(layer, lambda *case: performer_form(*case, layer.features), hides_keys, hides_queries, 1e-11)


@pytest.mark.statistical(share=0.001)
def test_the_kernel_is_estimated_without_bias(judge):
    """Each row of a block of orthogonal features has the mean exp(q·k / √d) and the variance of a normal row.

    With z = x + y the estimate is exp(w·z - ‖z‖²/2 + x·y), so its variance is exp(2 x·y) (exp(‖z‖²) - 1).
    """
    n_blocks, d_head = 50_000, 4
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, d_head, dtype=torch.float64) / 2
    key = torch.cat([key, -query[:1]])  # opposites: z = 0, so the estimate has no variance
    layer = PerformerAttention(d_head, 1, n_features=n_blocks * d_head).double()
    query_features, key_features = (
        layer.log_features(x).exp().view(-1, n_blocks, d_head) * (n_blocks * d_head) ** 0.5 for x in (query, key)
    )
    means = torch.einsum("qnr,knr->qkr", query_features, key_features) / n_blocks  # queries keys rows of a block
    kernel = (query @ key.mT / d_head**0.5).exp()[:, :, None]
    torch.testing.assert_close(means[0, 3], kernel[0, 3].expand(d_head))
    z_norm = (query[:, None] + key).square().sum(-1)[:, :, None] / d_head**0.5
    deviation = kernel * (z_norm.expm1() / n_blocks).sqrt()
    is_random = (z_norm > 1e-9).expand_as(means)
    z_scores = ((means - kernel) / deviation.clamp(min=1e-300))[is_random]
    assert z_scores.numel() == 11 * d_head
    judge(2 * stats.norm.sf(z_scores.abs().numpy()))


@pytest.mark.statistical(share=0.001)
def test_features_have_uniform_directions_and_the_lengths_of_normal_vectors(judge):
    d_head, n_blocks = 3, 20_000
    torch.manual_seed(0)
    rows = sample_orthogonal_features(d_head * n_blocks, d_head).view(n_blocks, d_head, d_head)
    lengths = rows.norm(dim=-1)
    coordinates = rows / lengths[..., None]  # on a sphere in three dimensions, each coordinate is uniform on [-1, 1]
    uniform = [stats.kstest(coordinates[:, r, c], "uniform", (-1, 2)).pvalue for r in range(3) for c in range(3)]
    chi = [stats.kstest(lengths[:, row], "chi", (d_head,)).pvalue for row in range(d_head)]
    independent = [stats.pearsonr(lengths[:, a], lengths[:, b]).pvalue for a, b in ((0, 1), (0, 2), (1, 2))]
    judge(uniform, chi, independent)


@pytest.mark.parametrize("n_features, d_head", [(10, 4), (3, 4), (5, 1)])
def test_features_are_orthogonal_within_a_block_and_not_beyond(n_features, d_head):
    features = sample_orthogonal_features(n_features, d_head)
    assert features.shape == (n_features, d_head)
    products = features @ features.mT
    block = torch.arange(n_features) // d_head
    is_inside = (block[:, None] == block) & ~torch.eye(n_features, dtype=torch.bool)
    assert (products[is_inside].abs() < 1e-12).all()
    assert (products[block[:, None] != block].abs() > 1e-6).all()
    assert (features.norm(dim=1).diff().abs() > 1e-6).all()


@pytest.mark.parametrize("scale, sign", [(10.0, 1), (1000.0, -1)])
def test_queries_and_keys_whose_features_do_not_overlap(sign, scale):
    """Scores reach ±1e6, where products of features underflow, so the quadratic form is computed in logarithms."""
    query, key, value = (tokens(n=5, seed=seed, dtype=torch.float64) for seed in (1, 2, 3))
    query[..., 0], key[..., 0] = scale, sign * scale
    inputs = [query.requires_grad_(), key.requires_grad_(), value.requires_grad_()]
    layer = PerformerAttention(4, 3, n_features=16).double()
    found = layer(*inputs).values
    dense = performer_form(*inputs, torch.ones(2, 3, 5, 5, dtype=torch.bool), layer.features)
    same_values_and_gradients(found, dense, inputs, 1e-12 * scale**2 + 1e-11)

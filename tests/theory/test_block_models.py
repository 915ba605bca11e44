"""Compares the block budget, explicit models, samplers and means over masks with enumeration and draws."""

import math
from itertools import combinations, product

import numpy as np
import pytest
import torch

from sbmt.block_model.model import BlockModel
from sbmt.layers import SBMAttention
from sbmt.samplers import sample_edges
from theory import expectation, realisability
from theory.conditions import min_layers
from theory.patterns import blocks, relay_tokens, three_patterns
from theory.random_graphs import arc_probability
from theory.realisability import attained, block_matrix, edge_law, realise, saturated_heads
from theory.simulation import Estimate, certify_draws

PATTERNS = ["A1", "A2", "A3", "full"]
SIZES = [(10, 4), (7, 1), (5, 5)]


def pattern_of(name, n, k, relays="last"):
    return np.ones((n, n), dtype=bool) if name == "full" else three_patterns(n, k, relays)[PATTERNS.index(name)]


@pytest.mark.parametrize("groups", [3, 6])
def test_pairs_of_groups_as_clusters_attain_the_budget(groups):
    pairs = list(combinations(range(groups), 2))
    member = torch.tensor([[[[float(g in pair) for pair in pairs] for g in range(groups)]]], dtype=torch.float64)
    p = BlockModel(member, torch.eye(len(pairs)).double()[None] / len(pairs), member).expected_mask()[0, 0].numpy()
    p_out = float(p[~np.eye(groups, dtype=bool)].mean())
    assert np.diag(p).mean() == pytest.approx(realisability.in_block_bound(groups, p_out), abs=1e-12) and p_out > 0


@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_block_matrices_are_those_of_the_layer(link):
    layer = SBMAttention(d_head=5, n_heads=2, n_clusters=3, link=link).double()
    x = torch.randn(1, 2, 4, 5, dtype=torch.float64)
    for clusters, block in zip(layer.clusters, layer.block_model(x, x).block_matrix, strict=True):
        torch.testing.assert_close(block_matrix(clusters, link), block)


@pytest.mark.parametrize("relays", ["last", "per_block"])
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("n, k", SIZES)
def test_the_poisson_link_draws_every_pattern_and_the_bilinear_one_all_but_blocks(n, k, name, relays):
    pattern = pattern_of(name, n, k, relays)
    for sampler in ("exact", "fastrg"):
        inside, outside = attained(realise(name, n, k, "poisson", relays=relays), pattern, sampler)
        assert inside > 1 - 1e-15 and outside < 1e-12
    is_block = name == "A1" and 1 < k < n
    inside, outside = attained(realise(name, n, k, relays=relays), pattern)
    assert inside == pytest.approx(1 / k if is_block else 1, abs=1e-12) and outside < 1e-12
    inside, _ = attained(realise(name, n, k, relays=relays), pattern, "fastrg")
    if not (name == "A1" and k == n):  # then only self-loops are wanted
        assert inside == pytest.approx(1 - math.exp(-1 / k if is_block else -1), abs=1e-12)


@pytest.mark.parametrize("relays", ["last", "per_block"])
def test_saturated_heads_draw_the_blocks_and_the_stars_and_fail_as_seldom_as_stated(relays):
    n, k, node = 10, 4, 3.0
    laws = [head.expected_mask()[0, 0].numpy() for head in saturated_heads(n, k, node, relays=relays)]
    _, a2, a3 = three_patterns(n, k, relays)
    wanted = [np.outer(blocks(n, k) == b, blocks(n, k) == b) for b in range(k)]
    for law, pattern in zip(laws, [*wanted, a3, a2], strict=True):
        assert np.array_equal((law > 0.5) | (np.eye(n, dtype=bool) & pattern), pattern)
    missing, n_pairs = (
        sum((1 - law)[law > 0.5].sum() for law in laws),
        (np.bincount(blocks(n, k)) ** 2).sum() + 2 * k * n,
    )
    assert missing == pytest.approx(n_pairs * (1 - (1 / (1 + math.exp(-node))) ** 2), rel=1e-9)


@pytest.mark.parametrize(
    "heads, sampler, n_paths",
    [
        (saturated_heads(12, 3, relays="per_block"), "exact", 4),
        ([realise(name, 64, 8, "poisson") for name in PATTERNS[:3]], "exact", 4),
        ([realise(name, 64, 8, "poisson") for name in PATTERNS[:3]], "fastrg", 4),
        ([realise(name, 64, 8) for name in PATTERNS[:3]], "exact", 0),  # the 56 non-relays need more than 9 paths
    ],
)
def test_which_models_draw_masks_that_meet_the_conditions(heads, sampler, n_paths):
    generator = torch.Generator().manual_seed(0)
    draws = [[sample_edges(head, sampler, generator=generator).with_window(0) for head in heads] for _ in range(4)]
    assert certify_draws(draws).conditions == (Estimate(4, 4), Estimate(n_paths, 4), Estimate(4, 4))
    assert n_paths == 0 or {min_layers(patterns) for patterns in draws} == {5}  # blocks, gather, broadcast


# --- samplers --------------------------------------------------------------------------------------------------------


def test_rates_are_those_of_algorithm_1_step_by_step():
    """B̄ = D_Y B D_Z is distributed over Ȳ and Z̄. With the inverses, as printed, the sum is wrong."""
    rng = np.random.default_rng(3)
    query, key, block = rng.random((4, 3)), rng.random((5, 3)), rng.random((3, 3)) * (rng.random((3, 3)) < 0.6)
    rates = realisability.fastrg_rates(query, block, key)
    columns_y, columns_z = query.sum(0), key.sum(0)
    spread = np.diag(columns_y) @ block @ np.diag(columns_z)
    edge = (query / columns_y) @ spread @ (key / columns_z).T
    np.testing.assert_allclose(rates.edge, edge, rtol=1e-12)
    assert rates.total == pytest.approx(spread.sum(), rel=1e-12)
    printed = np.diag(1 / columns_y) @ block @ np.diag(1 / columns_z)
    assert rates.printed_total == pytest.approx(printed.sum(), rel=1e-12)
    assert rates.distinct == pytest.approx((1 - np.exp(-edge)).sum(), rel=1e-12) and rates.distinct < rates.total
    empty = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert realisability.fastrg_rates(empty, np.eye(2), empty).printed_total == math.inf
    assert realisability.fastrg_rates(empty, np.diag([1.0, 0.0]), empty).printed_total == 0.25


@pytest.mark.parametrize("n, k", SIZES)
@pytest.mark.parametrize(
    "p, relays, self_loops", [(1, "last", True), (0.3, "last", False), ("lemma1", "per_block", True)]
)
def test_expected_entries_are_sums_over_all_pairs(n, k, p, relays, self_loops):
    sizes = np.bincount(blocks(n, k))
    own = np.array([arc_probability(int(size), p) for size in sizes])[blocks(n, k)]
    a1 = three_patterns(n, k, relays)[0] * own[:, None]
    star = np.zeros((n, n))
    star[:, relay_tokens(n, k, relays)] = 1.0
    expected = {}
    for name, law in {"A1": a1, "A2": star, "A3": star.T, "union": np.maximum(a1, np.maximum(star, star.T))}.items():
        np.fill_diagonal(law, float(self_loops))
        expected[name] = law.sum()
    expected["sum"] = expected["A1"] + expected["A2"] + expected["A3"]
    found = realisability.expected_entries(n, k, p, self_loops=self_loops, relays=relays)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


# --- means over masks ------------------------------------------------------------------------------------------------


def model_of(probability):
    """Returns a block model with exactly the given edge probabilities, where every token is a cluster."""
    p = torch.as_tensor(probability, dtype=torch.float64)
    eye = torch.eye(len(p), dtype=torch.float64)[None, None]
    return BlockModel(eye, p[None], eye)


@pytest.mark.parametrize("n_keys, tolerance", [(7, 0.1), (64, 1e-4)])
def test_the_scale_suffices_for_the_worst_scores_and_others(n_keys, tolerance):
    scale = expectation.sharpening_scale(n_keys, 0.3, tolerance)
    worst = torch.full((n_keys,), -1.0, dtype=torch.float64)
    worst[n_keys // 2] += 0.3
    others = torch.minimum(torch.randn(20, n_keys, generator=torch.Generator().manual_seed(0)).double(), worst)
    others[:, n_keys // 2] = worst.max()
    assert 1 - (scale * worst).softmax(-1).max() == pytest.approx(tolerance, rel=1e-9)
    assert (1 - (scale * others).softmax(-1).amax(-1) <= tolerance + 1e-12).all()
    assert expectation.sharpening_scale(1, 0.3, tolerance) == 0


@pytest.mark.parametrize("self_loop", [True, False])
def test_means_over_masks_are_what_enumeration_gives(self_loop):
    def softmax(mask):
        weight = np.exp(scores) * mask
        return weight / weight.sum() if weight.sum() else weight

    p, scores = [0.2, 0.9, 0.5, 1.0, 0.0], np.array([0.3, -1.0, 2.0, 0.0, 5.0])
    values = np.array([[1.0, 0.0], [2.0, -1.0], [0.0, 4.0], [3.0, 3.0], [9.0, 9.0]])
    law = np.array([1.0 if self_loop else 0.2, *p[1:]])
    mean = np.zeros(2)
    for mask in product((0, 1), repeat=5):
        chance = np.prod([q if bit else 1 - q for bit, q in zip(mask, law, strict=True)])
        mean += chance * softmax(np.array(mask)) @ values
    means = expectation.mask_means(p, values.tolist(), scores.tolist(), self_loop)
    np.testing.assert_allclose(means, (mean, softmax(law > 0) @ values, softmax(law) @ values), rtol=1e-12)
    assert expectation.mask_means(0, [1.0, 2.0], [0.0, 0.0], self_loop=False).expectation == 0


def test_the_exact_expectation_is_the_mean_over_each_row_s_masks_under_the_sampler_s_law():
    model = model_of([[0.3, 0.8, 0.1], [0.5, 0.0, 1.0], [0.25, 0.6, 0.9]])
    query, key, value = torch.randn(3, 3, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores, loops = query @ key.mT, torch.eye(3, dtype=torch.bool)

    def attend(edges):
        return scores.masked_fill(~(edges.to_dense()[0, 0] | loops), -math.inf).softmax(-1) @ value

    for sampler in ("exact", "fastrg"):
        exact, law = expectation.exact_expectation(attend, model, sampler), edge_law(model, sampler)[0, 0]
        for i in range(3):
            order = [i, *(j for j in range(3) if j != i)]
            row = expectation.mask_means(law[i, order].tolist(), value[order].tolist(), scores[i, order].tolist())
            np.testing.assert_allclose(exact[i].numpy(), row.expectation, rtol=1e-12)


def test_errors_are_those_of_means_over_the_draws():
    def columns(edges):
        return edges.to_dense()[0, 0].sum(0).double()

    model, truth = model_of([[0.5, 0.2], [0.0, 0.9]]), torch.tensor([0.5, 1.0], dtype=torch.float64)
    one, other = (torch.Generator().manual_seed(1) for _ in range(2))
    draws = torch.stack([columns(sample_edges(model, generator=one)) for _ in range(15)])
    error = (draws.view(5, 3, 2).mean(1) - truth).square().mean().sqrt()
    found = expectation.error_against_draws(columns, model, [3], 5, truth=truth, generator=other)
    assert found == pytest.approx([float(error)], rel=1e-12)
    assert expectation.decay_exponent([1, 4, 16], [0.5, 0.25, 0.125]) == pytest.approx(-0.5)

"""The block budget against random block models, and explicit models against what they claim to draw."""

import math
from itertools import combinations

import numpy as np
import pytest
import torch

from sbmt.block_model.model import BlockModel
from sbmt.graph.edges import EdgeList
from sbmt.layers import SBMAttention
from theory import realisability
from theory.patterns import blocks, three_patterns
from theory.random_graphs import lemma1_probability
from theory.realisability import attained, block_matrix, edge_law, min_block_size, realise, saturated_heads

PATTERNS = ["A1", "A2", "A3", "full"]
SIZES = [(10, 4), (7, 1), (5, 5)]


def pattern_of(name, n, k, relays="last"):
    return np.ones((n, n), dtype=bool) if name == "full" else three_patterns(n, k, relays)[PATTERNS.index(name)]


def block_means(probability, groups):
    """Mean probability within and across equal groups of consecutive tokens, the diagonal included."""
    n = len(probability)
    same = np.equal.outer(np.arange(n) * groups // n, np.arange(n) * groups // n)
    return probability[same].mean(), probability[~same].mean()


@pytest.mark.parametrize("groups", [2, 5])
def test_no_block_model_exceeds_the_budget(groups):
    generator = torch.Generator().manual_seed(groups)
    for case in range(150):
        k = 1 + case % 7
        power = 4 * torch.rand(1, generator=generator)  # memberships from flat to nearly 0 or 1
        query, key = torch.rand(2, 1, 1, groups * 3, k, generator=generator, dtype=torch.float64) ** power
        if case % 2:
            query, key = query.round(), key.round()
        block = block_matrix(3 * torch.randn(k, k, generator=generator, dtype=torch.float64))
        p_in, p_out = block_means(BlockModel(query, block[None], key).expected_mask()[0, 0].numpy(), groups)
        assert p_in <= realisability.in_block_bound(groups, float(p_out)) + 1e-12
        assert block.trace() >= 1 / k - 1e-12


@pytest.mark.parametrize("groups", [3, 6])
def test_pairs_of_groups_as_clusters_attain_the_budget(groups):
    pairs = list(combinations(range(groups), 2))
    member = torch.tensor([[[[float(g in pair) for pair in pairs] for g in range(groups)]]], dtype=torch.float64)
    model = BlockModel(member, torch.eye(len(pairs)).double()[None] / len(pairs), member)
    p_in, p_out = block_means(model.expected_mask()[0, 0].numpy(), groups)
    assert p_in == pytest.approx(realisability.in_block_bound(groups, float(p_out)), abs=1e-12)
    assert p_out > 0


@pytest.mark.parametrize(
    "law, cap", [("bernoulli", lambda k: 1 / k), ("fastrg", lambda k: 1 - math.exp(-1 / k)), ("poisson", lambda k: 1)]
)
def test_least_block_size_is_the_first_that_fits(law, cap):
    for k in range(1, 60):
        first = next(m for m in range(1, 1000) if lemma1_probability(m) <= cap(k))
        assert min_block_size(k, law) == first


@pytest.mark.parametrize("link", ["bilinear", "poisson"])
def test_block_matrices_are_those_of_the_layer(link):
    layer = SBMAttention(d_head=5, n_heads=2, n_clusters=3, link=link).double()
    x = torch.randn(1, 2, 4, 5, dtype=torch.float64)
    for clusters, block in zip(layer.clusters, layer.block_model(x, x).block_matrix, strict=True):
        torch.testing.assert_close(block_matrix(clusters, link), block)


@pytest.mark.parametrize("relays", ["last", "per_block"])
@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("n, k", SIZES)
def test_the_poisson_link_draws_every_pattern(n, k, name, relays):
    pattern = pattern_of(name, n, k, relays)
    for sampler in ("exact", "fastrg"):
        inside, outside = attained(realise(name, n, k, "poisson", relays=relays), pattern, sampler)
        assert inside > 1 - 1e-15 and outside < 1e-12


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("n, k", SIZES)
def test_the_bilinear_link_draws_blocks_at_the_budget_and_the_rest_nearly_surely(n, k, name):
    model, pattern = realise(name, n, k), pattern_of(name, n, k)
    is_within_one_block = name == "A1" and 1 < k < n
    inside, outside = attained(model, pattern)
    assert inside == pytest.approx(1 / k if is_within_one_block else 1, abs=1e-12) and outside < 1e-12
    inside, _ = attained(model, pattern, "fastrg")
    if not (name == "A1" and k == n):  # then nothing but self-loops is wanted
        assert inside == pytest.approx(1 - math.exp(-1 / k if is_within_one_block else -1), abs=1e-12)


@pytest.mark.parametrize("relays", ["last", "per_block"])
@pytest.mark.parametrize("n, k", SIZES[:2])
def test_saturated_heads_unite_to_the_three_patterns(n, k, relays):
    heads = saturated_heads(n, k, relays=relays)
    drawn = [EdgeList.from_dense(head.expected_mask() > 0.5).to_dense()[0, 0].numpy() for head in heads]
    a1, a2, a3 = three_patterns(n, k, relays)
    assert len(heads) == k + 2
    assert np.array_equal(np.logical_or.reduce(drawn[:k]), a1)
    assert np.array_equal(drawn[k] | np.eye(n, dtype=bool), a3)
    assert np.array_equal(drawn[k + 1] | np.eye(n, dtype=bool), a2)
    assert all(np.array_equal(drawn[b], np.outer(blocks(n, k) == b, blocks(n, k) == b)) for b in range(k))


def test_saturated_heads_fail_as_seldom_as_stated():
    n, k, node = 12, 3, 3.0
    missing = 0.0
    for head in saturated_heads(n, k, node):
        p = head.expected_mask()[0, 0]
        missing += float((1 - p)[p > 0.5].sum())
    sizes = np.bincount(blocks(n, k))
    bound = ((sizes**2).sum() + 2 * k * n) * (1 - (1 / (1 + math.exp(-node))) ** 2)
    assert missing == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("sampler, law", [("exact", lambda r: r.clamp(max=1)), ("fastrg", lambda r: 1 - (-r).exp())])
def test_laws_of_rates_beyond_one(sampler, law, make_block_model):
    model = make_block_model(batch=2, heads=1, scale=0.9, is_padded=True)
    rates = model.query_membership @ model.block_matrix @ model.key_membership.mT
    assert (rates > 1).any() and (rates == 0).any()
    torch.testing.assert_close(edge_law(model, sampler), law(rates))

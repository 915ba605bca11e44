"""Masks of other kinds: their laws, and as many edges as asked for."""

import pytest
import torch

import sbmt
from sbmt.experiments.sparsification.masks import (
    CONTROLS,
    MaskedAttention,
    at_rates,
    clustered,
    drawn,
    hashed,
    is_pair,
    local,
)
from sbmt.sparsification.fit import Heads, full_attention
from tests.statistics import binomial_p_values

N, D, HEADS = 24, 8, 2
SHARE = 0.003  # of the suite's false alarms, for each of the tests here


def heads(seed=0, batch=6, is_padded=True, sharpness=2.0):
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (torch.randn(batch, HEADS, N, D, generator=generator) for _ in range(3))
    mask = torch.arange(N) < torch.randint(N // 2, N + 1, (batch, 1), generator=generator) if is_padded else None
    return Heads(sharpness * query, key + 1.0, value, mask, mask)


def density_of(attention, layer):
    """Per query the share of real keys, then the mean over queries."""
    shares = []
    for given in layer:
        real = is_pair(given)
        edges = attention.mask(given)[0] & real
        is_query = real.any(-1)
        shares.append((edges.sum(-1) / real.sum(-1).clamp(min=1))[is_query])
    return torch.cat(shares).mean().item()


@pytest.mark.parametrize("density", [0.1, 0.25])
@pytest.mark.parametrize("name", CONTROLS)
def test_as_many_edges_as_asked_for(name, density):
    layer = [heads(seed) for seed in range(4)]
    found = density_of(CONTROLS[name](layer, density), [heads(seed) for seed in range(20, 32)])
    steps = {"window": 0.06, "hashing": 0.05, "k-means": 0.05, "oracle": 0.02}  # sizes that come in steps
    assert found == pytest.approx(density, abs=steps.get(name, 0.02))


def attention_mass(attention, layer):
    return sum(float((full_attention(g) * (attention.mask(g)[0] & is_pair(g))).sum()) for g in layer)


def test_masks_that_look_at_tokens_see_more_than_those_that_do_not():
    layer, unseen = [heads(seed) for seed in range(4)], [heads(seed) for seed in range(50, 70)]
    seen = {name: attention_mass(make(layer, 0.2), unseen) for name, make in CONTROLS.items()}
    assert seen["oracle"] == max(seen.values())
    for name in ("hashing", "k-means", "ideal rates"):
        assert seen[name] > 1.3 * seen["random"], name
    assert 0.7 < seen["window"] / seen["random"] < 1.5 and 0.7 < seen["window and random"] / seen["random"] < 1.5


@pytest.mark.statistical(share=SHARE)
@pytest.mark.parametrize("attention", [hashed(3, 4), at_rates(5.0), local(1, 0.3)], ids=["hash", "rates", "local"])
def test_edges_are_drawn_with_the_probability_that_is_named(attention, judge):
    given = heads(batch=1, is_padded=False)
    n_draws = 3000
    torch.manual_seed(1)
    found = [attention.mask(given) for _ in range(n_draws)]
    probability = found[0][1]
    count = torch.stack([is_edge for is_edge, _ in found]).sum(0)
    judge(binomial_p_values(count, n_draws, probability.double().expand(count.shape)))


def test_values_are_those_of_full_attention_where_all_pairs_are_edges():
    everything = MaskedAttention(lambda given: (torch.ones_like(is_pair(given)), None))
    given = heads()
    wanted = given.attend(sbmt.build_attention("full", d_head=D, n_heads=HEADS))
    found = given.attend(everything)
    torch.testing.assert_close(found.values, wanted.values, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.density, wanted.density)


@pytest.mark.statistical(share=SHARE)
def test_drawn_edges_are_reweighted(judge):
    """Two keys of equal score, of which one is certain and the other has probability ¼: it weighs 4 times as much."""
    uneven = MaskedAttention(lambda given: drawn(torch.tensor([1.0, 0.25]).expand(is_pair(given).shape)))
    same = torch.ones(20000, 1, 1, D)
    value = torch.tensor([0.0, 1.0])[None, None, :, None].expand(20000, 1, 2, 1)
    torch.manual_seed(2)
    output = Heads(same, same.expand(-1, -1, 2, -1), value, None, None).attend(uneven).values.flatten()
    is_read = output > 0
    torch.testing.assert_close(output[is_read], torch.full_like(output[is_read], 4 / 5))
    judge(binomial_p_values(is_read.sum(), 20000, 0.25))


def test_a_query_reads_the_clusters_it_scores_highest():
    centroids = torch.eye(D)[None, :3].repeat(HEADS, 1, 1)
    key = torch.eye(D)[torch.tensor([0, 1, 2, 0])].expand(1, HEADS, 4, D)
    query = torch.eye(D)[torch.tensor([0, 2])].expand(1, HEADS, 2, D)
    edges = clustered(centroids, 1).mask(Heads(query, key, key, None, None))[0]
    assert edges[0, 0].tolist() == [[True, False, False, True], [False, False, True, False]]

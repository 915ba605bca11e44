"""Tests the laws and densities of other kinds of masks."""

from functools import partial

import pytest
import torch

import sbmt
from sbmt.experiments.sparsification.compare import CONTROLS, MaskedAttention, ideal_rates, is_pair, tuned, with_masks
from sbmt.sparsification.fit import Heads, full_attention
from tests.statistics import binomial_p_values

N, D, HEADS = 24, 8, 2
SHARE = 0.003  # share of the suite's false alarms for each test here


def heads(seed=0, batch=6, is_padded=True, sharpness=2.0):
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (torch.randn(batch, HEADS, N, D, generator=generator) for _ in range(3))
    mask = torch.arange(N) < torch.randint(N // 2, N + 1, (batch, 1), generator=generator) if is_padded else None
    return Heads(sharpness * query, key + 1.0, value, mask, mask)


def edges_of(attention, given):
    """Returns the keys that a query reads, found with one-hot values."""
    one_hot = torch.eye(given.key.shape[2]).expand(*given.key.shape[:2], -1, -1)
    return given._replace(value=one_hot).attend(attention).values > 0


@pytest.mark.parametrize("density", [0.1, 0.25])
@pytest.mark.parametrize("name", CONTROLS)
def test_as_many_edges_as_asked_for(name, density):
    """The density is the share of real keys that are kept, averaged over real queries."""
    attention, shares = tuned(name, [heads(seed) for seed in range(4)], density), []
    for given in map(heads, range(20, 32)):
        real = is_pair(given)
        edges = edges_of(attention, given)
        assert not (edges & ~real).any()
        shares.append((edges.sum(-1) / real.sum(-1).clamp(min=1))[real.any(-1)])
    in_steps = {"window": 0.06, "window and both ends": 0.06}  # two more keys per query
    assert torch.cat(shares).mean().item() == pytest.approx(density, abs=in_steps.get(name, 0.02))


def attention_mass(attention, layer):
    return sum(float((full_attention(g) * edges_of(attention, g)).sum()) for g in layer)


def test_masks_that_look_at_tokens_see_more_than_those_that_do_not():
    layer, unseen = [heads(seed) for seed in range(4)], [heads(seed) for seed in range(50, 70)]
    seen = {name: attention_mass(tuned(name, layer, 0.2), unseen) for name in CONTROLS}
    assert seen["oracle"] == max(seen.values()) and seen["ideal rates"] > 1.3 * seen["random"]
    assert 0.7 < seen["window"] / seen["random"] < 1.5 and 0.7 < seen["window and both ends"] / seen["random"] < 1.5


@pytest.mark.parametrize(("n_real", "reach"), [(12, 1), (7, 0)])  # closest to 0.4 of the pairs
def test_a_window_and_both_ends_are_those_of_real_tokens(n_real, reach):
    tokens, real = torch.randn(1, 1, 12, 4), torch.arange(12)[None] < n_real
    given = Heads(tokens, tokens, tokens, real, real)
    edges = tuned("window and both ends", [given], 0.4).probability(given)[0, 0, :n_real, :n_real]
    place = torch.arange(n_real)
    distance = (place[:, None] - place).abs()
    is_end = (place == 0) | (place == n_real - 1)
    assert torch.equal(edges, ((distance <= reach) | is_end).float())


@pytest.mark.statistical(share=SHARE)
def test_edges_are_drawn_with_their_probability(judge):
    given = heads(batch=1, is_padded=False)
    attention, n_draws = MaskedAttention(partial(ideal_rates, 5.0)), 3000
    torch.manual_seed(1)
    many = Heads(*(x.expand(n_draws, -1, -1, -1) for x in given[:3]), None, None)
    count = edges_of(attention, many).sum(0)
    probability = 1 - torch.exp(-5.0 * full_attention(given)[0].double())
    judge(binomial_p_values(count, n_draws, probability))


def test_values_are_those_of_full_attention_where_all_pairs_are_edges():
    everything = MaskedAttention(lambda given: torch.ones(is_pair(given).shape))
    given = heads()
    wanted = given.attend(sbmt.build_attention("full", d_head=D, n_heads=HEADS))
    found = given.attend(everything)
    torch.testing.assert_close(found.values, wanted.values, rtol=0, atol=1e-5)
    torch.testing.assert_close(found.density, wanted.density)


@pytest.mark.statistical(share=SHARE)
@pytest.mark.parametrize(("reweight", "weight"), [(0.005, 4), (0.5, 2), (False, 1)])
def test_drawn_edges_are_reweighted(judge, reweight, weight):
    """Of two keys of equal score, one is certain and the other has probability ¼, so its weight is up to 4 times."""
    uneven = MaskedAttention(lambda given: torch.tensor([1.0, 0.25]).expand(is_pair(given).shape), reweight)
    same = torch.ones(20000, 1, 1, D)
    value = torch.tensor([0.0, 1.0])[None, None, :, None].expand(20000, 1, 2, 1)
    torch.manual_seed(2)
    output = Heads(same, same.expand(-1, -1, 2, -1), value, None, None).attend(uneven).values.flatten()
    is_read = output > 0
    torch.testing.assert_close(output[is_read], torch.full_like(output[is_read], weight / (weight + 1)))
    judge(binomial_p_values(is_read.sum(), 20000, 0.25))


@pytest.mark.parametrize("reweight", [0.2, False])
def test_all_masks_of_a_network_are_reweighted_alike(reweight):
    model = torch.nn.TransformerEncoderLayer(D, HEADS, 16, batch_first=True).eval()
    sparse = sbmt.sparsify(model, edges_per_query=3.0, n_clusters=8, reweight=reweight)
    batch = torch.randn(2, N, D, generator=torch.Generator().manual_seed(0))
    others = [masked for kind, masked in with_masks(model, sparse, [batch]) if kind in CONTROLS]
    assert [masked.self_attn.attention.reweight for masked in others] == [reweight] * len(CONTROLS)

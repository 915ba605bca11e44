"""Reformer's attention is what its paper says, token by token."""

from itertools import product

import pytest
import torch

from sbmt.baselines import reformer
from sbmt.baselines.reformer import ReformerAttention, attend_rounds, find_pairs
from sbmt.counter_rng import draw_seed
from sbmt.errors import SbmtError
from tests.attention.row_loop import attend_row_by_row
from tests.baselines.cases import same_values_and_gradients
from tests.layers.inputs import seeded, tokens

N, CHUNK = 12, 4
PREFIX = torch.arange(N) < torch.tensor([[N], [7], [4], [1], [0]])
SCATTERED = torch.rand(5, N, generator=seeded(3)) < 0.6
SELF_PENALTY = 5e4


def pairs_token_by_token(bucket, real, n_chunk):
    """For one graph and round: the set of keys of every real token, itself left out."""
    order = sorted((token for token in range(len(bucket)) if real[token]), key=lambda token: (bucket[token], token))
    chunks = [order[start : start + n_chunk] for start in range(0, len(order), n_chunk)]
    found = {}
    for place, chunk in enumerate(chunks):
        near = {*chunk, *chunks[place - 1]}  # Python's chunks[-1] is the last one
        for token in chunk:
            found[token] = {other for other in near if bucket[other] == bucket[token]} - {token}
    return found


def attend_token_by_token(query, value, bucket, real, n_chunk):
    """The original's formula, with its log-multiplicities and its penalty on self-attention; and the mask."""
    batch, heads, n, _ = query.shape
    mask = torch.zeros(batch, heads, n, n, dtype=torch.bool)
    values = torch.zeros(batch, heads, n, value.shape[-1], dtype=value.dtype)
    for b, h in product(range(batch), range(heads)):
        rounds = [pairs_token_by_token(each.tolist(), real[b].tolist(), n_chunk) for each in bucket[b, h]]
        rows = []
        for i in range(n):
            if not real[b, i]:
                rows.append(torch.zeros_like(value[b, h, 0]))
                continue
            outputs, normalisers = [], []
            for found in rounds:
                keys = [*found[i], i]
                times = torch.tensor([len(rounds) if j == i else sum(j in r[i] for r in rounds) for j in keys])
                unit = query[b, h, keys] / query[b, h, keys].norm(dim=-1, keepdim=True)
                logits = unit @ query[b, h, i] - times.double().log()
                logits = logits - torch.tensor([SELF_PENALTY * (j == i) for j in keys], dtype=logits.dtype)
                outputs.append(torch.softmax(logits, 0) @ value[b, h, keys])
                normalisers.append(logits.logsumexp(0))
            rows.append(torch.softmax(torch.stack(normalisers), 0) @ torch.stack(outputs))
            mask[b, h, i, list(set().union(*(r[i] for r in rounds)) or {i})] = True
        values = values.index_put((torch.tensor(b), torch.tensor(h)), torch.stack(rows))
    return values, mask


def case(batch, n=N):
    query, value = tokens(batch, 2, n, 4, dtype=torch.float64), tokens(batch, 2, n, 3, seed=1, dtype=torch.float64)
    return query.requires_grad_(), value.requires_grad_()


@pytest.mark.parametrize(
    "real, n_hashes, n_buckets", [(PREFIX, 1, 1), (PREFIX, 4, 3), (SCATTERED, 2, 3), (SCATTERED, 2, 30)]
)
def test_given_buckets_it_is_the_loop_over_tokens(real, n_hashes, n_buckets):
    query, value = case(5)
    bucket = torch.randint(n_buckets, (5, 2, n_hashes, N), generator=seeded())
    loop, mask = attend_token_by_token(query, value, bucket, real, CHUNK)
    rounds = find_pairs(bucket, real, CHUNK)
    values = attend_rounds(query, value, rounds).masked_fill(~real[:, None, :, None], 0.0)
    same_values_and_gradients(values, loop, [query, value])
    times = torch.zeros(mask.shape, dtype=torch.long)
    for each in rounds:
        for at in each.is_attended.nonzero().tolist():
            b, h, c, i, j = at
            times[b, h, each.queries[b, h, c, i], each.keys[b, h, c, j]] += 1
    assert torch.equal(times, mask.long())


@pytest.mark.parametrize("n", [13, 5, 3])
def test_the_layer_is_the_loop_over_tokens(n, monkeypatch):
    """Also where chunks do not divide the length, and what stands at padding is not a number."""
    seen = []
    hash_tokens = reformer.hash_tokens
    monkeypatch.setattr(reformer, "hash_tokens", lambda *inputs: seen.append(hash_tokens(*inputs)) or seen[0])
    query, value = case(3, n)
    real = torch.arange(n) < torch.tensor([[n], [2], [0]])
    dirty = [x.masked_fill(~real[:, None, :, None], torch.nan) for x in (query, value)]
    layer = ReformerAttention(4, 2, n_hashes=3, n_chunk=4)
    out = layer(dirty[0], dirty[0], dirty[1], query_mask=real, key_mask=real, return_edges=True)
    loop, mask = attend_token_by_token(query, value, seen[0][..., :n], real, 4)
    assert 0 < mask[0].sum() and (n < 13 or mask[0].sum() < n * n)  # of 2 n²: hashing does leave something out
    same_values_and_gradients(out.values, loop, [query, value])
    assert torch.equal(out.edges.to_dense(), mask)
    by_hand = mask.sum((2, 3)) / torch.tensor([n**2, 4, 1])[:, None]
    torch.testing.assert_close(out.density, by_hand)
    assert torch.equal(out.density, out.edges.density()) and torch.equal(out.expected_density, out.density)


@pytest.mark.parametrize("n_hashes", [1, 3])
def test_with_one_bucket_and_one_chunk_it_is_full_attention(n_hashes):
    query, value = case(2)
    rounds = find_pairs(torch.zeros(2, 2, n_hashes, N, dtype=torch.long), torch.ones(2, N, dtype=torch.bool), N)
    unit = query / query.norm(dim=-1, keepdim=True)
    others = ~torch.eye(N, dtype=torch.bool).expand(2, 2, N, N)
    full = attend_row_by_row(2 * query, unit, value, others)  # the row loop divides by √4
    same_values_and_gradients(attend_rounds(query, value, rounds), full, [query, value])


def test_the_bucket_is_the_nearest_of_the_rotated_axes_in_use():
    x, rotations = tokens(2, 3, 20, 4), torch.randn(3, 2, 4, 6, generator=seeded())
    bucket = reformer.hash_tokens(x, rotations, torch.tensor([6, 2]))
    for b, h, r, i in product(range(2), range(3), range(2), range(20)):
        products = (x[b, h, i] @ rotations[h, r]).tolist()
        used = range((6, 2)[b])
        scored = {column: products[column] for column in used} | {6 + column: -products[column] for column in used}
        assert bucket[b, h, r, i] == max(scored, key=scored.get)


def test_the_key_is_not_looked_at():
    x, key = tokens(n=30), tokens(n=30, seed=1).requires_grad_()
    layer = ReformerAttention(4, 3, n_chunk=4)
    first, second = (layer(x, k, x, generator=seeded()).values for k in (x, torch.full_like(key, torch.nan)))
    assert torch.equal(first, second)
    assert not layer(x, key, x).values.requires_grad


def test_the_same_generator_gives_the_same_hashes_and_one_seed_is_drawn():
    x, layer = tokens(n=30), ReformerAttention(4, 3, n_chunk=4, dropout=0.3).eval()
    generator, other = seeded(), seeded()
    first, second = layer(x, x, x, generator=generator), layer(x, x, x, generator=generator)
    assert torch.equal(first.values, layer(x, x, x, generator=seeded()).values)
    assert not torch.equal(first.density, second.density)
    draw_seed(other), draw_seed(other)
    assert torch.equal(generator.get_state(), other.get_state())
    layer.train()(x, x, x, generator=generator)
    draw_seed(other)
    assert torch.equal(generator.get_state(), other.get_state())


def test_dropout_keeps_the_mean():
    x, value = tokens(8, 3, 64), torch.ones(8, 3, 64, 4)
    dropped = ReformerAttention(4, 3, n_chunk=8, dropout=0.25)(x, x, value, generator=seeded()).values
    assert 0.1 < (dropped - 1).abs().mean() and abs(dropped.mean() - 1) < 0.05


def test_every_head_and_round_hashes_on_its_own():
    x = tokens(1, 1, 64).expand(1, 3, 64, 4)
    masks = ReformerAttention(4, 3, n_hashes=1, n_chunk=8)(x, x, x, return_edges=True).edges.to_dense()[0]
    assert not torch.equal(masks[0], masks[1]) and not torch.equal(masks[1], masks[2])
    densities = [ReformerAttention(4, 3, n_hashes=r, n_chunk=8)(x, x, x, generator=seeded()).density for r in (1, 4)]
    assert (densities[1] > 1.5 * densities[0]).all()


def test_buckets_follow_the_real_length():
    """With one chunk of real tokens there are two buckets, however much padding follows: tokens meet half of all."""
    x = torch.nn.functional.pad(tokens(400, 1, 6, 8), (0, 0, 0, 42))
    real = (torch.arange(48) < 6).expand(400, 48)
    layer = ReformerAttention(8, 1, n_hashes=1, n_chunk=6)
    out = layer(x, x, x, query_mask=real, key_mask=real, return_edges=True)
    others = out.edges.to_dense()[:, 0, :6, :6] & ~torch.eye(6, dtype=torch.bool)
    assert 0.4 < others.sum() / (400 * 30) < 0.6


@pytest.mark.bad_input
def test_it_is_for_self_attention():
    x, layer = tokens(n=5), ReformerAttention(4, 3)
    mask = torch.ones(2, 5, dtype=torch.bool)
    other = mask.clone()
    other[0, 3:] = False
    layer(x, x, x, query_mask=mask)  # None means all real, and that is what it says
    with pytest.raises(SbmtError, match="as many keys as queries, got 5 queries and 4 keys"):
        layer(x, x[:, :, :4], x[:, :, :4])
    for masks in (dict(query_mask=mask, key_mask=other), dict(key_mask=other), dict(query_mask=other)):
        with pytest.raises(SbmtError, match="query_mask and key_mask alike"):
            layer(x, x, x, **masks)

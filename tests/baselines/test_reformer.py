"""Compares Reformer's attention, token by token, with the definition in its paper."""

from itertools import product

import pytest
import torch

from sbmt.baselines import reformer
from sbmt.baselines.reformer import ReformerAttention
from tests.baselines.cases import same_values_and_gradients
from tests.layers.inputs import seeded, tokens

SELF_PENALTY = 5e4


def pairs_token_by_token(bucket, real, n_chunk):
    """Returns, for one graph and round, the set of keys of every real token except the token itself."""
    order = sorted((token for token in range(len(bucket)) if real[token]), key=lambda token: (bucket[token], token))
    chunks = [order[start : start + n_chunk] for start in range(0, len(order), n_chunk)]
    found = {}
    for place, chunk in enumerate(chunks):
        near = {*chunk, *chunks[place - 1]}  # Python's chunks[-1] is the last one
        for token in chunk:
            found[token] = {other for other in near if bucket[other] == bucket[token]} - {token}
    return found


def attend_token_by_token(query, value, bucket, real, n_chunk):
    """Computes the original formula, with its log-multiplicities and self-attention penalty, and the mask."""
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


@pytest.mark.parametrize("n, n_hashes, n_buckets", [(13, 3, None), (3, 3, None), (12, 4, 1), (12, 2, 3), (9, 2, 30)])
def test_it_is_the_loop_over_tokens(n, n_hashes, n_buckets, monkeypatch):
    """Tests given and computed buckets, lengths that are no multiple of the chunks, and NaN at padding."""
    seen, hash_tokens = [], reformer.hash_tokens

    def hash_and_keep(x, *inputs):
        given = n_buckets and torch.randint(n_buckets, (4, 2, n_hashes, x.shape[2]), generator=seeded())
        seen.append(hash_tokens(x, *inputs) if given is None else given)
        return seen[-1]

    monkeypatch.setattr(reformer, "hash_tokens", hash_and_keep)
    query, value = (tokens(4, 2, n, d, seed=d, dtype=torch.float64).requires_grad_() for d in (4, 3))
    real = torch.rand(4, n, generator=seeded(3)) < torch.tensor([[1.0], [0.7], [0.3], [0.0]])
    dirty = [x.masked_fill(~real[:, None, :, None], torch.nan) for x in (query, value)]
    layer = ReformerAttention(4, 2, n_hashes=n_hashes, n_chunk=4)
    key = torch.rand(4, 2, n, 4)  # this position is never read
    out = layer(dirty[0], key, dirty[1], query_mask=real, key_mask=real, return_edges=True)
    loop, mask = attend_token_by_token(query, value, seen[0][..., :n], real, min(n, 4))
    assert 0 < mask[0].sum() and (n < 13 or mask[0].sum() < n * n)  # of 2 n², so hashing leaves pairs out
    same_values_and_gradients(out.values, loop, [query, value])
    assert torch.equal(out.edges.to_dense(), mask)
    torch.testing.assert_close(out.density, mask.sum((2, 3)) / real.sum(1).square().clamp(min=1)[:, None])
    assert torch.equal(out.density, out.edges.density()) and torch.equal(out.expected_density, out.density)


def test_the_bucket_is_the_nearest_of_the_rotated_axes_in_use():
    x, rotations = tokens(2, 3, 20, 4), torch.randn(3, 2, 4, 6, generator=seeded())
    bucket = reformer.hash_tokens(x, rotations, torch.tensor([6, 2]))
    for b, h, r, i in product(range(2), range(3), range(2), range(20)):
        products = (x[b, h, i] @ rotations[h, r]).tolist()
        used = range((6, 2)[b])
        scored = {column: products[column] for column in used} | {6 + column: -products[column] for column in used}
        assert bucket[b, h, r, i] == max(scored, key=scored.get)

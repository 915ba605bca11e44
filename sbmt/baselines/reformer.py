"""Reformer's attention, in which tokens attend to tokens that a random hash places near them."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor
from torch.nn.functional import pad

from sbmt.baselines.base import Baseline, Inputs, all_real
from sbmt.counter_rng import draw_seed
from sbmt.errors import SbmtError, check_sizes
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import share_of_pairs
from sbmt.types import AttentionOutput


class HashRound(NamedTuple):
    """The result of one round of hashing: tokens sorted by bucket and cut into chunks, and the pairs found there."""

    queries: Int[Tensor, "batch heads chunks size"]
    keys: Int[Tensor, "batch heads chunks twice_size"]
    is_attended: Bool[Tensor, "batch heads chunks size twice_size"]
    place: Int[Tensor, "batch heads n"]  # position of each token in the sorted order


def hash_tokens(query: Tensor, rotations: Tensor, half_buckets: Tensor) -> Tensor:
    r"""Returns the bucket $\arg\max\,[x R \mid -x R]$ of each token in each round, ``(batch, heads, rounds, n)``."""
    # R: heads rounds d columns; each example uses only the first half_buckets columns
    is_unused = torch.arange(rotations.shape[-1], device=query.device) >= half_buckets[:, None]  # batch columns
    rotated = query.detach()[:, :, None] @ rotations.to(query.dtype)  # batch heads rounds n columns
    both = torch.cat([rotated, -rotated], -1)
    return both.masked_fill(is_unused.repeat(1, 2)[:, None, None, None], float("-inf")).argmax(-1)


def find_pairs(bucket: Tensor, is_real: Tensor, n_chunk: int) -> list[HashRound]:
    """Finds pairs with the same bucket in the same or the previous chunk; each counts in the first round that finds it.

    A token attends to itself, in the first round, only if no round finds another token. Padding is sorted to the end
    and ignored; the chunk before the first is the last one with real tokens. ``n_chunk`` divides n.
    """
    batch, heads, n_hashes, n_tokens = bucket.shape
    n_chunks, device = n_tokens // n_chunk, bucket.device
    bucket = torch.where(is_real[:, None, None], bucket, bucket.amax() + 1)
    order = (bucket * n_tokens + torch.arange(n_tokens, device=device)).argsort(-1)
    place = order.argsort(-1)
    last = (is_real.sum(1) - 1).clamp(min=0) // n_chunk  # batch
    before = (torch.arange(n_chunks, device=device) - 1).repeat(batch, 1)  # batch chunks
    before[:, 0] = last
    before = before[:, None].expand(-1, heads, -1)
    own = bucket * n_chunks + place // n_chunk  # numbers the part of each bucket in each chunk
    back = bucket * n_chunks + before[:, :, None].expand(-1, -1, n_hashes, -1).gather(-1, place // n_chunk)

    def is_found(number: int, queries: Tensor, keys: Tensor) -> Tensor:
        theirs = _look_up(own[:, :, number], keys)[..., None, :]
        mine, before_mine = (_look_up(part[:, :, number], queries)[..., None] for part in (own, back))
        return (theirs == mine) | (theirs == before_mine)

    rounds = []
    has_other = torch.zeros((batch, heads, n_tokens), dtype=torch.bool, device=device)
    real = is_real[:, None].expand(-1, heads, -1)
    for number in range(n_hashes):
        queries = order[:, :, number].unflatten(-1, (n_chunks, n_chunk))
        keys = torch.cat([queries, queries.gather(2, before[..., None].expand_as(queries))], -1)
        is_attended = (queries[..., None] != keys[..., None, :]) & _look_up(real, queries)[..., None]
        is_attended[..., n_chunk:] &= (last > 0)[:, None, None, None, None]  # a single chunk has no predecessor
        is_attended &= is_found(number, queries, keys)
        for earlier in range(number):
            is_attended &= ~is_found(earlier, queries, keys)
        rounds.append(HashRound(queries, keys, is_attended, place[:, :, number]))
        has_other |= _look_up(is_attended.any(-1).flatten(2), place[:, :, number])
    itself = torch.eye(n_chunk, 2 * n_chunk, dtype=torch.bool, device=device)
    rounds[0].is_attended.logical_or_(itself & _look_up(real & ~has_other, rounds[0].queries)[..., None])
    return rounds


def attend_rounds(query: Tensor, value: Tensor, rounds: list[HashRound], dropout: float, source: Generator) -> Tensor:
    r"""Attends to pairs of all rounds: $\sum_r e^{z^r_i - z_i} o^r_i$, where $z^r$ is the log-sum-exp of a round."""
    length = torch.linalg.vector_norm(query, dim=-1, keepdim=True)
    unit = query / length.masked_fill(length == 0, 1.0)
    nothing = torch.finfo(query.dtype).min  # not -inf, so that tokens without pairs stay finite
    outputs, normalisers = [], []
    for queries, keys, is_attended, place in rounds:
        mine, theirs, values = _look_up(query, queries), _look_up(unit, keys), _look_up(value, keys)
        scores = (mine @ theirs.mT).masked_fill(~is_attended, nothing)  # batch heads chunks size twice_size
        weights = torch.softmax(scores, -1)
        if dropout > 0:
            uniform = torch.rand(weights.shape, generator=source, device=weights.device)
            weights = weights * (uniform >= dropout) / (1 - dropout)
        outputs.append(_look_up((weights @ values).flatten(2, 3), place))
        normalisers.append(_look_up(scores.logsumexp(-1).flatten(2), place))
    shares = torch.softmax(torch.stack(normalisers), 0)[..., None]  # rounds batch heads n 1
    return (shares * torch.stack(outputs)).sum(0)


def _look_up(x: Tensor, tokens: Tensor) -> Tensor:
    """Returns the entries of x, ``(batch, heads, n)`` or ``(batch, heads, n, d)``, for these tokens."""
    index = tokens.flatten(2) if x.dim() == 3 else tokens.flatten(2)[..., None].expand(-1, -1, -1, x.shape[3])
    return x.gather(2, index).unflatten(2, tokens.shape[2:])


class ReformerAttention(Baseline):
    r"""Non-causal softmax attention over the pairs that locality-sensitive hashing finds.

    In each round, tokens are sorted by the bucket $\arg\max\,[x R \mid -x R]$ of their query $x$ and cut into chunks.
    The matrix $R \in \mathbb{R}^{d \times b/2}$ is drawn anew for each call, head and round. A token attends to the
    tokens of its bucket in its own and the previous chunk. If $P_i$ is the set of keys found in any round,

    $$y_i = \sum_{j \in P_i} \frac{\exp(x_i \cdot x_j / \lVert x_j \rVert)}{Z_i}\, v_j, \quad
    P_i = \{i\} \text{ if nothing else is found, otherwise } i \notin P_i.$$

    The query also serves as the key: **the argument** ``key`` **is ignored**.

    Args:
        n_hashes: Number of rounds of hashing, at least 1.
        n_chunk: Number of tokens per chunk, at least 1. There are twice as many buckets as chunks.

    Cost: for chunks of c tokens, O(rounds · n · d · (n/c + c) + rounds² · n · c) time and O(rounds · n · (n/c +
    rounds · c)) memory; the term n²/c comes from hashing in one step. Each call draws one int64 from ``generator``.
    Source: Kitaev, Kaiser, Levskaya, "Reformer: The Efficient Transformer" (2020), and the authors' code, where keys
    have length √d before scores are divided by √d, so there is no 1/√d here. Deviations: a pair found in several rounds
    counts once, and a token attends to itself only as a last resort (the original subtracts log(rounds) and a large
    constant, to the same effect); the chunk before the first is the last of the same round; the number of buckets and
    that last chunk depend only on real tokens, so padding does not change any distribution; layers are not reversible.
    """

    is_drawn = True

    def __init__(
        self, d_head: int, n_heads: int, *, n_hashes: int = 2, n_chunk: int = 32, dropout: float = 0.0
    ) -> None:
        super().__init__(d_head, n_heads, dropout=dropout)
        check_sizes(n_hashes=n_hashes, n_chunk=n_chunk)
        self.n_hashes, self.n_chunk = n_hashes, n_chunk

    def attend(self, inputs: Inputs) -> AttentionOutput:
        """Hashes tokens and attends; raises SbmtError if queries and keys differ in number or mask."""
        query, _, value, _, _, dropout, generator, return_edges = inputs
        is_real, is_key = all_real(query, inputs.query_mask), all_real(inputs.key, inputs.key_mask)
        if not torch.equal(is_real, is_key):
            got = f"{is_real.shape[1]} queries and {is_key.shape[1]} keys"
            raise SbmtError(f"queries and keys must be the same tokens with the same mask, got {got}")
        batch, heads, n_tokens, d_head = query.shape
        n_chunk = min(self.n_chunk, n_tokens)
        n_chunks, more = -(-n_tokens // n_chunk), -n_tokens % n_chunk
        source = Generator(query.device).manual_seed(draw_seed(generator))
        rotations = torch.randn(heads, self.n_hashes, d_head, n_chunks, generator=source, device=query.device)
        half_buckets = (-(-is_real.sum(1) // n_chunk)).clamp(min=1)  # one per chunk with real tokens
        x, values = (pad(tokens, (0, 0, 0, more)) for tokens in (query, value))
        rounds = find_pairs(hash_tokens(x, rotations, half_buckets), pad(is_real, (0, more)), n_chunk)
        values = attend_rounds(x, values, rounds, dropout, source)[:, :, :n_tokens]
        shape = (batch, heads, n_tokens, n_tokens)
        n_attended = torch.stack([each.is_attended.sum((2, 3, 4)) for each in rounds]).sum(0)
        density = share_of_pairs(n_attended, shape, is_real, is_real)
        if not return_edges:
            return AttentionOutput(values, density, density)
        row = torch.arange(batch * heads, device=query.device).view(batch, heads, 1, 1) * n_tokens
        cells = [((row + r.queries)[..., None] * n_tokens + r.keys[..., None, :])[r.is_attended] for r in rounds]
        edges = EdgeList.from_cells(torch.cat(cells).sort().values, shape, is_real, is_real)
        return AttentionOutput(values, density, density, edges)

"""Reformer's attention: tokens attend to those that a random hash places near them."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from sbmt.attention.inputs import check_attention_inputs, check_dropout
from sbmt.baselines.self_attention import directions, one_mask
from sbmt.counter_rng import draw_seed
from sbmt.errors import check_sizes
from sbmt.graph.edges import EdgeList
from sbmt.graph.padding import share_of_pairs
from sbmt.precision import full_precision
from sbmt.registration import option
from sbmt.types import AttentionOutput


class HashRound(NamedTuple):
    """One round of hashing: tokens in the order of their buckets, cut into chunks, and which pairs attend."""

    queries: Int[Tensor, "batch heads chunks size"]
    keys: Int[Tensor, "batch heads chunks twice_size"]
    is_attended: Bool[Tensor, "batch heads chunks size twice_size"]
    place: Int[Tensor, "batch heads n"]  # of every token in that order


def hash_tokens(
    query: Float[Tensor, "batch heads n d"],
    rotations: Float[Tensor, "heads rounds d half_buckets"],
    half_buckets: Int[Tensor, " batch"],
) -> Int[Tensor, "batch heads rounds n"]:
    r"""The bucket $\arg\max\,[x R \mid -x R]$ of every token in every round, in O(rounds · n · d · buckets).

    The rotations R suffice for the longest example; each example uses its first ``half_buckets`` columns.
    """
    is_unused = torch.arange(rotations.shape[-1], device=query.device) >= half_buckets[:, None]  # batch half_buckets
    rotated = query.detach()[:, :, None] @ rotations.to(query.dtype)  # batch heads rounds n half_buckets
    both = torch.cat([rotated, -rotated], -1)
    return both.masked_fill(is_unused.repeat(1, 2)[:, None, None, None], float("-inf")).argmax(-1)


def find_pairs(
    bucket: Int[Tensor, "batch heads rounds n"], is_real: Bool[Tensor, "batch n"], n_chunk: int
) -> list[HashRound]:
    """The pairs that share a bucket within a chunk and the chunk before; each pair in the first round that finds it.

    A token attends to itself only if no round finds another, and then in the first round. Padding is sorted to the end
    and ignored; the chunk before the first is the last one that holds real tokens. ``n_chunk`` divides n.

    Cost: O(rounds² · n · n_chunk).
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
    own = bucket * n_chunks + place // n_chunk  # identifies the part of a bucket that lies in a chunk
    back = bucket * n_chunks + before[:, :, None].expand(-1, -1, n_hashes, -1).gather(-1, place // n_chunk)

    def look_up(per_token: Tensor, tokens: Tensor) -> Tensor:
        return per_token.gather(-1, tokens.flatten(2)).view(tokens.shape)

    def is_found(queries: Tensor, keys: Tensor, own: Tensor, back: Tensor) -> Tensor:
        theirs, mine, before_mine = look_up(own, keys), look_up(own, queries), look_up(back, queries)
        return (theirs[..., None, :] == mine[..., None]) | (theirs[..., None, :] == before_mine[..., None])

    rounds = []
    has_other = torch.zeros((batch, heads, n_tokens), dtype=torch.bool, device=device)
    real = is_real[:, None].expand(-1, heads, -1)
    for current in range(n_hashes):
        queries = order[:, :, current].view(batch, heads, n_chunks, n_chunk)
        keys = torch.cat([queries, queries.gather(2, before[..., None].expand_as(queries))], -1)
        is_attended = (queries[..., None] != keys[..., None, :]) & look_up(real, queries)[..., None]
        is_attended[..., n_chunk:] &= (last > 0)[:, None, None, None, None]  # one chunk is not its own predecessor
        is_attended &= is_found(queries, keys, own[:, :, current], back[:, :, current])
        for earlier in range(current):
            is_attended &= ~is_found(queries, keys, own[:, :, earlier], back[:, :, earlier])
        rounds.append(HashRound(queries, keys, is_attended, place[:, :, current]))
        has_other |= is_attended.any(-1).flatten(2).gather(-1, place[:, :, current])
    itself = torch.eye(n_chunk, 2 * n_chunk, dtype=torch.bool, device=device)
    rounds[0].is_attended.logical_or_(itself & look_up(real & ~has_other, rounds[0].queries)[..., None])
    return rounds


def attend_rounds(
    query: Float[Tensor, "batch heads n d"],
    value: Float[Tensor, "batch heads n d_value"],
    rounds: list[HashRound],
    *,
    dropout: float = 0.0,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "batch heads n d_value"]:
    r"""Softmax over the pairs of all rounds, $\sum_r e^{z^r_i - z_i}\, o^r_i$ with $z_i = \log \sum_r e^{z^r_i}$.

    $o^r$ is round r's softmax output and $z^r$ its log-normaliser; the score of a pair is
    $x_i \cdot x_j / \lVert x_j \rVert$. Tokens without a pair get finite but meaningless numbers.

    Cost: O(rounds · n · n_chunk · d).
    """
    unit = directions(query)
    nothing = torch.finfo(query.dtype).min  # not -inf: a round without pairs stays finite, then weighs 0
    outputs, normalisers = [], []
    for queries, keys, is_attended, place in rounds:
        mine, theirs, values = (_take(x, tokens) for x, tokens in ((query, queries), (unit, keys), (value, keys)))
        scores = (mine @ theirs.mT).masked_fill(~is_attended, nothing)  # batch heads chunks size twice_size
        weights = torch.softmax(scores, -1)
        if dropout > 0:
            uniform = torch.rand(weights.shape, generator=generator, device=weights.device)
            weights = weights * (uniform >= dropout) / (1 - dropout)
        outputs.append(_take((weights @ values).flatten(2, 3), place))
        normalisers.append(scores.logsumexp(-1).flatten(2).gather(-1, place))
    shares = torch.softmax(torch.stack(normalisers), 0)[..., None]  # rounds batch heads n 1
    return (shares * torch.stack(outputs)).sum(0)


def _take(x: Tensor, tokens: Tensor) -> Tensor:
    index = tokens.flatten(2)[..., None].expand(-1, -1, -1, x.shape[-1])
    return x.gather(2, index).unflatten(2, tokens.shape[2:])


@dataclass(frozen=True)
class ReformerOptions:
    """Options of :class:`ReformerAttention`."""

    n_hashes: int = option(2, "rounds of hashing")
    n_chunk: int = option(32, "tokens per chunk")

    def __post_init__(self) -> None:
        check_sizes(n_hashes=self.n_hashes, n_chunk=self.n_chunk)


class ReformerAttention(nn.Module):
    r"""Softmax attention over the pairs that locality-sensitive hashing finds, without causality.

    In each round, tokens are sorted by the bucket $\arg\max\,[x R \mid -x R]$ of their query $x$ under a random
    $R \in \mathbb{R}^{d \times b/2}$, fresh for every call, head and round, and cut into chunks. A token attends to
    those of its bucket in its chunk and the one before. With $P_i$ the keys that any round finds,

    $$y_i = \sum_{j \in P_i} \frac{\exp(x_i \cdot x_j / \lVert x_j \rVert)}{Z_i}\, v_j, \qquad
    P_i = \{i\} \text{ if nothing else is found, otherwise } i \notin P_i.$$

    The query also serves as the key: **the argument** ``key`` **is ignored**, and the key projection of a surrounding
    layer has no effect.

    Args:
        d_head: Width of a head.
        n_heads: Number of heads.
        n_hashes: Rounds of hashing, at least 1.
        n_chunk: Tokens per chunk, at least 1. There are twice as many buckets as chunks.
        dropout: On the attention weights while training, in [0, 1).

    Each call takes one int64 from ``generator``, from which rotations and dropout are drawn, in eval mode too.
    ``density`` counts every attended pair once.

    Cost: O(rounds · n · d · (n / n_chunk + n_chunk) + rounds² · n · n_chunk) time, O(rounds · n · (n / n_chunk +
    rounds · n_chunk)) memory. The term in n² comes from hashing in one step.

    Source: Kitaev, Kaiser, Levskaya, "Reformer: The Efficient Transformer" (2020), and the authors' code, where keys
    have length √d before the scores are divided by √d; hence no 1/√d here. Deviations: a pair found in several rounds
    counts in the first, while the original subtracts log(number of rounds) in each, which gives the same sum; that a
    token attends to itself only as a last resort is exact, while the original subtracts a large constant; the chunk
    before the first is the last of the same round; the number of buckets and that last chunk depend on an example's
    real tokens only, so padding does not change the distribution of its output. Reversible layers are not included.
    """

    def __init__(
        self, d_head: int, n_heads: int, *, n_hashes: int = 2, n_chunk: int = 64, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_sizes(d_head=d_head, n_heads=n_heads, n_hashes=n_hashes, n_chunk=n_chunk)
        check_dropout(dropout)
        self.d_head, self.n_heads = d_head, n_heads
        self.n_hashes, self.n_chunk, self.dropout = n_hashes, n_chunk, dropout

    def forward(
        self,
        query: Float[Tensor, "batch heads n_queries d"],
        key: Float[Tensor, "batch heads n_keys d"],
        value: Float[Tensor, "batch heads n_keys d_value"],
        *,
        query_mask: Bool[Tensor, "batch n_queries"] | None = None,
        key_mask: Bool[Tensor, "batch n_keys"] | None = None,
        generator: torch.Generator | None = None,
        return_edges: bool = False,
    ) -> AttentionOutput:
        """Hashes and attends; see :class:`~sbmt.layers.SBMAttention` for arguments.

        Raises:
            SbmtError: If tensors or masks do not fit together, or queries and keys differ in number or in their masks.
        """
        check_attention_inputs(query, key, value)
        is_real = one_mask(query, key, query_mask, key_mask)
        _, heads, n_tokens, d_head = query.shape
        n_chunk = min(self.n_chunk, n_tokens)
        n_chunks = -(-n_tokens // n_chunk)
        more = n_chunks * n_chunk - n_tokens
        dtype = torch.promote_types(torch.promote_types(query.dtype, value.dtype), torch.float32)
        x, values = (
            nn.functional.pad(t.to(dtype).masked_fill(~is_real[:, None, :, None], 0.0), (0, 0, 0, more))
            for t in (query, value)
        )
        source = torch.Generator(query.device).manual_seed(draw_seed(generator))
        rotations = torch.randn(heads, self.n_hashes, d_head, n_chunks, generator=source, device=query.device)
        half_buckets = (-(-is_real.sum(1) // n_chunk)).clamp(min=1)  # as many as chunks with real tokens
        with full_precision(query):
            bucket = hash_tokens(x, rotations, half_buckets)
            rounds = find_pairs(bucket, nn.functional.pad(is_real, (0, more)), n_chunk)
            dropout = self.dropout if self.training else 0.0
            values = attend_rounds(x, values, rounds, dropout=dropout, generator=source)[:, :, :n_tokens]
        values = values.masked_fill(~is_real[:, None, :, None], 0.0).to(value.dtype)
        n_attended = torch.stack([each.is_attended.sum((2, 3, 4)) for each in rounds]).sum(0)
        density = share_of_pairs(n_attended, (len(query), heads, n_tokens, n_tokens), is_real, is_real)
        edges = _to_edges(rounds, n_tokens, query_mask, key_mask) if return_edges else None
        return AttentionOutput(values, density, density, edges)

    def extra_repr(self) -> str:
        """The settings in one line."""
        sizes = f"d_head={self.d_head}, n_heads={self.n_heads}, n_hashes={self.n_hashes}, n_chunk={self.n_chunk}"
        return f"{sizes}, dropout={self.dropout}"


def _to_edges(rounds: list[HashRound], n_tokens: int, query_mask: Tensor | None, key_mask: Tensor | None) -> EdgeList:
    batch, heads = rounds[0].keys.shape[:2]
    graph = torch.arange(batch * heads, device=rounds[0].keys.device).view(batch, heads, 1, 1, 1)
    cells = [
        ((graph * n_tokens + each.queries[..., None]) * n_tokens + each.keys[..., None, :])[each.is_attended]
        for each in rounds
    ]
    shape = (batch, heads, n_tokens, n_tokens)
    return EdgeList.from_cells(torch.cat(cells).sort().values, shape, query_mask, key_mask)

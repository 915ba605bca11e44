"""The two parts of each partition that a token is in, and the keys of every cluster, in order of position.

What this computes has static shapes, so nothing is asked of the device. Its plain twins are
:func:`sbmt.block_model.crossed.part_memberships` without compiled loops, and :func:`list_members`.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sbmt.types import not_compiled

CHUNK = 32  # keys that are counted together: a causal query sees whole chunks by cluster, and its own key by key
TOKENS = 64
MOST_CLUSTERS = 256  # of a program


@triton.jit
def _choose_kernel(
    logits, part, weight, n, n_partitions, SIZE: tl.constexpr, PADDED: tl.constexpr, TOKENS: tl.constexpr
):
    graph, f = tl.program_id(1).to(tl.int64), tl.program_id(2)
    a = tl.arange(0, PADDED)[:, None]
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    at = ((graph * n_partitions + f) * SIZE + a) * n + token[None, :]
    x = tl.where(a < SIZE, tl.load(logits + at, (a < SIZE) & (token < n)[None, :], 0.0), -float("inf"))
    first = tl.minimum(tl.argmax(x, 0), SIZE - 1)  # NaN leads anywhere
    largest = tl.max(x, 0)
    second, next_largest = first, largest
    if SIZE > 1:
        rest = tl.where(a == first[None, :], -float("inf"), x)
        second, next_largest = tl.minimum(tl.argmax(rest, 0), SIZE - 1), tl.max(rest, 0)
    share = 1 / (1 + tl.exp(next_largest - largest))
    is_first = first <= second
    out = ((graph * n + token) * n_partitions + f) * 2
    for i in tl.static_range(2):
        chosen = tl.minimum(first, second) if i == 0 else tl.maximum(first, second)
        of_it = tl.where(is_first, share, 1 - share) if i == 0 else tl.where(is_first, 1 - share, share)
        tl.store(part + out + i, (f * SIZE + chosen).to(tl.int16), token < n)
        tl.store(weight + out + i, of_it, token < n)


@triton.jit
def _choose_backward_kernel(
    grad, part, weight, out, n, n_partitions, SIZE: tl.constexpr, PADDED: tl.constexpr, TOKENS: tl.constexpr
):
    graph, f = tl.program_id(1).to(tl.int64), tl.program_id(2)
    a = tl.arange(0, PADDED)[:, None]
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    at, inside = ((graph * n + token) * n_partitions + f) * 2, token < n
    first, second = tl.load(part + at, inside, 0) - f * SIZE, tl.load(part + at + 1, inside, 0) - f * SIZE
    share, rest = tl.load(weight + at, inside, 0.0), tl.load(weight + at + 1, inside, 0.0)
    step = share * rest * (tl.load(grad + at, inside, 0.0) - tl.load(grad + at + 1, inside, 0.0))
    found = tl.where(a == first[None, :], step[None, :], 0.0) - tl.where(a == second[None, :], step[None, :], 0.0)
    to = ((graph * n_partitions + f) * SIZE + a) * n + token[None, :]
    tl.store(out + to, found, (a < SIZE) & inside[None, :])


class ChosenParts(torch.autograd.Function):
    """:func:`~sbmt.block_model.crossed.part_memberships`, one launch each way."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Parts and memberships."""
        batch, heads, n_partitions, size, n = logits.shape
        part = logits.new_empty(batch, heads, n, 2 * n_partitions, dtype=torch.int16)
        weight = logits.new_empty(part.shape)
        grid = triton.cdiv(n, TOKENS), batch * heads, n_partitions
        padded = triton.next_power_of_2(size)
        _choose_kernel[grid](logits.contiguous(), part, weight, n, n_partitions, size, padded, TOKENS)
        ctx.save_for_backward(part, weight)
        ctx.size = size
        ctx.mark_non_differentiable(part)
        return part, weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Gradients of the logits."""
        part, weight = ctx.saved_tensors
        batch, heads, n, n_chosen = part.shape
        out = weight.new_empty(batch, heads, n_chosen // 2, ctx.size, n)
        grid = triton.cdiv(n, TOKENS), batch * heads, n_chosen // 2
        rest = n, n_chosen // 2, ctx.size, triton.next_power_of_2(ctx.size), TOKENS
        _choose_backward_kernel[grid](grads[1].contiguous(), part, weight, out, *rest)
        return out


@not_compiled
def choose_parts(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Parts and memberships of logits ``(batch, heads, partitions, size, n)``."""
    part, weight = ChosenParts.apply(logits)
    return part, weight


@triton.jit
def _rates_kernel(
    part, weight, blocks, out, n, n_heads, n_partitions, SIZE: tl.constexpr, PADDED: tl.constexpr, TOKENS: tl.constexpr
):
    graph, f = tl.program_id(1).to(tl.int64), tl.program_id(2)
    a = tl.arange(0, PADDED)[None, :]
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    row, inside = (graph * n + token) * n_partitions + f, (token < n)[:, None] & (a < SIZE)
    rates = tl.zeros([TOKENS, PADDED], weight.dtype.element_ty)
    for i in tl.static_range(2):
        chosen = tl.load(part + 2 * row + i, token < n, 0) + graph % n_heads * n_partitions * SIZE
        share = tl.load(weight + 2 * row + i, token < n, 0.0)
        rates += share[:, None] * tl.load(blocks + chosen[:, None] * SIZE + a, inside, 0.0)
    tl.store(out + row[:, None] * SIZE + a, rates, inside)


class PartRates(torch.autograd.Function):
    """:attr:`sbmt.block_model.crossed.CrossedModel.part_rates`, without an array of queries in all parts."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, weight: Tensor, blocks: Tensor) -> Tensor:
        """Rates ``(batch, heads, n_queries, parts)``."""
        batch, heads, n, _ = part.shape
        _, n_partitions, size, _ = blocks.shape
        part, weight, blocks = part.contiguous(), weight.contiguous(), blocks.contiguous()
        out = weight.new_empty(batch, heads, n, n_partitions * size)
        sizes = n, heads, n_partitions, size, triton.next_power_of_2(size), TOKENS
        _rates_kernel[(triton.cdiv(n, TOKENS), batch * heads, n_partitions)](part, weight, blocks, out, *sizes)
        ctx.save_for_backward(part, weight, blocks)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, Tensor]:
        """Gradients of memberships and blocks, by matrix products."""
        part, weight, blocks = ctx.saved_tensors
        index = part.long()
        grad = grads[0].unflatten(3, blocks.shape[1:3]).transpose(2, 3)  # batch heads partitions n size
        of_parts = (grad @ blocks.mT).transpose(2, 3).flatten(3)
        chosen = torch.zeros_like(of_parts).scatter_add_(3, index, weight).unflatten(3, blocks.shape[1:3])
        return None, of_parts.gather(3, index), (chosen.permute(0, 1, 3, 4, 2) @ grad).sum(0)


class Members(NamedTuple):
    """The keys of each cluster, in order of position; a graph's cluster (g, a, b) has number (g · size + a) · size + b.

    Attributes:
        n_before: int32 ``(graphs, chunks + 1, clusters)``, keys of a cluster before a chunk; the last is all of them.
        mass: Likewise, the sum of their memberships.
        starts: int32 ``(graphs, clusters)``, where a cluster starts in the next two.
        keys: int32 ``(graphs, 4 · groups · n_keys)``.
        until: The sum of a cluster's memberships up to each of its keys.
    """

    n_before: Tensor
    mass: Tensor
    starts: Tensor
    keys: Tensor
    until: Tensor


@triton.jit
def _in_clusters(
    part, weight, graph, key, n_keys, first_cluster, group, n_groups, SIZE: tl.constexpr, BLOCK: tl.constexpr
):
    """Which keys are in clusters from ``first_cluster`` of the group on, and how much: ``[keys, BLOCK]``."""
    cluster = first_cluster + tl.arange(0, BLOCK)[None, :]
    a, b = cluster // SIZE, cluster % SIZE
    at, inside = ((graph * n_keys + key) * n_groups + group) * 4, key < n_keys
    is_in_first = (a < 0) & (key < 0)[:, None]
    is_in_second = is_in_first
    first = tl.zeros(is_in_first.shape, weight.dtype.element_ty)
    second = first
    for i in tl.static_range(2):
        x = (tl.load(part + at + i, inside, -1) - 2 * group * SIZE)[:, None]
        y = (tl.load(part + at + 2 + i, inside, -1) - (2 * group + 1) * SIZE)[:, None]
        is_in_first |= x == a
        is_in_second |= y == b
        first += tl.where(x == a, tl.load(weight + at + i, inside, 0.0)[:, None], 0.0)
        second += tl.where(y == b, tl.load(weight + at + 2 + i, inside, 0.0)[:, None], 0.0)
    is_in = is_in_first & is_in_second & inside[:, None] & (cluster < SIZE * SIZE)
    return is_in, tl.where(is_in, first * second, 0.0), cluster


@triton.jit
def _count_kernel(
    part, weight, number, mass, n_keys, n_groups, SIZE: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr
):
    chunk, graph = tl.program_id(0), tl.program_id(1).to(tl.int64)
    group, first = tl.program_id(2) % n_groups, tl.program_id(2) // n_groups * BLOCK
    key = chunk * CHUNK + tl.arange(0, CHUNK)
    is_in, share, cluster = _in_clusters(part, weight, graph, key, n_keys, first, group, n_groups, SIZE, BLOCK)
    row = graph * (tl.num_programs(0) + 1) + chunk + 1
    to, inside = (row * n_groups + group) * SIZE * SIZE + cluster, cluster < SIZE * SIZE
    tl.store(number + to, tl.sum(is_in.to(tl.int32), 0)[None, :], inside)
    tl.store(mass + to, tl.sum(share, 0)[None, :], inside)


@triton.jit
def _place_kernel(
    part, weight, number, mass, starts, keys, until, n_keys, n_groups,
    SIZE: tl.constexpr, CHUNK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    chunk, graph = tl.program_id(0), tl.program_id(1).to(tl.int64)
    group, first = tl.program_id(2) % n_groups, tl.program_id(2) // n_groups * BLOCK
    key = chunk * CHUNK + tl.arange(0, CHUNK)
    is_in, share, cluster = _in_clusters(part, weight, graph, key, n_keys, first, group, n_groups, SIZE, BLOCK)
    row = graph * (tl.num_programs(0) + 1) + chunk
    before, inside = (row * n_groups + group) * SIZE * SIZE + cluster, cluster < SIZE * SIZE
    start = tl.load(starts + (graph * n_groups + group) * SIZE * SIZE + cluster, inside, 0)
    place = start + tl.load(number + before, inside, 0) + tl.cumsum(is_in.to(tl.int32), 0) - 1
    to = graph * 4 * n_groups * n_keys + place
    tl.store(keys + to, tl.broadcast_to(key[:, None], to.shape), is_in)
    tl.store(until + to, tl.load(mass + before, inside, 0.0) + tl.cumsum(share, 0), is_in)


def list_members(part: Tensor, weight: Tensor, size: int) -> Members:
    """Sorts keys by cluster; weights of padding are 0. Cost: O(n (chunk + groups · size²)) operations, 3 launches.

    Its plain twin, for each graph: for each cluster, the keys that have both of its parts among their chosen ones.
    """
    batch, heads, n, n_chosen = part.shape
    n_groups, n_chunks = n_chosen // 4, triton.cdiv(n, CHUNK)
    n_clusters = n_groups * size**2
    block = min(MOST_CLUSTERS, triton.next_power_of_2(size**2))
    number = part.new_zeros(batch * heads, n_chunks + 1, n_clusters, dtype=torch.int32)
    mass = weight.new_zeros(number.shape)
    grid = n_chunks, batch * heads, n_groups * triton.cdiv(size**2, block)
    sizes = n, n_groups, size, CHUNK, block
    _count_kernel[grid](part, weight, number, mass, *sizes)
    number, mass = number.cumsum(1, dtype=torch.int32), mass.cumsum(1)
    starts = number[:, -1].cumsum(1, dtype=torch.int32) - number[:, -1]
    keys = number.new_empty(batch * heads, n_chosen * n)
    until = mass.new_empty(keys.shape)
    _place_kernel[grid](part, weight, number, mass, starts, keys, until, *sizes)
    return Members(number, mass, starts, keys, until)

"""From tokens to memberships in crossed partitions, as a fitted layer infers them: two launches, and two backward.

One kernel copies queries and keys into one buffer, queries first, which the layer's MLP maps to nodes. The other
multiplies nodes by clusters, chooses two parts of each partition, and adds up the rates of queries to all parts, so
that neither logits nor memberships in all parts are ever written.

The plain twin is what :class:`sbmt.layers.SBMAttention` does on a CPU, with
:func:`sbmt.block_model.crossed.part_memberships` and :attr:`sbmt.block_model.crossed.CrossedModel.part_rates`.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sbmt.kernels.gpu.tokens import both_masks, rows_of, strided

TOKENS = 64
LEAST_DOT = 16  # the smallest dimension of a matrix product


class Inference(NamedTuple):
    """What memberships are inferred by, besides nodes and parameters."""

    shape: tuple[int, ...]  # (batch, heads, n_queries, n_keys)
    masks: tuple[Tensor | None, Tensor | None]
    n_partitions: int
    start: float  # of the logarithm of rates, where none has been decided
    is_starting: bool  # whether this decides it
    largest: float  # logarithm of a rate between parts


@triton.jit
def _enter_tile(n_queries, n_keys, TOKENS: tl.constexpr):
    """Some queries of a graph, or keys: their places, which of them exist, and their rows among queries or keys."""
    graph = tl.program_id(1).to(tl.int64)
    n_tiles = tl.cdiv(n_queries, TOKENS)
    is_key = tl.program_id(0) >= n_tiles
    n = tl.where(is_key, n_keys, n_queries)
    token = (tl.program_id(0) - tl.where(is_key, n_tiles, 0)) * TOKENS + tl.arange(0, TOKENS)
    first_row = tl.where(is_key, tl.num_programs(1) * n_queries, 0)  # of the buffer
    return graph, is_key, token, token < n, graph * n + token, first_row


@triton.jit
def _is_real(masks, example, token, inside, is_key, n_queries, n_keys):
    query = tl.load(masks[0] + example * n_queries + token, inside & ~is_key, 0) != 0
    return query | (tl.load(masks[1] + example * n_keys + token, inside & is_key, 0) != 0)


@triton.jit
def _join_kernel(
    query, key, masks, out, n_queries, n_keys, n_heads,
    D: tl.constexpr, WIDTH: tl.constexpr, TOKENS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    graph, is_key, token, inside, at, first_row = _enter_tile(n_queries, n_keys, TOKENS)
    example, head, c = graph // n_heads, graph % n_heads, tl.arange(0, WIDTH)[None, :]
    is_read = inside
    if MASKED:
        is_read = _is_real(masks, example, token, inside, is_key, n_queries, n_keys)
    is_read = is_read[:, None] & (c < D)
    if is_key:
        x = tl.load(rows_of(key, example, head, token)[:, None] + c, is_read, 0.0).to(out.dtype.element_ty)
    else:
        x = tl.load(rows_of(query, example, head, token)[:, None] + c, is_read, 0.0).to(out.dtype.element_ty)
    tl.store(out + (first_row + at)[:, None] * D + c, x, inside[:, None] & (c < D))


def join(query: Tensor, key: Tensor, masks: tuple[Tensor | None, Tensor | None], dtype: torch.dtype) -> Tensor:
    """All queries, then all keys, ``(rows, width)``, with padding set to 0."""
    batch, heads, n_queries, d = query.shape
    n_keys = key.shape[2]
    given = both_masks(*masks, (batch, heads, n_queries, n_keys))
    out = query.new_empty(batch * heads * (n_queries + n_keys), d, dtype=dtype)
    grid = triton.cdiv(n_queries, TOKENS) + triton.cdiv(n_keys, TOKENS), batch * heads
    sizes = n_queries, n_keys, heads, d, triton.next_power_of_2(d), TOKENS, given is not None
    _join_kernel[grid](strided(query), strided(key), tuple(given or (out, out)), out, *sizes)
    return out


@triton.jit
def _centres(clusters, partition, SIZE: tl.constexpr, PADDED: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr):
    """The rows of C of a partition, and where they are."""
    a, c = tl.arange(0, PADDED)[:, None], tl.arange(0, WIDTH)[None, :]
    at, inside = (partition * SIZE + a) * D + c, (a < SIZE) & (c < D)
    return tl.load(clusters + at, inside, 0.0), at, inside


@triton.jit
def _product(x, y):
    return tl.dot(x, y, input_precision="ieee", out_dtype=x.dtype)


@triton.jit
def _memberships_kernel(
    nodes, clusters, log_rate, log_start, masks, part, weight, blocks, rates, n_queries, n_keys, n_heads, start,
    largest, SIZE: tl.constexpr, PADDED: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, TOKENS: tl.constexpr,
    MASKED: tl.constexpr, STARTS: tl.constexpr,
):  # fmt: skip
    graph, is_key, token, inside, at, first_row = _enter_tile(n_queries, n_keys, TOKENS)
    f, n_partitions = tl.program_id(2), tl.num_programs(2)
    a, c = tl.arange(0, PADDED)[None, :], tl.arange(0, WIDTH)[None, :]
    partition = graph % n_heads * n_partitions + f
    centres, _, _ = _centres(clusters, partition, SIZE, PADDED, D, WIDTH)
    real = centres.dtype
    row = first_row + at
    node = tl.load(nodes + row[:, None] * D + c, inside[:, None] & (c < D), 0.0).to(real)
    x = tl.where(a < SIZE, _product(node, tl.trans(centres)), -float("inf"))
    first = tl.minimum(tl.argmax(x, 1), SIZE - 1)  # NaN leads anywhere
    largest_logit = tl.max(x, 1)
    second, next_largest = first, largest_logit
    if SIZE > 1:
        rest = tl.where(a == first[:, None], -float("inf"), x)
        second, next_largest = tl.minimum(tl.argmax(rest, 1), SIZE - 1), tl.max(rest, 1)
    share = 1 / (1 + tl.exp(next_largest - largest_logit))
    lower, upper = tl.minimum(first, second), tl.maximum(first, second)
    of_lower = tl.where(first <= second, share, 1 - share)
    of_upper = 1 - of_lower
    if MASKED:
        is_real = _is_real(masks, graph // n_heads, token, inside, is_key, n_queries, n_keys)
        of_lower, of_upper = tl.where(is_real, of_lower, 0.0), tl.where(is_real, of_upper, 0.0)
    to = (row * n_partitions + f) * 2
    tl.store(part + to, (f * SIZE + lower).to(tl.int16), inside)
    tl.store(part + to + 1, (f * SIZE + upper).to(tl.int16), inside)
    tl.store(weight + to, of_lower, inside)
    tl.store(weight + to + 1, of_upper, inside)
    if not is_key:
        now = tl.load(log_start).to(real)
        now = tl.where(now == 0, start, now).to(real)  # a program that finds what another has decided gets the same
        if STARTS:
            tl.store(log_start, now)
        scores = _product(centres, tl.trans(centres)) + (tl.load(log_rate + graph % n_heads).to(real) + now) / 2
        block = tl.exp(tl.minimum(scores, tl.full([], largest, real), propagate_nan=tl.PropagateNan.ALL)) / 2
        b = tl.arange(0, PADDED)[:, None]
        block = tl.where((b < SIZE) & (a < SIZE), block, 0.0)
        in_parts = _in_parts(a, lower, upper, of_lower, of_upper)
        tl.store(
            rates + (row * n_partitions + f)[:, None] * SIZE + a,
            _product(in_parts, block),
            inside[:, None] & (a < SIZE),
        )
        is_written = (tl.program_id(0) == 0) & (graph < n_heads)
        tl.store(blocks + (partition * SIZE + b) * SIZE + a, block, (b < SIZE) & (a < SIZE) & is_written)


@triton.jit
def _in_parts(a, lower, upper, of_lower, of_upper):
    """What belongs to two parts, in all parts of the partition."""
    x = tl.where(a == lower[:, None], of_lower[:, None], 0.0)
    return x + tl.where(a == upper[:, None], of_upper[:, None], 0.0)


@triton.jit
def _memberships_backward_kernel(
    nodes, clusters, part, weight, blocks, to_rates, to_query, to_key, to_nodes, to_clusters, to_blocks, squares,
    n_queries, n_keys, n_heads, n_partitions, SIZE: tl.constexpr, PADDED: tl.constexpr, D: tl.constexpr,
    WIDTH: tl.constexpr, TOKENS: tl.constexpr, HAS_QUERY: tl.constexpr, HAS_KEY: tl.constexpr,
):  # fmt: skip
    graph, is_key, _, inside, at, first_row = _enter_tile(n_queries, n_keys, TOKENS)
    a, b, c = tl.arange(0, PADDED)[None, :], tl.arange(0, PADDED)[:, None], tl.arange(0, WIDTH)[None, :]
    real = weight.dtype.element_ty
    row = first_row + at
    node = tl.load(nodes + row[:, None] * D + c, inside[:, None] & (c < D), 0.0).to(real)
    found = tl.zeros([TOKENS, WIDTH], real)
    for f in range(n_partitions):
        partition = graph % n_heads * n_partitions + f
        centres, at_centres, is_centre = _centres(clusters, partition, SIZE, PADDED, D, WIDTH)
        mine, own = (row * n_partitions + f) * 2, (at * n_partitions + f) * 2
        lower, upper = tl.load(part + mine, inside, 0) - f * SIZE, tl.load(part + mine + 1, inside, 0) - f * SIZE
        of_lower, of_upper = tl.load(weight + mine, inside, 0.0), tl.load(weight + mine + 1, inside, 0.0)
        to_lower, to_upper = of_lower * 0, of_upper * 0
        if is_key:
            if HAS_KEY:
                to_lower, to_upper = tl.load(to_key + own, inside, 0.0), tl.load(to_key + own + 1, inside, 0.0)
        else:
            at_block, in_block = (partition * SIZE + b) * SIZE + a, (b < SIZE) & (a < SIZE)
            at_rates = (row * n_partitions + f)[:, None] * SIZE + a
            grad = tl.load(to_rates + at_rates, inside[:, None] & (a < SIZE), 0.0)
            in_parts = _in_parts(a, lower, upper, of_lower, of_upper)
            tl.atomic_add(to_blocks + at_block, _product(tl.trans(in_parts), grad), in_block, sem="relaxed")
            through = _product(grad, tl.trans(tl.load(blocks + at_block, in_block, 0.0)))
            to_lower = tl.sum(tl.where(a == lower[:, None], through, 0.0), 1)
            to_upper = tl.sum(tl.where(a == upper[:, None], through, 0.0), 1)
            if HAS_QUERY:
                to_lower += tl.load(to_query + own, inside, 0.0)
                to_upper += tl.load(to_query + own + 1, inside, 0.0)
        step = of_lower * of_upper * (to_lower - to_upper)
        to_logits = _in_parts(a, lower, upper, step, -step)
        found += _product(to_logits, centres)
        tl.atomic_add(to_clusters + at_centres, _product(tl.trans(to_logits), node), is_centre, sem="relaxed")
    tl.store(to_nodes + row[:, None] * D + c, found, inside[:, None] & (c < D))
    tl.atomic_add(
        squares + graph % n_heads * 2 + is_key.to(tl.int32), tl.sum(tl.sum(found * found, 1), 0), sem="relaxed"
    )


@triton.jit
def _one_over_root(square):
    return tl.where(square > 0, 1 / tl.sqrt(tl.where(square > 0, square, 1.0)), 0.0)


@triton.jit
def _finish_kernel(
    clusters, blocks, to_nodes, out, to_clusters, to_blocks, to_log_rate, squares, n_queries, n_keys, n_heads,
    n_partitions, largest,
    SIZE: tl.constexpr, PADDED: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Scales gradients to length 1; the last program of a head first leads those of its blocks on to its clusters."""
    graph, is_key, _, inside, at, first_row = _enter_tile(n_queries, n_keys, TOKENS)
    real = squares.dtype.element_ty
    head = graph % n_heads
    if tl.program_id(0) < tl.num_programs(0) - 1:
        c = tl.arange(0, WIDTH)[None, :]
        places, is_node = (first_row + at)[:, None] * D + c, inside[:, None] & (c < D)
        scale = _one_over_root(tl.load(squares + head * 2 + is_key.to(tl.int32)))
        tl.store(out + places, tl.load(to_nodes + places, is_node, 0.0) * scale, is_node)
    elif graph < n_heads:
        a, b = tl.arange(0, PADDED)[None, :], tl.arange(0, PADDED)[:, None]
        limit = tl.exp(tl.full([], largest, real)) / 2
        to_log, square = limit * 0, limit * 0
        for f in range(n_partitions):
            centres, at_centres, is_centre = _centres(clusters, head * n_partitions + f, SIZE, PADDED, D, WIDTH)
            at_block, in_block = ((head * n_partitions + f) * SIZE + b) * SIZE + a, (b < SIZE) & (a < SIZE)
            block = tl.load(blocks + at_block, in_block, 0.0)
            to_scores = tl.where(block < limit, tl.load(to_blocks + at_block, in_block, 0.0) * block, 0.0)
            to_log += tl.sum(tl.sum(to_scores, 1), 0) / 2
            found = tl.load(to_clusters + at_centres, is_centre, 0.0)
            found += _product(to_scores + tl.trans(to_scores), centres)
            square += tl.sum(tl.sum(found * found, 1), 0)
            tl.store(to_clusters + at_centres, found, is_centre)
        tl.debug_barrier()  # what one thread has written another reads
        for f in range(n_partitions):
            centres, at_centres, is_centre = _centres(clusters, head * n_partitions + f, SIZE, PADDED, D, WIDTH)
            found = tl.load(to_clusters + at_centres, is_centre, 0.0)
            tl.store(to_clusters + at_centres, found * _one_over_root(square), is_centre)
        tl.store(to_log_rate + head, to_log * _one_over_root(to_log * to_log))


class Memberships(torch.autograd.Function):
    """Parts and memberships of queries and of keys, the partitions' blocks, and the queries' rates to all parts.

    Gradients of nodes, clusters and rates are scaled as by :func:`sbmt.block_model.fit.unit_gradient`.
    """

    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, clusters: Tensor, log_rate: Tensor, log_start: Tensor, by: Inference
    ) -> tuple[Tensor, ...]:
        """Nodes are those of :func:`join`'s rows; clusters have the type of computation."""
        batch, heads, n_queries, n_keys = by.shape
        _, n_rows, d = clusters.shape
        n_graphs, size, clusters = batch * heads, n_rows // by.n_partitions, clusters.contiguous()
        part = nodes.new_empty(len(nodes), 2 * by.n_partitions, dtype=torch.int16)
        weight = clusters.new_empty(part.shape)
        blocks = clusters.new_empty(heads, by.n_partitions, size, size)
        rates = clusters.new_empty(batch, heads, n_queries, n_rows)
        n_tiles = triton.cdiv(n_queries, TOKENS) + triton.cdiv(n_keys, TOKENS)
        widths = [max(LEAST_DOT, triton.next_power_of_2(x)) for x in (size, d)]
        tiles, masks = (size, widths[0], d, widths[1], TOKENS), both_masks(*by.masks, by.shape)
        given = (
            nodes.contiguous(),
            clusters,
            log_rate,
            log_start,
            tuple(masks or (part, part)),
            part,
            weight,
            blocks,
            rates,
        )
        sizes = n_queries, n_keys, heads, by.start, by.largest, *tiles, masks is not None, by.is_starting
        _memberships_kernel[(n_tiles, n_graphs, by.n_partitions)](*given, *sizes)
        ctx.save_for_backward(nodes, clusters, part, weight, blocks)
        ctx.rest = by, log_rate.dtype, (n_tiles, n_graphs), tiles
        ctx.set_materialize_grads(False)
        rows = [n_graphs * n_queries, n_graphs * n_keys]
        parts, weights = ([x.unflatten(0, (batch, heads, -1)) for x in both.split(rows)] for both in (part, weight))
        ctx.mark_non_differentiable(*parts)
        return *parts, *weights, blocks, rates

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Sums over tokens are atomic, so their order changes from call to call."""
        _, _, to_query, to_key, given, to_rates = (None if grad is None else grad.contiguous() for grad in grads)
        nodes, clusters, part, weight, blocks = ctx.saved_tensors
        by, dtype, grid, tiles = ctx.rest
        _, heads, *lengths = by.shape
        to_rates = clusters.new_zeros(grid[1] * lengths[0] * clusters.shape[1]) if to_rates is None else to_rates
        numbers = [clusters.numel(), blocks.numel(), heads, 2 * heads]
        to_clusters, to_blocks, to_log_rate, squares = clusters.new_zeros(sum(numbers)).split(numbers)
        if given is not None:
            to_blocks += given.flatten()
        to_nodes = clusters.new_empty(nodes.shape)
        of_parts = to_rates, to_rates if to_query is None else to_query, to_rates if to_key is None else to_key
        sizes, is_given = (*lengths, heads, by.n_partitions), (to_query is not None, to_key is not None)
        read, written = (nodes, clusters, part, weight, blocks), (to_nodes, to_clusters, to_blocks, squares)
        _memberships_backward_kernel[grid](*read, *of_parts, *written, *sizes, *tiles, *is_given)
        out = to_nodes if nodes.dtype == to_nodes.dtype else torch.empty_like(nodes)
        small = to_clusters, to_blocks, to_log_rate, squares
        _finish_kernel[grid[0] + 1, grid[1]](clusters, blocks, to_nodes, out, *small, *sizes, by.largest, *tiles)
        return out, to_clusters.view_as(clusters), to_log_rate.to(dtype), None, None

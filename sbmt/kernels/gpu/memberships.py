"""Infers memberships in crossed partitions as a fitted layer does, with two launches forward and two backward.

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

from sbmt.kernels.gpu.tokens import are_real, product, rows_of, strided, strided_mask, tile

TOKENS = 64  # tokens per program


class Sides(NamedTuple):
    """Queries and keys of a batch, with masks as :func:`sbmt.kernels.gpu.tokens.strided_mask` returns them."""

    n_queries: Any
    n_keys: Any
    n_heads: Any
    query_mask: Any
    key_mask: Any


class Sizes(NamedTuple):
    """The constants for which kernels are compiled."""

    n_partitions: int
    size: int  # parts of a partition
    padded: int
    d: int
    width: int
    tokens: int
    has_query_mask: bool
    has_key_mask: bool


class Tile(NamedTuple):
    """A tile of a graph's queries or of its keys."""

    example: Any
    head: Any
    is_key: Any
    token: Any
    own: Any  # rows among all queries, or all keys
    row: Any  # rows of the buffer
    inside: Any  # which of them exist
    is_real: Any


@triton.jit
def _enter_tile(sides, s: tl.constexpr):
    graph = tl.program_id(1).to(tl.int64)
    example, n_tiles = graph // sides.n_heads, tl.cdiv(sides.n_queries, s.tokens)
    is_key = tl.program_id(0) >= n_tiles
    n = tl.where(is_key, sides.n_keys, sides.n_queries)
    token = (tl.program_id(0) - tl.where(is_key, n_tiles, 0)) * s.tokens + tl.arange(0, s.tokens)
    own, inside = graph * n + token, token < n
    is_real = are_real(sides.query_mask, example, token, inside & ~is_key, s.has_query_mask)
    is_real |= are_real(sides.key_mask, example, token, inside & is_key, s.has_key_mask)
    row = own + tl.where(is_key, tl.num_programs(1) * sides.n_queries, 0)
    return Tile(example, graph % sides.n_heads, is_key, token, own, row, inside, is_real)


@triton.jit
def _join_kernel(query, key, out, sides, s: tl.constexpr):
    t, c = _enter_tile(sides, s), tl.arange(0, s.width)[None, :]
    real = out.dtype.element_ty
    is_read = t.is_real[:, None] & (c < s.d)
    if t.is_key:
        x = tl.load(rows_of(key, t.example, t.head, t.token)[:, None] + c, is_read, 0.0).to(real)
    else:
        x = tl.load(rows_of(query, t.example, t.head, t.token)[:, None] + c, is_read, 0.0).to(real)
    at, inside = tile(out, t.row, t.inside, s.d, s.width)
    tl.store(at, x, inside)


@triton.jit
def _in_parts(parts, lower, upper, of_lower, of_upper):
    """Spreads the values of two parts over all parts of the partition, with zeros elsewhere."""
    x = tl.where(parts[None, :] == lower[:, None], of_lower[:, None], 0.0)
    return x + tl.where(parts[None, :] == upper[:, None], of_upper[:, None], 0.0)


@triton.jit
def _memberships_kernel(
    nodes, clusters, log_rate, log_start, part, weight, blocks, rates, start, largest, sides, s: tl.constexpr,
    STARTS: tl.constexpr,
):  # fmt: skip
    t, f, a = _enter_tile(sides, s), tl.program_id(2), tl.arange(0, s.padded)
    parts, live = (t.head * s.n_partitions + f) * s.size + a, a < s.size  # rows of clusters, and of all blocks
    at, inside = tile(clusters, parts, live, s.d, s.width)
    real = weight.dtype.element_ty
    centres = tl.load(at, inside, 0.0).to(real)
    at, inside = tile(nodes, t.row, t.inside, s.d, s.width)
    x = product(tl.load(at, inside, 0.0).to(real), tl.trans(centres))
    x = tl.where(live[None, :], x, -float("inf"))
    first, largest_logit = tl.minimum(tl.argmax(x, 1), s.size - 1), tl.max(x, 1)  # NaN may give any index
    second, next_largest = first, largest_logit
    if s.size > 1:
        x = tl.where(a[None, :] == first[:, None], -float("inf"), x)
        second, next_largest = tl.minimum(tl.argmax(x, 1), s.size - 1), tl.max(x, 1)
    share = 1 / (1 + tl.exp(next_largest - largest_logit))
    of_lower = tl.where(first <= second, share, 1 - share)
    lower, upper = tl.minimum(first, second), tl.maximum(first, second)
    of_lower, of_upper = tl.where(t.is_real, of_lower, 0.0), tl.where(t.is_real, 1 - of_lower, 0.0)
    to = (t.row * s.n_partitions + f) * 2
    tl.store(part + to, (f * s.size + lower).to(tl.int16), t.inside)
    tl.store(part + to + 1, (f * s.size + upper).to(tl.int16), t.inside)
    tl.store(weight + to, of_lower, t.inside)
    tl.store(weight + to + 1, of_upper, t.inside)
    if not t.is_key:
        now = tl.load(log_start).to(real)
        now = tl.where(now == 0, start, now).to(real)  # programs that find it set use the same value
        if STARTS:
            tl.store(log_start, now)
        scores = product(centres, tl.trans(centres)) + (tl.load(log_rate + t.head).to(real) + now) / 2
        block = tl.exp(tl.minimum(scores, tl.full([], largest, real), propagate_nan=tl.PropagateNan.ALL)) / 2
        to_block, in_block = tile(blocks, parts, live, s.size, s.padded)
        block = tl.where(in_block, block, 0.0)
        tl.store(to_block, block, in_block & (tl.program_id(0) == 0) & (t.example == 0))
        to_rates, is_rate = tile(rates, t.row * s.n_partitions + f, t.inside, s.size, s.padded)
        tl.store(to_rates, product(_in_parts(a, lower, upper, of_lower, of_upper), block), is_rate)


@triton.jit
def _memberships_backward_kernel(
    nodes, clusters, part, weight, blocks, to_rates, to_query, to_key, to_nodes, to_clusters, to_blocks, squares,
    sides, s: tl.constexpr,
):  # fmt: skip
    t, a = _enter_tile(sides, s), tl.arange(0, s.padded)
    real = weight.dtype.element_ty
    live = a < s.size
    at, is_node = tile(nodes, t.row, t.inside, s.d, s.width)
    node = tl.load(at, is_node, 0.0).to(real)
    found = node * 0
    for f in range(s.n_partitions):
        entry, own, parts = (t.row * s.n_partitions + f) * 2, (t.own * s.n_partitions + f) * 2, f * s.size + a
        lower, upper = tl.load(part + entry, t.inside, 0), tl.load(part + entry + 1, t.inside, 0)
        of_lower, of_upper = tl.load(weight + entry, t.inside, 0.0), tl.load(weight + entry + 1, t.inside, 0.0)
        rows = t.head * s.n_partitions * s.size + parts
        if t.is_key:
            to_lower, to_upper = tl.load(to_key + own, t.inside, 0.0), tl.load(to_key + own + 1, t.inside, 0.0)
        else:
            at_rates, is_rate = tile(to_rates, t.row * s.n_partitions + f, t.inside, s.size, s.padded)
            grad, in_parts = tl.load(at_rates, is_rate, 0.0), _in_parts(parts, lower, upper, of_lower, of_upper)
            at_block, in_block = tile(to_blocks, rows, live, s.size, s.padded)
            tl.atomic_add(at_block, product(tl.trans(in_parts), grad), in_block, sem="relaxed")
            at_block, in_block = tile(blocks, rows, live, s.size, s.padded)
            through = product(grad, tl.trans(tl.load(at_block, in_block, 0.0)))
            to_lower = tl.sum(tl.where(parts[None, :] == lower[:, None], through, 0.0), 1)
            to_upper = tl.sum(tl.where(parts[None, :] == upper[:, None], through, 0.0), 1)
            to_lower += tl.load(to_query + own, t.inside, 0.0)
            to_upper += tl.load(to_query + own + 1, t.inside, 0.0)
        step = of_lower * of_upper * (to_lower - to_upper)
        to_logits = _in_parts(parts, lower, upper, step, -step)
        at_centre, is_centre = tile(clusters, rows, live, s.d, s.width)
        found += product(to_logits, tl.load(at_centre, is_centre, 0.0).to(real))
        at_centre, is_centre = tile(to_clusters, rows, live, s.d, s.width)
        tl.atomic_add(at_centre, product(tl.trans(to_logits), node), is_centre, sem="relaxed")
    at, is_node = tile(to_nodes, t.row, t.inside, s.d, s.width)
    tl.store(at, found, is_node)
    tl.atomic_add(squares + t.head * 2 + t.is_key.to(tl.int32), tl.sum(tl.sum(found * found, 1), 0), sem="relaxed")


@triton.jit
def _one_over_root(square):
    return tl.where(square > 0, 1 / tl.sqrt(tl.where(square > 0, square, 1.0)), 0.0)


@triton.jit
def _finish_kernel(
    clusters, blocks, to_nodes, out, to_clusters, out_clusters, to_blocks, squares, to_log_rate, largest, sides,
    s: tl.constexpr,
):  # fmt: skip
    """Scales gradients to length 1; the last program of a head first passes those of its blocks on to its clusters."""
    t = _enter_tile(sides, s)
    real = squares.dtype.element_ty
    if tl.program_id(0) < tl.num_programs(0) - 1:
        at, is_node = tile(to_nodes, t.row, t.inside, s.d, s.width)
        found = tl.load(at, is_node, 0.0) * _one_over_root(tl.load(squares + t.head * 2 + t.is_key.to(tl.int32)))
        at, is_node = tile(out, t.row, t.inside, s.d, s.width)
        tl.store(at, found, is_node)
    elif t.example == 0:
        limit, a = tl.exp(tl.full([], largest, real)) / 2, tl.arange(0, s.padded)
        to_log, square = limit * 0, limit * 0
        for f in range(s.n_partitions):
            parts = (t.head * s.n_partitions + f) * s.size + a
            at_block, inside = tile(blocks, parts, a < s.size, s.size, s.padded)
            block = tl.load(at_block, inside, 0.0)
            at_block, inside = tile(to_blocks, parts, a < s.size, s.size, s.padded)
            to_scores = tl.where(block < limit, tl.load(at_block, inside, 0.0) * block, 0.0)
            to_log += tl.sum(tl.sum(to_scores, 1), 0) / 2
            at_centre, is_centre = tile(clusters, parts, a < s.size, s.d, s.width)
            found = product(to_scores + tl.trans(to_scores), tl.load(at_centre, is_centre, 0.0).to(real))
            at_centre, is_centre = tile(to_clusters, parts, a < s.size, s.d, s.width)
            found += tl.load(at_centre, is_centre, 0.0)
            square += tl.sum(tl.sum(found * found, 1), 0)
            tl.store(at_centre, found, is_centre)
        tl.debug_barrier()  # threads read what other threads have written
        for f in range(s.n_partitions):
            parts = (t.head * s.n_partitions + f) * s.size + a
            at_centre, is_centre = tile(to_clusters, parts, a < s.size, s.d, s.width)
            found = tl.load(at_centre, is_centre, 0.0) * _one_over_root(square)
            at_centre, is_centre = tile(out_clusters, parts, a < s.size, s.d, s.width)
            tl.store(at_centre, found, is_centre)
        tl.store(to_log_rate + t.head, to_log * _one_over_root(to_log * to_log))


class Memberships(torch.autograd.Function):
    """Computes the parts of queries and keys, their memberships, the blocks, and the queries' rates to all parts.

    Gradients of nodes, clusters and rates are scaled as by :func:`sbmt.block_model.fit.unit_gradient`.
    """

    @staticmethod
    def forward(
        ctx: Any, nodes: Tensor, clusters: Tensor, log_rate: Tensor, log_start: Tensor, start: float, is_starting: bool,
        largest: float, shape: tuple[int, ...], sides: Sides, s: Sizes,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Computes the outputs, where the logarithm of a rate between parts is at most ``largest``.

        ``start`` replaces ``log_start`` if that is not set yet; ``is_starting`` means that this call sets it.
        """
        graphs, clusters = shape[:2], clusters.contiguous()
        part = nodes.new_empty(len(nodes), 2 * s.n_partitions, dtype=torch.int16)
        weight = clusters.new_empty(part.shape, dtype=torch.promote_types(clusters.dtype, torch.float32))
        blocks = weight.new_empty(len(clusters), s.n_partitions, s.size, s.size)
        rates = weight.new_empty(*shape[:3], s.n_partitions * s.size)
        given, written = (nodes.contiguous(), clusters, log_rate, log_start), (part, weight, blocks, rates)
        grid = _grid(shape)
        _memberships_kernel[*grid, s.n_partitions](*given, *written, start, largest, sides, s, is_starting)
        ctx.save_for_backward(*given[:2], part, weight, blocks)
        ctx.rest = log_rate.dtype, largest, grid, sides, s
        ctx.set_materialize_grads(False)
        rows = [x * len(part) // sum(shape[2:]) for x in shape[2:]]
        parts, weights = ([x.unflatten(0, (*graphs, -1)) for x in both.split(rows)] for both in (part, weight))
        ctx.mark_non_differentiable(*parts)
        return *parts, *weights, blocks, rates

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """Sums over tokens are atomic, so their order changes from call to call."""
        nodes, clusters, part, weight, blocks = ctx.saved_tensors
        dtype, largest, grid, sides, s = ctx.rest
        n_rows = grid[1] * sides.n_queries
        numbers = [x.numel() for x in (clusters, blocks, weight[:n_rows])] + [2 * len(clusters)]
        to_clusters, to_blocks, nothing, squares = weight.new_zeros(sum(numbers)).split(numbers)
        to_query, to_key, of_blocks, to_rates = (None if grad is None else grad.contiguous() for grad in grads[2:])
        to_blocks = to_blocks if of_blocks is None else of_blocks.flatten() + 0
        to_rates = weight.new_zeros(n_rows, clusters.shape[1]) if to_rates is None else to_rates
        to_key = torch.zeros_like(weight[n_rows:]) if to_key is None else to_key
        to_query, to_nodes = nothing if to_query is None else to_query, weight.new_empty(nodes.shape)
        read, written = (to_rates, to_query, to_key), (to_nodes, to_clusters, to_blocks, squares)
        given = nodes, clusters, part, weight, blocks, *read, *written, sides, s
        _memberships_backward_kernel[grid](*given, num_warps=8, num_stages=1)  # spills the fewest registers
        out, out_clusters = (
            x if x.dtype == y.dtype else torch.empty_like(y) for x, y in ((to_nodes, nodes), (to_clusters, clusters))
        )
        to_log_rate = clusters.new_empty(len(clusters), dtype=dtype)
        small = to_clusters, out_clusters, to_blocks, squares, to_log_rate
        _finish_kernel[grid[0] + 1, grid[1]](clusters, blocks, to_nodes, out, *small, largest, sides, s)
        return out, out_clusters.view_as(clusters), to_log_rate, *(None,) * 7


def _grid(shape: tuple[int, ...]) -> tuple[int, int]:
    return sum(triton.cdiv(n, TOKENS) for n in shape[2:]), shape[0] * shape[1]


def infer(
    layer: Any, query: Tensor, key: Tensor, masks: tuple[Any, Any], start: float, largest: float
) -> tuple[Tensor, ...]:
    """Returns the results of :class:`Memberships` for a layer's tokens."""
    shape, (n_heads, n_rows, d) = (*query.shape[:3], key.shape[2]), layer.clusters.shape
    n_partitions, has_masks = 2 * layer.n_groups, [mask is not None for mask in masks]
    sides = Sides(shape[2], shape[3], n_heads, *(strided_mask(mask, layer.log_start) for mask in masks))
    padded, width = (max(16, triton.next_power_of_2(x)) for x in (n_rows // n_partitions, d))  # as products need them
    s = Sizes(n_partitions, n_rows // n_partitions, padded, d, width, TOKENS, *has_masks)
    tokens = query.new_empty(shape[0] * n_heads * sum(shape[2:]), d, dtype=layer.clusters.dtype)
    _join_kernel[_grid(shape)](strided(query), strided(key), tokens, sides, s)
    nodes, is_starting = layer.node_mlp(tokens), layer.training and torch.is_grad_enabled()
    given = nodes, layer.clusters, layer.log_rate, layer.log_start, start, is_starting, largest
    return Memberships.apply(*given, shape, sides, s)

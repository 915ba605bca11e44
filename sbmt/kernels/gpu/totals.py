r"""The gradient of the sum of all rates, which reaches every key, whether or not a query attends to it.

With the rates $x_i$ of query i to the first parts of a group and $y_i$ to the second ones, a key whose memberships are
$v$ and $w$ adds $v^\top R\, w$ to the sum, where $R = \sum_i x_i y_i^\top$ runs over the queries that visit it by
cluster: all of them, or in causal masks those of later chunks.
"""

import triton
import triton.language as tl
from torch import Tensor

from sbmt.kernels.gpu.clusters import CHUNK, add_up
from sbmt.kernels.gpu.draw import Draw, Sizes
from sbmt.kernels.gpu.tokens import product, tile

SPAN = 256  # queries per program, unless the mask is causal


@triton.jit
def _reached_kernel(
    draw, of_rows, out, to_sink, s: tl.constexpr, SPAN: tl.constexpr, CHUNK: tl.constexpr, PADDED: tl.constexpr
):
    """Computes R of a group over all queries or a chunk's (last chunk first), and sums ``of_rows`` over queries."""
    chunk, graph, group = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2)
    a, b = tl.arange(0, PADDED)[:, None], tl.arange(0, PADDED)[None, :]
    found, own = tl.zeros([PADDED, PADDED], out.dtype.element_ty), tl.zeros([CHUNK], out.dtype.element_ty)
    for first in tl.static_range(0, SPAN, CHUNK):
        query = chunk * SPAN + first - draw.offset + tl.arange(0, CHUNK)
        is_query = (query >= 0) & (query < draw.n_queries)
        at = ((graph * draw.n_queries + query) * (2 * s.n_groups) + 2 * group)[:, None] * s.size + b
        inside = is_query[:, None] & (b < s.size)
        x, y = tl.load(draw.rates + at, inside, 0.0), tl.load(draw.rates + at + s.size, inside, 0.0)
        found += product(tl.trans(x), y)
        own += tl.load(of_rows + graph * draw.n_queries + query, is_query & (group == 0), 0.0)
    tl.atomic_add(to_sink + graph % draw.n_heads, tl.sum(own, 0), sem="relaxed")
    row, inside = graph, (a < s.size) & (b < s.size)
    if s.causal:  # the first row of the table is 0
        row = graph * (tl.num_programs(0) + 1) + tl.num_programs(0) - chunk
    to = out + (row * s.n_groups + group) * s.size * s.size + a * s.size + b
    if s.causal:
        tl.store(to, found, inside)
    else:
        tl.atomic_add(to, found, inside, sem="relaxed")


@triton.jit
def _keys_kernel(
    draw, reached, grad_loss, per_query, key, value, sink, to_key, to_value, to_sink, to_weight, s: tl.constexpr,
    D: tl.constexpr, WIDTH: tl.constexpr, DV: tl.constexpr, WIDTH_V: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Adds that gradient to those of a chunk's memberships, and converts gradients of keys, values and sinks."""
    chunk, graph = tl.program_id(0), tl.program_id(1).to(tl.int64)
    token = chunk * CHUNK + tl.arange(0, CHUNK)
    at, inside = graph * draw.n_keys + token, token < draw.n_keys
    places, is_key = tile(0, at, inside, D, WIDTH)
    tl.store(key + places, tl.load(to_key + places, is_key, 0.0), is_key)
    places, is_value = tile(0, at, inside, DV, WIDTH_V)
    tl.store(value + places, tl.load(to_value + places, is_value, 0.0), is_value)
    if chunk == 0:
        tl.store(sink + graph, tl.load(to_sink + graph, graph < draw.n_heads, 0.0), graph < draw.n_heads)
    row = graph
    if s.causal:
        row = graph * (tl.num_programs(0) + 1) + tl.num_programs(0) - 1 - chunk
    scale = tl.load(grad_loss) * tl.load(per_query)
    for g in range(s.n_groups):
        e = (at * s.n_groups + g) * 4
        table = reached + (row * s.n_groups + g) * s.size * s.size
        for i in tl.static_range(2):
            first = tl.load(draw.part + e + i, inside, 0) - 2 * g * s.size
            for j in tl.static_range(2):
                second = tl.load(draw.part + e + 2 + j, inside, 0) - (2 * g + 1) * s.size
                rate = scale * tl.load(table + first * s.size + second, inside, 0.0)
                to_first = rate * tl.load(draw.weight + e + 2 + j, inside, 0.0)
                tl.atomic_add(to_weight + e + i, to_first, inside, sem="relaxed")
                to_second = rate * tl.load(draw.weight + e + i, inside, 0.0)
                tl.atomic_add(to_weight + e + 2 + j, to_second, inside, sem="relaxed")


def finish_keys(
    draw: Draw, s: Sizes, reached: Tensor, of_rows: Tensor, grad_loss: Tensor, per_query: Tensor,
    widths: tuple[int, ...], *grads: Tensor,
) -> None:  # fmt: skip
    """Finishes the gradients of keys in two launches, three if causal; ``to_sink`` sums ``of_rows`` over queries.

    ``reached`` contains zeros, one for each graph and cluster and, if causal, also for each chunk.
    """
    n_graphs, n_chunks = len(draw.members.starts), draw.members.mass.shape[1] - 1
    n_spans, span = (n_chunks, CHUNK) if s.causal else (triton.cdiv(draw.n_queries, SPAN), SPAN)
    padded = max(16, s.columns)  # as products need it
    _reached_kernel[(n_spans, n_graphs, s.n_groups)](draw, of_rows, reached, grads[-2], s, span, CHUNK, padded)
    if s.causal:
        add_up(reached)
    _keys_kernel[(n_chunks, n_graphs)](draw, reached, grad_loss, per_query, *grads, s, *widths, CHUNK)

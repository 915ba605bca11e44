"""Attention along edges that are drawn meanwhile: some rows at a time, so that no mask is ever stored."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.kernels.cpu.attention import attend_rows
from sbmt.kernels.cpu.crossed import rates_along_rows
from sbmt.kernels.cpu.draws.crossed import WORK, draw_some, new_scratch, source_of
from sbmt.kernels.cpu.parallel import equal_parts, in_parallel
from sbmt.kernels.cpu.poisson import weigh_rows
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import AttentionInputs, AttentionResults, CrossedFactors, Mask, as_arrays

_EDGES = 1 << 13  # of some rows together, unless it is one row that has more


class Tokens(NamedTuple):
    """What attends along the graphs that are drawn, one or several heads along each."""

    query: Tensor  # (graphs · heads of each · n_queries, d)
    key: Tensor  # (graphs · heads of each · n_keys, d)
    value: Tensor  # (graphs · heads of each · n_keys, d_value)
    sink: Tensor  # (all heads,), or of length 0 for none


class Drawn(NamedTuple):
    """What comes out."""

    out: Tensor  # as many as queries, d_value wide
    degrees: Tensor  # int64 (graphs · n_queries,), how many edges each row has
    expected: Tensor  # (graphs · n_queries,), how many it expects without exploration


def attend_crossed(
    tokens: Tokens, smallest: float, factors: CrossedFactors, shape: list[int], *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Attends along the edges of :func:`source_of`; see :func:`sbmt.kernels.draws.attend_drawn`."""
    source, weight, n_queries = source_of(factors, shape, *rest), factors.query_weight, shape[2]
    n_rows, out = weight.shape[0], tokens.value.new_empty(tokens.query.shape[0], tokens.value.shape[1])
    drawn = Drawn(out, torch.empty(n_rows, dtype=torch.int64), weight.new_empty(n_rows))
    in_parallel(attend_while_drawing, equal_parts(n_rows, WORK), source, smallest, *map(as_arrays, (tokens, drawn)))
    return out, drawn.degrees.view(-1, n_queries).sum(1), drawn.expected.view(-1, n_queries).sum(1)


@kernel
def attend_while_drawing(start, stop, source, smallest, tokens, results):
    """Fills rows start … stop of the results, and those of each copy: draws some, weighs their edges, and attends."""
    active, model, real = source.active, source.model, source.real
    n_queries, n_keys, heads = real.is_query.shape[1], real.is_key.shape[1], model.blocks.shape[0]
    copies = tokens.query.shape[0] // model.query_part.shape[0]  # of each graph
    scratch, row_ptr = new_scratch(source), np.empty(n_queries + 1, np.int64)
    keys, log_total = np.empty(max(_EDGES, n_keys), np.int64), np.empty(n_queries)
    rate, bias = np.empty(keys.size, model.blocks.dtype), np.empty(keys.size, model.blocks.dtype)
    none, row = np.empty(0, tokens.query.dtype), start
    while row < stop:
        graph = row // n_queries
        before = graph * n_queries
        next_row, n_edges, _ = draw_some(row, min(stop, before + n_queries), source, scratch, keys, results.degrees)
        first, last = row - before, next_row - before
        row_ptr[first] = 0
        for i in range(first, last):
            row_ptr[i + 1] = row_ptr[i] + results.degrees[before + i]
        mask = Mask(row_ptr, keys[:n_edges], n_queries, n_keys)
        rates_along_rows(first, last, active, _of_graph(model, graph, graph % heads, n_queries, n_keys), mask, rate)
        expected = results.expected[before : before + n_queries]
        weigh_rows(first, last, rate, mask, source.exploration, source.half_window, smallest, bias, expected)
        for copy in range(graph * copies, (graph + 1) * copies):
            query, key, value, sink = _of_copy(tokens, copy, n_queries, n_keys)
            inputs = AttentionInputs(query, key, value, none, bias[:n_edges], sink, none)
            out = results.out[copy * n_queries : (copy + 1) * n_queries]
            attend_rows(first, last, inputs, mask, True, AttentionResults(out, log_total, none))
        row = next_row


@kernel
def _of_graph(model, graph, head, n_queries, n_keys):
    """The factors of a graph."""
    query, key = slice(graph * n_queries, (graph + 1) * n_queries), slice(graph * n_keys, (graph + 1) * n_keys)
    part, weight, blocks, key_part, key_weight = model
    return CrossedFactors(part[query], weight[query], blocks[head : head + 1], key_part[key], key_weight[key])


@kernel
def _of_copy(tokens, copy, n_queries, n_keys):
    """What attends along a copy of a graph."""
    query, key = slice(copy * n_queries, (copy + 1) * n_queries), slice(copy * n_keys, (copy + 1) * n_keys)
    head = copy % max(tokens.sink.size, 1)
    return tokens.query[query], tokens.key[key], tokens.value[key], tokens.sink[head : head + 1]

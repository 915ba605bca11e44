"""Attention along edges that are drawn meanwhile: some rows at a time, so that no mask is ever stored."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sbmt.kernels.cpu.attention import attend_rows
from sbmt.kernels.cpu.crossed import rates_along_rows
from sbmt.kernels.cpu.draws.crossed import WORK, draw_some, new_scratch, source_of
from sbmt.kernels.cpu.graphs import Tokens, of_copy, of_graph, totals
from sbmt.kernels.cpu.poisson import weigh_rows
from sbmt.kernels.cpu.threads.parallel import equal_parts, in_parallel
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import AttentionInputs, AttentionResults, CrossedFactors, Mask, as_arrays

_EDGES = 1 << 13  # of some rows together, unless it is one row that has more


class Drawn(NamedTuple):
    """What comes out."""

    out: Tensor  # as many as queries, d_value wide
    degrees: Tensor  # int64 (graphs · n_queries,), how many edges each row has
    expected: Tensor  # (graphs · n_queries,), how many it expects without exploration


def attend_crossed(
    tokens: Tokens, smallest: float, factors: CrossedFactors, shape: list[int], *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Attends along the edges of :func:`source_of`; see :func:`sbmt.kernels.draws.attend_drawn`."""
    weight, n_queries = factors.query_weight, shape[2]
    n_rows, out = weight.shape[0], tokens.value.new_empty(tokens.query.shape[0], tokens.value.shape[1])
    drawn = Drawn(out, torch.empty(n_rows, dtype=torch.int64), weight.new_empty(n_rows))
    given = smallest, *map(as_arrays, (tokens, drawn))
    in_parallel(attend_while_drawing, equal_parts(n_rows, WORK), source_of(factors, shape, *rest), *given)
    return out, totals(drawn.degrees, n_queries), totals(drawn.expected, n_queries)


@kernel
def attend_while_drawing(start, stop, source, smallest, tokens, results):
    """Fills rows start … stop of the results, and those of each copy: draws some, weighs their edges, and attends."""
    active, model, real = source.active, source.model, source.real
    n_queries, n_keys = real.is_query.shape[1], real.is_key.shape[1]
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
        rates_along_rows(first, last, active, of_graph(model, graph, n_queries, n_keys), mask, rate)
        expected = results.expected[before : before + n_queries]
        weigh_rows(first, last, rate, mask, source.exploration, source.half_window, smallest, bias, expected)
        for copy in range(graph * copies, (graph + 1) * copies):
            query, key, value, sink = of_copy(tokens, copy, n_queries, n_keys)
            inputs = AttentionInputs(query, key, value, none, bias[:n_edges], sink, none)
            out = results.out[copy * n_queries : (copy + 1) * n_queries]
            attend_rows(first, last, inputs, mask, True, AttentionResults(out, log_total, none))
        row = next_row

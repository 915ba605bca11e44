"""What belongs to one graph of all that lie one after the other."""

from typing import NamedTuple

import numpy as np
from torch import Tensor

from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.structures import CrossedFactors


class Tokens(NamedTuple):
    """What attends along graphs, one or several heads along each: its copies, which follow each other."""

    query: Tensor  # (graphs · copies · n_queries, d)
    key: Tensor  # (graphs · copies · n_keys, d)
    value: Tensor  # (graphs · copies · n_keys, d_value)
    sink: Tensor  # (all heads,), or of length 0 for none


@kernel
def of_graph(model, graph, n_queries, n_keys):
    """The factors of a graph, those of one head."""
    query, key = slice(graph * n_queries, (graph + 1) * n_queries), slice(graph * n_keys, (graph + 1) * n_keys)
    part, weight, blocks, key_part, key_weight = model
    head = graph % blocks.shape[0]
    return CrossedFactors(part[query], weight[query], blocks[head : head + 1], key_part[key], key_weight[key])


@kernel
def of_copy(tokens, copy, n_queries, n_keys):
    """What attends along a copy of a graph."""
    query, key = slice(copy * n_queries, (copy + 1) * n_queries), slice(copy * n_keys, (copy + 1) * n_keys)
    head = copy % max(tokens.sink.size, 1)
    return tokens.query[query], tokens.key[key], tokens.value[key], tokens.sink[head : head + 1]


def totals(x: Tensor, n_queries: int) -> Tensor:
    """The sum over the rows of each graph, taken in float64."""
    out = x.new_empty(x.numel() // n_queries)
    _sum_graphs(x.numpy(), out.numpy())
    return out


@kernel
def _sum_graphs(x, out):
    n = x.size // out.size
    for graph in range(out.size):
        total = np.float64(0)
        for i in range(graph * n, (graph + 1) * n):
            total += x[i]
        out[graph] = total

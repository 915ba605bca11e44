"""The paper's Algorithm 1 with a corrected normalisation."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from sbmt.block_model.model import BlockModel
from sbmt.counter_rng import Purpose, random_blocks, to_uniform
from sbmt.errors import SbmtError
from sbmt.graph.edges import EdgeList
from sbmt.graph.masks import zero_padding
from sbmt.samplers.streams import choose_by_weight, cumulative_table, in_float64, in_rows, poisson_quantile, row_address

MOST_DRAWS = 1 << 26  # about 50 bytes each, so a few GiB


def sample_fastrg(block_model: BlockModel, exploration: float, seed: int, first_example: int) -> EdgeList:
    r"""Draws Poisson(total rate) edges, choosing the clusters of each edge first, and merges repeated edges.

    The number of times that a pair is drawn is Poisson with mean $r_{ij} + \delta$, so it becomes an edge with
    probability $1 - e^{-(r_{ij} + \delta)}$, which is at most 63.2 % under the bilinear link.

    Cost: O(n k + k²) for tables and O(log(n k)) per draw; raises SbmtError beyond 2²⁶ draws.
    Paper: Algorithm 1. Deviations: D_Y and D_Z, which the paper prints inverted, are corrected; examples and heads are
    drawn together; exploration is an additional cluster; the multiplicity of each edge is recorded.
    """
    query, block, key = _with_exploration(block_model, exploration)  # b h n K, h K K, b h m K
    if block_model.causal:
        found = causal_cells(query @ block, key, seed, first_example)
    else:
        # Lines 1-3: D_Y = diag(1ᵀY), Ȳ = Y D_Y⁻¹, Z̄ = Z D_Z⁻¹, B̄ = D_Y B D_Z. Tables hold Ȳ and Z̄ column by column.
        rate = query.sum(2)[..., :, None] * block * key.sum(2)[..., None, :]
        found = poisson_cells(query, rate.flatten(2), key, seed, first_example)
    cells, multiplicity = torch.unique(found, return_counts=True)
    return EdgeList.from_cells(cells, block_model.shape, *block_model.masks, multiplicity=multiplicity)


def poisson_cells(query: Tensor, rate: Tensor, key: Tensor, seed: int, first_example: int) -> Int[Tensor, " n_draws"]:
    """Makes a Poisson number of draws in each graph and returns the drawn cells, unordered and with repetitions.

    ``rate``, ``(batch, heads, pairs)``, is the expected number of draws for each pair (u, v) of clusters, or for each
    cluster u = v. A draw chooses query i with probability ∝ ``query[i, u]`` and key j with probability ∝ ``key[j, v]``.
    """
    batch, heads, n_queries, n_clusters = query.shape
    n_keys, n_pairs, device = key.shape[2], rate.shape[2], query.device
    _check_total(rate)
    query_table, key_table = (cumulative_table(x.mT.flatten(0, 2)) for x in (query, key))
    pair_table = cumulative_table(rate.flatten(0, 1))

    # Line 4: the number of edges of each graph is Poisson(1 B̄ 1ᵀ).
    graphs = torch.arange(batch * heads, device=device)
    zero = torch.zeros_like(graphs)
    word = random_blocks(seed, Purpose.COUNT, graphs // heads + first_example, graphs % heads, zero, zero)[:, 0]
    graph, draw = in_rows(poisson_quantile(to_uniform(word), rate.sum(-1).flatten()))

    # Lines 6-10: clusters (U, V) ∝ B̄ *jointly*, then a query from column U of Ȳ and a key from column V of Z̄.
    address = (graph // heads + first_example, graph % heads, torch.zeros_like(graph), draw)
    words = random_blocks(seed, Purpose.CANDIDATE, *address)  # draws 4
    pair = choose_by_weight(pair_table, n_pairs, graph, words[:, 0])
    u, v = (pair, pair) if n_pairs == n_clusters else (pair // n_clusters, pair % n_clusters)
    i = choose_by_weight(query_table, n_queries, graph * n_clusters + u, words[:, 1])
    j = choose_by_weight(key_table, n_keys, graph * n_clusters + v, words[:, 2])
    return (graph * n_queries + i) * n_keys + j  # line 11: M_ij = 1, however often (i, j) was drawn


def causal_cells(
    query: Float[Tensor, "batch heads n K"], key: Float[Tensor, "batch heads m K"], seed: int, first_example: int
) -> Int[Tensor, " n_draws"]:
    r"""Draws like :func:`poisson_cells`, with rates $\langle$query_i, key_j$\rangle$ and without later keys."""
    batch, heads, n_queries, n_clusters = query.shape
    n_keys = key.shape[2]
    seen = key.cumsum(2)  # memberships of the keys up to each position
    rates = query * seen[:, :, n_keys - n_queries :]
    _check_total(rates)
    row = torch.arange(batch * heads * n_queries, device=query.device)
    address = row_address(row, (batch, heads, n_queries, n_keys), first_example)
    word = random_blocks(seed, Purpose.COUNT, *address, torch.zeros_like(row))[:, 0]
    row, draw = in_rows(poisson_quantile(to_uniform(word), rates.sum(-1).flatten()))
    example, head, query_of = (part[row] for part in address)
    words = random_blocks(seed, Purpose.CANDIDATE, example, head, query_of, draw)  # draws 4
    cluster = choose_by_weight(cumulative_table(rates.flatten(0, 2)), n_clusters, row, words[:, 0])
    # Binary search for the first key whose prefix sum exceeds a random share of the sum over the query's keys.
    first = row // n_queries * n_keys
    low, high = torch.zeros_like(row), row % n_queries + n_keys - n_queries
    of_cluster = seen.flatten(0, 2).flatten()
    place = to_uniform(words[:, 1]) * of_cluster[(first + high) * n_clusters + cluster]
    for _ in range(n_keys.bit_length()):
        middle = (low + high) // 2
        is_later = of_cluster[(first + middle) * n_clusters + cluster] <= place
        low, high = torch.where(is_later, middle + 1, low).clamp(max=high), torch.where(is_later, high, middle)
    return row * n_keys + low


def _check_total(rates: Tensor) -> None:
    total = float(rates.sum())
    if total > MOST_DRAWS:
        do = "use sampler='exact', whose cost does not grow with rates beyond 1, or reduce the rates"
        raise SbmtError(f"at most {MOST_DRAWS:,} draws, including repetitions", f"{total:.3g}", do)


def _with_exploration(block_model: BlockModel, exploration: float) -> tuple[Tensor, ...]:
    """Returns Y, B, Z in float64, with exploration δ as one more cluster: Y = [Q̂ 1], B = diag(S, δ), Z = [K̂ 1]."""
    twin = in_float64(block_model)
    query, block, key = twin.query_membership, twin.block_matrix, twin.key_membership
    if exploration > 0:
        block = pad(block, (0, 1, 0, 1))
        block[:, -1, -1] = exploration
        query = zero_padding(pad(query, (0, 1), value=1.0), twin.query_mask)
        key = zero_padding(pad(key, (0, 1), value=1.0), twin.key_mask)
    return query, block, key

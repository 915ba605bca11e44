"""The paper's Algorithm 1, with its normalisation corrected."""

import torch

from sbmt.block_model.model import BlockModel
from sbmt.counter_rng import Purpose, random_blocks, to_uniform
from sbmt.errors import SbmtError
from sbmt.graph.edges import EdgeList
from sbmt.samplers.streams import choose_by_weight, cumulative_table, poisson_quantile, within_row

MOST_DRAWS = 1 << 26  # some 50 bytes each, so a few GiB


def sample_fastrg(block_model: BlockModel, exploration: float, seed: int, first_example: int) -> EdgeList:
    r"""Draws Poisson(total rate) edges at once, each by its clusters, and merges repeated ones.

    The number of times a pair is drawn is Poisson with mean $r_{ij} + \delta$, so it becomes an edge with probability
    $1 - e^{-(r_{ij} + \delta)}$: at most 63.2 % under the bilinear link.

    Paper: Algorithm 1. Deviations: D_Y and D_Z, which the paper prints inverted, are put right; examples and heads are
    drawn together; exploration is one more cluster; the multiplicity of each edge is kept.

    Raises:
        SbmtError: If the rates ask for more than 2²⁶ draws.

    Cost: O(n k + k²) for tables and O(log(n k)) per edge drawn.
    """
    batch, heads, n_queries, n_keys = block_model.shape
    query, block, key = _with_exploration(block_model, exploration)  # b h n K, b h K K, b h m K
    device, n_clusters = query.device, block.shape[-1]

    # Lines 1-3: D_Y = diag(1ᵀY), Ȳ = Y D_Y⁻¹, Z̄ = Z D_Z⁻¹, B̄ = D_Y B D_Z. The tables hold Ȳ and Z̄ column by column.
    rate = query.sum(2)[..., :, None] * block * key.sum(2)[..., None, :]
    query_table = cumulative_table(query.mT.flatten(0, 2))
    key_table = cumulative_table(key.mT.flatten(0, 2))
    pair_table = cumulative_table(rate.flatten(0, 1).flatten(1))

    total = float(rate.sum())
    if total > MOST_DRAWS:
        do = "use sampler='exact', whose cost does not grow with rates beyond 1, or smaller rates"
        raise SbmtError(f"at most {MOST_DRAWS:,} edges to draw, repeats included", f"{total:.3g}", do)

    # Line 4: the number of edges of each graph is Poisson(1 B̄ 1ᵀ).
    graphs = torch.arange(batch * heads, device=device)
    zero = torch.zeros_like(graphs)
    word = random_blocks(seed, Purpose.COUNT, graphs // heads + first_example, graphs % heads, zero, zero)[:, 0]
    graph, draw = within_row(poisson_quantile(to_uniform(word), rate.sum((-2, -1)).flatten()))

    # Lines 6-10: clusters (U, V) ∝ B̄ *jointly*, then a query from column U of Ȳ and a key from column V of Z̄.
    address = (graph // heads + first_example, graph % heads, torch.zeros_like(graph), draw)
    words = random_blocks(seed, Purpose.CANDIDATE, *address)  # edges 4
    u_and_v = choose_by_weight(pair_table, n_clusters**2, graph, words[:, 0])
    u, v = u_and_v // n_clusters, u_and_v % n_clusters
    i = choose_by_weight(query_table, n_queries, graph * n_clusters + u, words[:, 1])
    j = choose_by_weight(key_table, n_keys, graph * n_clusters + v, words[:, 2])

    # Line 11: M_ij = 1, however often (i, j) was drawn.
    cells, multiplicity = torch.unique((graph * n_queries + i) * n_keys + j, return_counts=True)
    masks = block_model.query_mask, block_model.key_mask
    return EdgeList.from_cells(cells, block_model.shape, *masks, multiplicity=multiplicity)


def _with_exploration(block_model: BlockModel, exploration: float) -> tuple[torch.Tensor, ...]:
    """Y, B, Z in float64, where exploration δ is a cluster of its own: Y = [Q̂ 1], B = diag(S, δ), Z = [K̂ 1]."""
    query, block, key = (
        t.detach().double()
        for t in (block_model.query_membership, block_model.block_matrix, block_model.key_membership)
    )
    if exploration > 0:
        block = torch.nn.functional.pad(block, (0, 1, 0, 1))
        block[:, -1, -1] = exploration
        query, key = (torch.nn.functional.pad(t, (0, 1), value=1.0) for t in (query, key))
        for tokens, mask in ((query, block_model.query_mask), (key, block_model.key_mask)):
            if mask is not None:
                tokens.mul_(mask[:, None, :, None])
    return query, block, key

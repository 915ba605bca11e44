"""The exact sampler: independent Bernoulli edges, in time that follows their number rather than that of all pairs."""

import torch
from torch import Tensor

from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.link import Link
from sbmt.block_model.model import BlockModel
from sbmt.counter_rng import Purpose, cell_words, edge_words, random_blocks, to_uniform
from sbmt.graph.edges import EdgeList, reach_of
from sbmt.kernels.cpu import can_run_on
from sbmt.kernels.draws import draw_crossed, draw_exact, draw_from_parts
from sbmt.kernels.gpu import can_run_on as has_gpu_kernels
from sbmt.kernels.structures import CrossedFactors, RateFactors
from sbmt.samplers.streams import (
    choose_by_weight,
    cumulative_table,
    poisson_quantile,
    rates_in_float64,
    row_address,
    within_row,
)

DENSE_SHARE = 1 / 8  # a row that expects more candidates per key than this is cheaper drawn cell by cell
_CELLS_AT_ONCE = 1 << 22
_EDGES_AT_ONCE = 1 << 15
_WEIGHTS_AT_ONCE = 1 << 19  # of the rows' cluster tables, so that they stay in cache


def sample_exact(
    block_model: BlockModel, exploration: float, seed: int, first_example: int, window: int | None = None
) -> EdgeList:
    r"""Every pair of real tokens is an edge with its probability, independently of all others.

    A window is added as by :meth:`EdgeList.with_window`, in passing where there are kernels for it.

    Compiled kernels draw the edges where they serve the device and know the link; otherwise :func:`sample_with_torch`
    does. All have this law, but do not draw the same edges from the same seed.

    Cost: O(n k²) for the rates; then the time follows the number of edges.
    """
    if isinstance(block_model, CrossedModel) and block_model.link.is_poisson:
        found = _draw_from_parts(block_model, exploration, reach_of(window), seed, first_example)
        if found is not None:
            return found
    edges = _draw(block_model, exploration, seed, first_example)
    return edges if window is None else edges.with_window(window)


def _draw(block_model: BlockModel, exploration: float, seed: int, first_example: int) -> EdgeList:
    link, masks = block_model.link, (block_model.query_mask, block_model.key_mask)
    if link.has_kernels:
        rates, key = block_model.query_rates.detach(), block_model.key_membership.detach()
        factors = RateFactors(rates, key, *masks, exploration, link.is_poisson)
        found = draw_exact(factors, seed, first_example)
        if found is not None:
            return EdgeList(*found, block_model.shape, *masks)
    return sample_with_torch(block_model, exploration, seed, first_example)


def _draw_from_parts(
    block_model: CrossedModel, exploration: float, reach: int, seed: int, first_example: int
) -> EdgeList | None:
    """Edges and a window by kernels; None where there are none, or where a GPU leaves dense masks to others."""
    shape, masks = block_model.shape, (block_model.query_mask, block_model.key_mask)
    factors = CrossedFactors(*(t.detach() for t in block_model.factors()))
    if can_run_on(block_model.device):
        row_ptr, keys = draw_crossed(*factors, list(shape), *masks, exploration, reach, seed, first_example)
        return EdgeList(row_ptr, keys, shape, *masks)
    if not has_gpu_kernels(block_model.device):
        return None
    with torch.no_grad():
        rates = block_model.part_rates().flatten(0, 2)
    cells = draw_from_parts(rates, factors, shape, *masks, exploration, reach, seed, first_example)
    return None if cells is None else EdgeList.from_cells(cells, shape, *masks)


def sample_with_torch(block_model: BlockModel, exploration: float, seed: int, first_example: int) -> EdgeList:
    r"""Draws Poisson candidates, merges repeated ones, and thins them to the Bernoulli law.

    Row i draws Poisson candidates at rate $c_i x_{ij}$, where $x = r + \delta$, so that a pair comes up at all with
    probability $1 - e^{-c_i x_{ij}}$, independently of all others. One uniform u per distinct candidate keeps it if
    $u (1 - e^{-c_i x_{ij}}) < p(x_{ij})$, which leaves exactly Bernoulli($p(x_{ij})$), provided that
    $1 - e^{-c_i x} \ge p(x)$ for every pair of the row. Under the bilinear link, where $p(x) = \min(x, 1)$, this holds
    for $c_i = -\ln(1 - \bar x_i)/\bar x_i$ with an upper bound $\bar x_i$ of the row, at most 32; and where u < 1/c
    the pair is kept whatever its x, so that x is never computed. Under the Poisson link the candidates already have the
    right law: c = 1, and all are kept.

    Rows that expect so many candidates that visiting every pair is cheaper are drawn pair by pair; the law is the same.

    Cost: O(n k² + n log k) for the tables, O(log(n k) + k) per edge; no n² unless the mask is that dense.
    """
    query, key = (t.flatten(0, 1) for t in rates_in_float64(block_model, exploration))  # graphs n K, graphs m K
    link = block_model.link
    boost = _boost(link, query, key)
    candidates = boost * (query @ key.sum(1)[..., None]).squeeze(-1)  # graphs n
    is_dense = (candidates > DENSE_SHARE * key.shape[1]).flatten()

    shape = block_model.shape
    cells = [is_dense.nonzero().new_empty(0)]
    for rows in is_dense.nonzero().squeeze(1).split(max(1, _CELLS_AT_ONCE // shape[3])):
        if rows.numel():
            cells.append(_visit_every_pair(rows, block_model, query, key, seed, first_example))
    sparse_rows = (~is_dense & (candidates.flatten() > 0)).nonzero().squeeze(1)
    if sparse_rows.numel():
        drawn = _draw_candidates(sparse_rows, candidates, query, key, shape, seed, first_example)
        is_final = link.is_poisson
        cells.append(drawn if is_final else _keep(drawn, link, boost, query, key, shape, seed, first_example))
    found = torch.cat(cells)
    if sparse_rows.numel() and len(cells) > 2:  # each kind of row comes in order, the two together do not
        found = found.sort().values
    return EdgeList.from_cells(found, shape, block_model.query_mask, block_model.key_mask)


def _boost(link: Link, query: Tensor, key: Tensor) -> Tensor:
    """The factor c of every row, ``(graphs, n)``, rounded up."""
    bound = (query @ key.amax(1)[..., None]).squeeze(-1)  # x̄_i = Σ_v T_iv max_j K_jv ≥ max_j x_ij
    return link.candidate_factor(bound)


def _visit_every_pair(
    rows: Tensor, block_model: BlockModel, query: Tensor, key: Tensor, seed: int, first_example: int
) -> Tensor:
    """The cells of the given rows drawn as the ``bernoulli`` sampler draws them."""
    n_queries, n_keys = block_model.shape[2:]
    graphs, counts = torch.unique_consecutive(rows // n_queries, return_counts=True)
    per_graph = query.flatten(0, 1)[rows].split(counts.tolist())
    rates = torch.cat([t @ key[g].T for g, t in zip(graphs.tolist(), per_graph, strict=True)])  # rows n_keys
    words = cell_words(seed, Purpose.CELL, *row_address(rows, block_model.shape, first_example), n_keys)
    is_edge = to_uniform(words) < block_model.link.probability(rates)
    place, found = is_edge.nonzero(as_tuple=True)
    return rows[place] * n_keys + found


def _draw_candidates(
    rows: Tensor,
    candidates: Tensor,
    query: Tensor,
    key: Tensor,
    shape: tuple[int, int, int, int],
    seed: int,
    first_example: int,
) -> Tensor:
    """Distinct cells that Poisson processes of the rows' rates hit, ascending."""
    _, _, n_queries, n_keys = shape
    n_clusters = key.shape[2]
    totals, sizes, of_row = candidates.flatten(), key.sum(1), query.flatten(0, 1)
    parts = []
    for some in rows.split(max(1, _WEIGHTS_AT_ONCE // n_clusters)):
        example, head, query_row = row_address(some, shape, first_example)
        word = random_blocks(seed, Purpose.COUNT, example, head, query_row, torch.zeros_like(some))[:, 0]
        place, draw = within_row(poisson_quantile(to_uniform(word), totals[some]))
        blocks = random_blocks(seed, Purpose.CANDIDATE, example[place], head[place], query_row[place], draw // 2)
        words = blocks.view(-1, 2, 2)[torch.arange(draw.numel(), device=draw.device), draw % 2]  # two draws to a block
        cluster_table = cumulative_table(of_row[some] * sizes[some // n_queries])  # expected draws by key cluster
        cluster = choose_by_weight(cluster_table, n_clusters, place, words[:, 0])
        parts.append((some[place], cluster, words[:, 1]))
    row, cluster, word = (torch.cat(part) for part in zip(*parts, strict=True))
    key_table = cumulative_table(key.mT.flatten(0, 1))
    found = choose_by_weight(key_table, n_keys, row // n_queries * n_clusters + cluster, word)
    return torch.unique(row * n_keys + found)


def _keep(
    cells: Tensor,
    link: Link,
    boost: Tensor,
    query: Tensor,
    key: Tensor,
    shape: tuple[int, int, int, int],
    seed: int,
    first_example: int,
) -> Tensor:
    """Thins Poisson candidates to the Bernoulli law."""
    _, _, n_queries, n_keys = shape
    row = cells // n_keys
    words = edge_words(seed, Purpose.KEEP, *row_address(row, shape, first_example), cells % n_keys)
    u, c = to_uniform(words), boost.flatten()[row]
    is_kept = (u * c < 1) & link.is_linear
    unsure = (~is_kept).nonzero().squeeze(1)
    query, key = query.flatten(0, 1), key.flatten(0, 1)
    for part in unsure.split(_EDGES_AT_ONCE):
        key_row = row[part] // n_queries * n_keys + cells[part] % n_keys
        x = (query[row[part]] * key[key_row]).sum(-1)
        is_kept[part] = u[part] * -torch.expm1(-c[part] * x) < link.probability(x)
    return cells[is_kept]

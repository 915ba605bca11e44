"""The exact sampler, which draws independent Bernoulli edges in time proportional to the number of edges."""

import torch
from torch import Tensor

from sbmt.block_model.crossed import CrossedModel
from sbmt.block_model.model import BlockModel, probability
from sbmt.counter_rng import Purpose, edge_words, to_uniform
from sbmt.graph.edges import EdgeList, reach_of
from sbmt.kernels.operators import can_run_on, draw_crossed, draw_exact
from sbmt.samplers.bernoulli import sample_bernoulli
from sbmt.samplers.fastrg import causal_cells, poisson_cells
from sbmt.samplers.streams import in_float64, row_address
from sbmt.types import has_kernels_for, not_compiled

MAX_BOOST = 32.0  # expected candidates for a pair of probability 1; probabilities are off by less than 2e-14
DENSE_SHARE = 1 / 8  # expected candidates per pair above which drawing pair by pair is cheaper


def sample_exact(
    block_model: BlockModel, exploration: float, seed: int, first_example: int, window: int | None = None
) -> EdgeList:
    r"""Draws an edge between each pair of real tokens with the pair's probability, independently of all other edges.

    A window is added as by :meth:`EdgeList.with_window`. Edges are drawn by compiled loops on a CPU, by kernels on a
    GPU, and otherwise by :func:`sample_with_torch`. All have the same distribution, but a seed gives different edges.

    Cost: O(n k²) for the rates and time proportional to the number of edges, but O(n² k) for dense masks on a GPU.
    """
    blocks = block_model.part_blocks if isinstance(block_model, CrossedModel) else block_model.block_matrix
    if has_kernels_for(blocks):
        return _sample_on_gpu(block_model, exploration, seed, first_example, reach_of(window))
    if not can_run_on(block_model.device):
        edges = sample_with_torch(block_model, exploration, seed, first_example)
        return edges if window is None else edges.with_window(window)
    query_mask, key_mask, causal = block_model.masks
    rest = seed, first_example, reach_of(window), causal
    if isinstance(block_model, CrossedModel):
        factors = (x.detach() for x in block_model.factors)
        row_ptr, keys = draw_crossed(*factors, query_mask, key_mask, exploration, *rest)
    else:
        query, key = (x.detach() for x in block_model.rate_factors(exploration))
        row_ptr, keys = draw_exact(query, key, query_mask, key_mask, block_model.link == "poisson", *rest)
    return EdgeList(row_ptr, keys, block_model.shape, *block_model.masks)


@not_compiled
def _sample_on_gpu(model: BlockModel, exploration: float, seed: int, first_example: int, reach: int) -> EdgeList:
    """Draws the same edges as :func:`sbmt.layers.drawn.attend_and_draw`."""
    from sbmt.kernels.gpu.draw import list_edges, prepare
    from sbmt.kernels.gpu.pairs import list_pairs

    rest = torch.tensor(seed, device=model.device), first_example, exploration, reach
    if isinstance(model, CrossedModel):
        given = model.part_rates, model.part_blocks, model.key_part, model.factors[4], model.masks
        row_ptr, keys = list_edges(*prepare(*given, *rest))
    else:
        row_ptr, keys = list_pairs(model, model.link == "poisson", *rest)
    return EdgeList(row_ptr, keys, model.shape, *model.masks)


def sample_with_torch(block_model: BlockModel, exploration: float, seed: int, first_example: int) -> EdgeList:
    r"""Draws Poisson candidates, merges repeated ones, and thins them to Bernoulli edges.

    Row i draws Poisson candidates at rate $c_i x_{ij}$, where $x = r + \delta$, so that a pair is drawn at least once
    with probability $1 - e^{-c_i x_{ij}}$, independently of all others. With a uniform u, a distinct candidate is kept
    if $u (1 - e^{-c_i x_{ij}}) < p(x_{ij})$, which makes it exactly Bernoulli($p(x_{ij})$), provided that
    $1 - e^{-c_i x} \ge p(x)$ for every pair of the row. Under the bilinear link, where $p(x) = \min(x, 1)$, this holds
    for $c_i = -\ln(1 - \bar x_i)/\bar x_i$, at most 32, where $\bar x_i$ bounds the row. Under the Poisson link the
    candidates already have the right distribution, so c = 1 and all are kept.

    Graphs (in causal models, queries) that expect many candidates are drawn pair by pair, which is then cheaper.

    Cost: O(n k²) for the tables, O(log(n k) + k) per edge; only for dense graphs does it grow with n².
    """
    query, key = in_float64(block_model).rate_factors(exploration)  # batch heads n K, batch heads m K
    boost = _boost(block_model, query, key)  # batch heads n 1
    if block_model.causal:
        rate = (query * boost * key.cumsum(2)[:, :, block_model.offset :]).sum(-1)  # batch heads n
        is_dense = rate > DENSE_SHARE * key.shape[2]
        found = causal_cells((query * boost).masked_fill(is_dense[..., None], 0.0), key, seed, first_example).unique()
    else:
        rates = (query * boost).sum(2) * key.sum(2)  # batch heads K
        of_graph = rates.sum(-1, keepdim=True) > DENSE_SHARE * query.shape[2] * key.shape[2]
        found = poisson_cells(query * boost, rates.masked_fill(of_graph, 0.0), key, seed, first_example).unique()
        is_dense = of_graph.expand(query.shape[:3])
    if block_model.link == "bilinear":
        row, column = found // key.shape[2], found % key.shape[2]
        u = to_uniform(edge_words(seed, Purpose.KEEP, *row_address(row, block_model.shape, first_example), column))
        key_row = row // query.shape[2] * key.shape[2] + column
        x = (query.flatten(0, 2)[row] * key.flatten(0, 2)[key_row]).sum(-1)
        c = boost.flatten()[row]
        found = found[(u * c < 1) | (u * -torch.expm1(-c * x) < probability("bilinear", x))]
    edges = EdgeList.from_cells(found, block_model.shape, *block_model.masks)
    if not bool(is_dense.any()):
        return edges
    every_pair = sample_bernoulli(block_model, exploration, seed, first_example)
    is_kept = is_dense.flatten()[every_pair.rows()]
    return edges.union(EdgeList.from_cells(every_pair.cells()[is_kept], block_model.shape, *block_model.masks))


def _boost(block_model: BlockModel, query: Tensor, key: Tensor) -> Tensor:
    """Returns the factor c of each row, rounded up."""
    if block_model.link == "poisson":
        return torch.ones_like(query[..., :1])
    most = key.cummax(2).values[:, :, block_model.offset :] if block_model.causal else key.amax(2, keepdim=True)
    bound = (query * most).sum(-1, keepdim=True).mul(1 + 1e-12).clamp(1e-300, 1.0)  # Σ_v T_iv max_j K_jv ≥ max_j x_ij
    return (-torch.log1p(-bound) / bound * (1 + 1e-12)).clamp(max=MAX_BOOST)

"""The exact law on a GPU."""

import torch

from sbmt.block_model.model import BlockModel
from sbmt.block_model.pair_products import full_precision
from sbmt.graph.edges import EdgeList
from sbmt.samplers.exact import sample_exact

# How many visits of a kernel are worth one candidate that torch draws, sorts and merges. An estimate: not measured.
VISITS_PER_CANDIDATE = 32.0
_ROUNDED_UP = 1 + 1e-12


def sample_on_gpu(block_model: BlockModel, exploration: float, seed: int, first_example: int) -> EdgeList:
    r"""Skips along every row by a Triton kernel: a pass that counts, and one that fills.

    With $\bar p_i \ge p_{ij}$ over row i, geometric steps visit each key with probability $\bar p_i$, and a visited key
    is kept with probability $p_{ij} / \bar p_i$. With M the clusters' largest memberships and
    $l_j M \le \hat K_j \le b_j M$, the rate lies between $l_j\, T_i M$ and $b_j\, T_i M$, so that most coins need no
    product. Keys come out ascending, and both passes read the same streams, so nothing is sorted or stored in between.

    Where memberships are so unlike that rows would visit many times the keys they keep, torch draws candidates along
    clusters instead (:func:`~sbmt.samplers.exact.sample_exact`).

    Cost: O(n k²) for the rates, O(visits) for the steps, O(k) for each coin in doubt; memory for the edges.
    """
    from sbmt.kernels.gpu.draws.launch import bounds_of_keys, draw_by_skipping

    query, key = (t.detach() for t in block_model.rate_factors())
    largest, *bounds = bounds_of_keys(key)
    with full_precision(query):
        bound_rate = (query.double() @ largest.double().mT).squeeze(-1) * _ROUNDED_UP  # batch heads n_queries
    bound = bound_rate + exploration
    bound = block_model.link.probability(bound)
    if block_model.query_mask is not None:
        bound = bound * block_model.query_mask[:, None]
    visits = bound.sum() * key.shape[2]
    candidates = (query.double().sum(2) * key.double().sum(2)).sum()  # the sum of all rates
    if bool(visits > VISITS_PER_CANDIDATE * candidates):
        return sample_exact(block_model, exploration, seed, first_example)
    streams = seed, first_example, exploration, block_model.link.is_poisson
    with torch.cuda.device_of(query):
        found = draw_by_skipping(query, key, (bounds[0], bounds[1]), bound, bound_rate, block_model.key_mask, *streams)
    return EdgeList(*found, block_model.shape, block_model.query_mask, block_model.key_mask)

"""The sampler that defines the distribution of masks, with one uniform number per query-key pair."""

import torch

from sbmt.block_model.model import BlockModel, probability
from sbmt.counter_rng import Purpose, cell_words, to_uniform
from sbmt.graph.edges import EdgeList
from sbmt.samplers.streams import in_float64, row_address


def sample_bernoulli(block_model: BlockModel, exploration: float, seed: int, first_example: int) -> EdgeList:
    """Sets M_ij = 1 if the uniform number of cell (i, j) is below its probability. O(n² k) time, O(n²) memory."""
    query, key = in_float64(block_model).rate_factors(exploration)
    rows = torch.arange(query[..., 0].numel(), device=query.device)
    address = row_address(rows, block_model.shape, first_example)
    uniform = to_uniform(cell_words(seed, Purpose.CELL, *address, block_model.shape[3]))  # rows n_keys
    mask = uniform.view(block_model.shape) < probability(block_model.link, query @ key.mT)
    if block_model.causal:
        mask = mask.tril(block_model.offset)
    return EdgeList.from_dense(mask, *block_model.masks)

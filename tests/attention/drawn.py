"""A crossed model, and tokens to attend along the edges that are drawn from it."""

import torch

from sbmt.block_model.crossed import CrossedModel, part_memberships
from sbmt.block_model.link import find_link

BATCH, HEADS, N = 2, 3, 90


def model_of(n_heads=HEADS, masks=(None, None), edges_per_query=9.0, dtype=torch.float32):
    """A crossed model of asymmetric blocks whose rows expect from next to no edges to nearly all."""
    generator = torch.Generator().manual_seed(1)
    node_map = torch.nn.Linear(8, 8, dtype=dtype)
    with torch.no_grad():
        for parameter in node_map.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    x, y = (torch.randn(BATCH, n_heads, N, 8, generator=generator, dtype=dtype) for _ in range(2))
    centres = torch.randn(n_heads, 8 * 16, 8, generator=generator, dtype=dtype)
    blocks = torch.rand(n_heads, 8, 16, 16, generator=generator, dtype=dtype) ** 6
    queries, keys = part_memberships(x, y, node_map, centres, 8, 2)
    link = find_link("poisson")
    rates = CrossedModel(queries, blocks, keys, None, None, link).sum_of_rates().mean() / N
    return CrossedModel(queries, blocks * (edges_per_query / rates) ** 0.5, keys, *masks, link)


def tokens(n_heads=HEADS, dtype=torch.float32):
    generator = torch.Generator().manual_seed(2)
    sizes = (7, 7, 5)
    return [torch.randn(BATCH, n_heads, N, d, generator=generator).to(dtype) for d in sizes]

"""Block models of a fixed expected degree, some of whose queries reach every key."""

import torch
from torch.nn.functional import one_hot

from sbmt.block_model.model import BlockModel


def thin_block_model(n: int, degree: float, n_clusters: int = 128, n_stars: int = 0) -> BlockModel:
    """Mixed memberships of one head whose mean rate is ``degree / n``, so that edges grow with n and not with n².

    Args:
        n: Number of queries and of keys.
        degree: Expected keys per query, where no query is a star.
        n_clusters: k ≥ 2.
        n_stars: How many queries reach every key with probability 1.
    """
    generator = torch.Generator().manual_seed(n)
    query, key = (torch.rand(1, 1, n, n_clusters, generator=generator) ** 4 for _ in range(2))
    block = torch.rand(1, n_clusters, n_clusters, generator=generator)
    query[..., 0] = 0.0  # cluster 0 belongs to the stars
    key[..., -1] = 1.0  # so that no key is out of a star's reach
    mean_rate = (query.sum(2) @ block[0] @ key.sum(2).mT).item() / n**2
    block *= degree / n / mean_rate
    block[:, 0] = 1.0
    stars = torch.randperm(n, generator=generator)[:n_stars]
    query[:, :, stars] = one_hot(torch.tensor(0), n_clusters).float()
    return BlockModel(query, block, key)

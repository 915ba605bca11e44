"""Inputs that several tests of the kernels start from."""

import torch

from sbmt import BlockModel


def uneven_model(
    batch, heads, n_queries, n_keys, n_clusters, *, dtype=torch.float32, link="bilinear", is_padded=False
):  # fmt: skip
    """Memberships over many magnitudes, zeros included; rows without edges, and one in which all keys are certain."""
    generator = torch.Generator().manual_seed(0)
    sizes = (batch, heads, n_queries, n_clusters), (heads, n_clusters, n_clusters), (batch, heads, n_keys, n_clusters)
    query, block, key = (torch.rand(size, generator=generator, dtype=dtype) for size in sizes)
    key = key**6
    key[:, :, ::3, 1:] = 0.0
    key[..., 0] = 1.0  # cluster 0 is for the second query alone
    block[:, :, 0], block[:, 0, 0] = 0.0, 1.0
    query[..., 0] = (torch.arange(n_queries) == 1).to(dtype)
    query[:, :, ::5] = 0.0
    masks = (None, None)
    if is_padded:
        masks = (torch.arange(n) < n - torch.arange(batch)[:, None] for n in (n_queries, n_keys))
    return BlockModel(query, block, key, *masks, link=link)

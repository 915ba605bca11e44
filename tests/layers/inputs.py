"""Inputs and layers for the tests of attention layers."""

import torch

from sbmt.layers.registry import PRESETS, RESERVED

EVERY = {name: {"preset": name, "n_clusters": 16} for name in PRESETS}
EVERY |= {name: {"attention": name} for name in sorted(RESERVED - {"sbm"})}
EVERY["sbm_static"]["n_positions"] = EVERY["linformer"]["n_positions"] = 30
"""Yields arguments of a multi-head layer for each attention mechanism, by preset or name."""


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def tokens(batch=2, heads=3, n=8, d=4, seed=0, dtype=torch.float32):
    return torch.randn(batch, heads, n, d, generator=seeded(seed), dtype=dtype)


def without_edges(layer):
    """Sets an SBMAttention so that every edge probability vanishes."""
    with torch.no_grad():
        layer.clusters.fill_(1.0)
        layer.node_mlp[2].weight.zero_()
        layer.node_mlp[2].bias.fill_(-100.0)
    return layer

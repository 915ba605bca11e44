"""Which way ``backend="auto"`` takes on a GPU, without one."""

import inspect
from types import SimpleNamespace

import pytest
import torch

from sbmt import BlockModel
from sbmt.attention import tiles


@pytest.mark.parametrize(("n", "density", "sampler", "backend", "takes_tiles"), [
    (64, 0.01, "exact", "auto", True),
    (4096, 0.01, "exact", "auto", False),
    (4096, 0.5, "exact", "auto", True),
    (4096, 0.01, "bernoulli", "auto", True),
    (4096, 0.5, "fastrg", "auto", False),
    (4096, 0.5, "exact", "gpu", False),
    (4096, 0.01, "bernoulli", "gpu", True),
    (64, 0.5, "bernoulli", "pyg", False),
])  # fmt: skip
def test_tiles_or_rows(n, density, sampler, backend, takes_tiles, monkeypatch):
    monkeypatch.setattr(tiles, "can_tile", lambda *_: True)
    ones = torch.ones(1, 1, n, 1)
    model = BlockModel(ones, torch.full((1, 1, 1), density), ones)
    tokens = SimpleNamespace(device=torch.device("cuda"), shape=(1, 1, n, 1))
    takes = inspect.unwrap(tiles.is_tiled)  # the shape checks want real tensors
    assert takes(tokens, tokens, model, sampler, backend, 0.0) is takes_tiles

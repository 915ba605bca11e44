"""Rotary positions against their definition with complex numbers."""

import pytest
import torch

from sbmt import Encoder, SbmtError
from sbmt.layers.rotary import RotaryPositions, rotate
from tests.layers.inputs import seeded


def vectors(n, d=6, seed=0, dtype=torch.float64):
    return torch.randn(2, 3, n, d, generator=seeded(seed), dtype=dtype)


def test_pairs_are_rotated_as_complex_numbers():
    x = vectors(9)
    theta = 10_000.0 ** (-2 * torch.arange(3, dtype=torch.float64) / 6)
    angle = torch.arange(9, dtype=torch.float64)[:, None] * theta
    expected = torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(rotate(x), torch.view_as_real(expected).flatten(-2))


def test_scores_depend_on_the_distance_alone():
    query, key = (vectors(1, seed=seed).expand(-1, -1, 12, -1) for seed in (1, 2))
    scores = torch.matmul(*(x if i == 0 else x.mT for i, x in enumerate(RotaryPositions(6)(query, key))))
    torch.testing.assert_close(scores[..., 1:, 1:], scores[..., :-1, :-1])
    assert (scores[..., 0, 0] - scores[..., 0, 1]).abs().min() > 1e-3


def test_an_encoder_with_rotary_positions_sees_order_and_has_no_table():
    sizes = dict(d_model=8, d_hidden=8, n_heads=2, n_layers=1, attention="full", embedding_std=1.0)
    tokens = torch.tensor([[0, 1, 2, 3], [2, 1, 0, 3]])
    found = {}
    for positions in ("rotary", "none"):
        torch.manual_seed(0)
        encoder = Encoder(5, None, positions=positions, **sizes).eval()
        assert not any("position" in name for name in encoder.state_dict())
        found[positions] = encoder(tokens).values[:, -1]
    assert torch.allclose(*found["none"], atol=1e-6) and not torch.allclose(*found["rotary"], atol=1e-3)
    assert Encoder(5, 4, **sizes).positions == "learned" and Encoder(5, None, **sizes).positions == "none"
    with pytest.raises(SbmtError, match="at most 4 tokens"):
        Encoder(5, 4, positions="rotary", **sizes)(torch.zeros(1, 5, dtype=torch.int64))

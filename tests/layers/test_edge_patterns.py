"""Self-loops and windows are added to what was sampled, on real pairs only."""

import pytest
import torch

from sbmt.layers import SBMAttention
from tests.layers.inputs import seeded, tokens, without_edges

N = 9


@pytest.mark.parametrize("is_empty", [True, False], ids=["alone", "united"])
@pytest.mark.parametrize("settings", [dict(self_loops=True), *(dict(window=w) for w in (0, 1, 8, 1000))], ids=str)
def test_windows_end_at_borders_and_at_padding_wherever_it_is(settings, is_empty):
    window = settings.get("window", 0)
    query_mask = torch.arange(N) % 4 != torch.tensor([[9], [0], [3], [2], [9]])  # 9 hides nothing
    key_mask = torch.arange(N) % 3 != torch.tensor([[9], [0], [9], [1], [9]])
    key_mask[4] = False
    layer = SBMAttention(4, 3, 5, **settings).eval()
    layer = without_edges(layer) if is_empty else layer
    x = tokens(5, n=N)
    out = layer(x, x, x, query_mask=query_mask, key_mask=key_mask, generator=seeded(), return_edges=True)
    mask, is_real = out.edges.to_dense(), query_mask[:, None, :, None] & key_mask[:, None, None, :]
    is_near = (torch.arange(N)[:, None] - torch.arange(N)).abs() <= window / 2
    assert not (mask & ~is_real).any() and (mask | ~(is_near & is_real)).all()
    assert (mask & ~is_near).any() != (is_empty or window >= 2 * (N - 1))
    assert not out.values[~query_mask[:, None].expand(5, 3, N)].any() and not out.values[4].any()

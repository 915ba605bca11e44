"""The launches of attention's kernels, for inputs of given sizes and none in them."""

from unittest.mock import patch

import torch

from sbmt.kernels.gpu import accumulator
from sbmt.kernels.structures import AttentionInputs, ByKey, Drawing, Mask, RateFactors, TileInputs
from tests.kernels.gpu.builds import Launch, recorded

N = 256  # queries and keys; kernels do not depend on how many there are


def tile_launches(
    dtype: torch.dtype,
    d: int,
    n_clusters: int,
    *,
    is_padded: bool = False,
    is_poisson: bool = False,
    window: int = -1,
    dropout: float = 0.0,
) -> list[Launch]:
    """Attention over drawn tiles, forward and backward."""
    from sbmt.kernels.gpu.tiles import launch as tile_launch

    tokens, rates = torch.zeros(2, 2, N, d, dtype=dtype), torch.zeros(2, 2, N, n_clusters)
    mask = torch.zeros((2, N) if is_padded else 0, dtype=torch.bool)
    about = Drawing(1 << 40, 1 << 41, 0, 0.01, window, dropout, is_poisson, not is_poisson)
    with recorded() as launches:
        inputs = TileInputs(tokens, tokens, tokens, rates, rates, mask, mask)
        out, _, *rest = tile_launch.attend_tiles(inputs, about)
        tile_launch.attend_tiles_backward(inputs, about, [out, *rest], out, torch.zeros(2, 2))
    return launches


def row_launches(dtype: torch.dtype, d: int, n_clusters: int, *, is_gated: bool = True) -> list[Launch]:
    """Attention along rows, forward and backward, and the products of rates: their values and their gradients."""
    from sbmt.kernels.gpu.rows import launch as row_launch

    rows = torch.zeros(2 * N, d, dtype=dtype)
    mask = Mask(torch.arange(2 * N + 1), torch.zeros(2 * N, dtype=torch.int64), N, N)
    by_key = ByKey(mask.row_ptr, mask.keys.int(), mask.keys.int())
    per_edge = torch.zeros(2 * N if is_gated else 0, dtype=accumulator(rows))
    inputs = AttentionInputs(rows, rows, rows, per_edge, per_edge[:0])
    rates = torch.zeros(2 * N, n_clusters)
    with recorded() as launches:
        results = row_launch.attend(inputs, mask, True)
        row_launch.attend_backward(results.out, results, inputs, mask, by_key, True)
        row_launch.dots(rates, rates, mask)
        row_launch.sum_over_keys(per_edge, rates, mask)
        row_launch.sum_over_queries(per_edge, rates, mask, by_key)
    return launches


def draw_launches(n_clusters: int, *, is_padded: bool = False, is_poisson: bool = False, n: int = N) -> list[Launch]:
    """The exact sampler: a kernel that counts, and the same one again, which writes."""
    from sbmt.kernels.gpu import draws as draw_launch

    rates = torch.zeros(2, min(n, 2), n, n_clusters)
    mask = torch.zeros(2, n, dtype=torch.bool) if is_padded else None
    bounds = draw_launch.Bounds(*[rates[..., 0]] * 2, *[rates[..., 0].double()] * 2)
    nobody_counts = patch.object(torch, "empty", torch.zeros)  # there are no edges then
    with recorded() as launches, nobody_counts:
        draw_launch.draw_by_skipping(RateFactors(rates, rates, None, mask, 0.01, is_poisson), bounds, 1 << 40, 0)
    return launches

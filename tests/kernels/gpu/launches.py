"""The launches of attention's kernels, for inputs of given sizes that hold only zeros."""

from unittest.mock import patch

import torch

from sbmt.kernels.structures import AttentionInputs, ByKey, CrossedFactors, Drawing, Mask, RateFactors, TileInputs
from sbmt.precision import accumulator
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
    heads: int = 2,
    n: int = N,
) -> list[Launch]:
    """Attention over drawn tiles, forward and backward."""
    from sbmt.kernels.gpu.tiles import launch as tile_launch

    tokens, rates = torch.zeros(heads, heads, n, d, dtype=dtype), torch.zeros(heads, heads, n, n_clusters)
    mask = torch.zeros((heads, n) if is_padded else 0, dtype=torch.bool)
    inputs = TileInputs(tokens, tokens, tokens, rates, rates, mask, mask)
    drawing = Drawing(1 << 40, 1 << 41, 0, 0.01, window, dropout, is_poisson, not is_poisson)
    with recorded() as launches:
        out, _, log_total = tile_launch.attend_tiles(inputs, drawing)
        tile_launch.attend_tiles_backward(inputs, drawing, out, log_total, out, torch.zeros(heads, heads))
    return launches


def row_launches(
    dtype: torch.dtype,
    d: int,
    n_clusters: int,
    *,
    is_gated: bool = True,
    is_dropped: bool = False,
    has_terms: bool = False,
    n_rows: int = 2 * N,
    n: int = N,
) -> list[Launch]:
    """Attention along rows, forward and backward, and the products of rates: their values and their gradients.

    With ``has_terms``, edges have biases, rows have sinks, and weights are returned.
    """
    from sbmt.kernels.gpu.rows import launch as row_launch

    rows = torch.zeros(n_rows, d, dtype=dtype)
    mask = Mask(torch.arange(n_rows + 1), torch.zeros(n_rows, dtype=torch.int64), n, n)
    by_key = ByKey(mask.row_ptr, mask.keys.int(), mask.keys.int())
    per_edge = torch.zeros(n_rows if is_gated else 0, dtype=accumulator(rows))
    number = torch.zeros(n_rows, dtype=accumulator(rows))
    terms = (number, number[: n_rows // n]) if has_terms else (number[:0], number[:0])
    inputs = AttentionInputs(rows, rows, rows, per_edge, *terms, per_edge if is_dropped else per_edge[:0])
    rates = torch.zeros(n_rows, n_clusters)
    with recorded() as launches:
        results = row_launch.attend(inputs, mask, True, has_terms)
        given = results.out, results.weights, results, inputs, mask, by_key, True, has_terms
        row_launch.attend_backward(*given)
        row_launch.dots(rates, rates, mask)
        row_launch.sum_over_keys(per_edge, rates, mask)
        row_launch.sum_over_queries(per_edge, rates, mask, by_key)
        row_launch.weigh(number, mask, 0.01, 1, 0.05)
        row_launch.gain(number, number, mask, 0.01, 1)
    return launches


def draw_launches(n_clusters: int, *, is_padded: bool = False, is_poisson: bool = False, n: int = N) -> list[Launch]:
    """The exact sampler: a kernel that counts, and the same one again, which writes."""
    from sbmt.kernels.gpu import draws

    rates = torch.zeros(2, min(n, 2), n, n_clusters)
    mask = torch.zeros(2, n, dtype=torch.bool) if is_padded else None
    factors = RateFactors(rates, rates, None, mask, 0.01, is_poisson)
    bounds = draws.Bounds(*[rates[..., 0]] * 2, *[rates[..., 0].double()] * 2)
    no_edges = patch.object(torch, "empty", torch.zeros)  # counts that were never written are zeros
    with recorded() as launches, no_edges:
        draws.draw_by_skipping(factors, bounds, 1 << 40, 0)
    return launches


def crossed_launches(
    dtype: torch.dtype, size: int = 16, *, is_padded: bool = False, n_active: int = 2, n: int = N
) -> list[Launch]:
    """Crossed partitions: choosing parts; entering keys, counting points and scattering them; rates and gradients."""
    from sbmt.kernels.gpu.crossed import launch

    n_groups, heads = 4, 2
    n_parts, n_rows = 2 * n_groups * size, heads * n
    rate, weight = torch.zeros(n_rows, n_parts, dtype=dtype), torch.zeros(n_rows, 2 * n_groups * n_active, dtype=dtype)
    part, blocks = weight.to(torch.int16), torch.zeros(heads, 2 * n_groups, size, size, dtype=dtype)
    padding = torch.ones(1, n, dtype=torch.bool) if is_padded else None
    mask = Mask(torch.arange(n_rows + 1), torch.zeros(n_rows, dtype=torch.int64), n, n)
    by_key = ByKey(mask.row_ptr, mask.keys.int(), mask.keys.int())
    shape = (1, heads, n, n)
    with recorded() as launches, patch.object(torch, "empty", torch.zeros):  # what was never written is zero
        launch.largest(rate, 2 * n_groups, n_active)
        factors = CrossedFactors(part, weight, blocks, part, weight)
        launch.draw(rate, factors, shape, padding, padding, 0.01, 1, 1 << 40, 0)
        launch.part_rates(part, weight, blocks, n)
        launch.part_rates_backward(rate, part, weight, blocks, n)
        launch.rates_along(rate, part, weight, 2 * n_groups, mask)
        launch.rates_backward(mask.keys.to(dtype), rate, part, weight, 2 * n_groups, mask, by_key)
    return launches

"""Edges that were drawn by the Poisson law: what each of them weighs, and how well rates explain where attention goes.

What is done to every edge alike comes first, so that it is vectorised; the few edges between tokens at most ``reach``
places apart, which are there in any case, are put right row by row.
"""

import numpy as np

from sbmt.kernels.cpu.elementary import expm1, log
from sbmt.kernels.cpu.masks import near
from sbmt.kernels.cpu.toolchain import kernel
from sbmt.kernels.cpu.vectors.spans import SLACK, total


@kernel
def weigh_rows(start, stop, rate, mask, exploration, reach, smallest, bias, expected):
    """Fills the biases of the edges of rows start … stop, and the number of edges that each row expects.

    With p = 1 − e^−(r + δ), a bias is −ln max(p, smallest), and an edge counts (1 − e^−r) / p, so 1 without
    exploration; p = 1 if it is certain.
    """
    row_ptr, dtype = mask.row_ptr, rate.dtype.type
    base, end = row_ptr[start], row_ptr[stop]
    delta, smallest, tiny = dtype(exploration), dtype(smallest), dtype(np.finfo(rate.dtype).tiny)
    r, of_edge, share = rate[base:end], bias[base:end], np.empty(end - base + SLACK, rate.dtype)
    for i in range(r.size):
        p = -expm1(-(r[i] + delta))
        of_edge[i] = -log(max(p, smallest))
        share[i] = r[i] > 0
    if exploration > 0:
        for i in range(r.size):
            share[i] = expm1(-r[i]) / min(expm1(-(r[i] + delta)), -tiny)
    for row in range(start, stop):
        here = total(share, row_ptr[row] - base, row_ptr[row + 1] - base)
        for e in near(row, mask, reach):
            here += -expm1(-rate[e]) - share[e - base]
            bias[e] = 0
        expected[row] = here


@kernel
def sum_gains(start, stop, rate, weights, mask, exploration, reach, gain, to_rate):
    """Σ_j a_ij ln(r_ij + δ) for each of rows start … stop, over its edges that are not certain, and its gradients."""
    row_ptr, dtype = mask.row_ptr, rate.dtype.type
    base, end = row_ptr[start], row_ptr[stop]
    delta, tiny = dtype(exploration), dtype(np.finfo(rate.dtype).tiny)
    r, a, of_rate = rate[base:end], weights[base:end], to_rate[base:end]
    of_edge = np.empty(end - base + SLACK, rate.dtype)
    for i in range(r.size):
        x = r[i] + delta
        of_edge[i] = a[i] * log(max(x, tiny))
        of_rate[i] = a[i] / x if x >= tiny else dtype(0)
    for row in range(start, stop):
        for e in near(row, mask, reach):
            of_edge[e - base] = of_rate[e - base] = 0
        gain[row] = total(of_edge, row_ptr[row] - base, row_ptr[row + 1] - base)

"""How many Poisson points fall on each of some rows, by inversion, which is vectorised over the rows."""

import numpy as np

from sbmt.counter_rng import MAX_HEADS, Purpose
from sbmt.kernels.cpu.elementary import exp
from sbmt.kernels.cpu.philox import fill_uniforms
from sbmt.kernels.cpu.toolchain import kernel, to_the_letter

_COUNT = int(Purpose.COUNT) * MAX_HEADS  # in the head's counter word
_MOST = 64.0  # that is expected of a number; where more points are, several numbers are added
_ROUNDING = 2.0**-48  # of a sum of probabilities: a smaller difference is none
_END = 256  # a number is below it: where 64 are expected, one in 10⁷² is not


@kernel
def count_points(expected, count, seed, first_row, head, example):
    """Draws a Poisson number for each of some rows, which follow each other; none fall where infinity is expected."""
    n, number, n_left = expected.size, 0, 1
    mean, u = np.empty(n), np.empty(n)
    count[:n] = 0
    while n_left > 0:
        n_left = 0
        for i in range(n):
            rest = expected[i] - number * _MOST if expected[i] < np.inf else 0.0
            mean[i] = min(max(rest, 0.0), _MOST)
            n_left += rest > _MOST
        fill_uniforms(u, seed, number, first_row, head + _COUNT, example)
        _add_numbers(mean, u, count)
        number += 1


@to_the_letter
def _add_numbers(mean, u, count):
    """Adds to each count how many of its law's cumulative probabilities are below u."""
    probability, k, n_left = np.empty(mean.size), 1, mean.size
    for i in range(mean.size):
        probability[i] = exp(-mean[i])
        u[i] -= probability[i]
    while n_left > 0 and k < _END:
        n_left, share = 0, 1.0 / k
        for i in range(mean.size):
            is_more = u[i] > _ROUNDING
            count[i] += is_more
            n_left += is_more
            probability[i] *= mean[i] * share
            u[i] -= probability[i]
        k += 1

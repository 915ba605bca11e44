"""Exponential and logarithm without branches or calls, so that loops over them are vectorised and several times faster.

Both are computed in float64 with an error of at most three units in the last place.
"""

import math

import numpy as np

from sbmt.kernels.cpu.toolchain import to_the_letter

_LOG2_E = 1 / math.log(2)
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # 33 bits, so that its product with an exponent is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")  # the rest of ln 2
_SQRT_HALF_BITS = np.int64(0x3FE6A09E667F3BCD)
_MANTISSA = np.int64((1 << 52) - 1)


@to_the_letter
def exp(x):
    """e^x for x ≤ 708, in float64; e^−708 (3e-308) below that."""
    x = -708.0 if x < -708.0 else float(x)  # NaN stays NaN
    n = math.floor(x * _LOG2_E + 0.5)
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW  # |r| ≤ ½ ln 2: Taylor's remainder after degree 13 is below 2⁻⁵⁶
    p = 1 / 6227020800
    p = p * r + 1 / 479001600
    p = p * r + 1 / 39916800
    p = p * r + 1 / 3628800
    p = p * r + 1 / 362880
    p = p * r + 1 / 40320
    p = p * r + 1 / 5040
    p = p * r + 1 / 720
    p = p * r + 1 / 120
    p = p * r + 1 / 24
    p = p * r + 1 / 6
    p = p * r + 0.5
    p = p * r * r + r + 1.0
    return p * np.int64((np.int64(n) + 1023) << 52).view(np.float64)


@to_the_letter
def log(x):
    """Natural logarithm of a normal positive float64."""
    bits = np.float64(x).view(np.int64)
    n = (bits - _SQRT_HALF_BITS) >> 52  # x = 2ⁿ m with m in [√½, √2)
    m = np.int64(bits - (n << 52)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)  # ln m = 2 artanh s, |s| ≤ 0.172
    z = s * s
    p = 1 / 21
    p = p * z + 1 / 19
    p = p * z + 1 / 17
    p = p * z + 1 / 15
    p = p * z + 1 / 13
    p = p * z + 1 / 11
    p = p * z + 1 / 9
    p = p * z + 1 / 7
    p = p * z + 1 / 5
    p = p * z + 1 / 3
    return n * _LN2_HIGH + (2.0 * s * (1.0 + z * p) + n * _LN2_LOW)

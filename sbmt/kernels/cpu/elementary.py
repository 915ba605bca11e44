"""Exponential and logarithm without branches or calls, so that loops over them are vectorised and several times faster.

All have an error of at most three units in the last place.
"""

import math

import numpy as np
from numba import types
from numba.extending import overload

from sbmt.kernels.cpu.toolchain import to_the_letter

_LOG2_E = 1 / math.log(2)
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")  # 33 bits, so that its product with an exponent is exact
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")  # the rest of ln 2
_SQRT_HALF_BITS = np.int64(0x3FE6A09E667F3BCD)

_LOG2_E_SINGLE = np.float32(_LOG2_E)
_LN2_HIGH_SINGLE = np.float32(0.693359375)  # 9 bits
_LN2_LOW_SINGLE = np.float32(math.log(2) - 0.693359375)
_LEAST_SINGLE = np.float32(-88.0)  # whose power of two has the exponent bits of 0
_ZERO, _HALF, _ONE, _TWO = (np.float32(x) for x in (0.0, 0.5, 1.0, 2.0))
_SINGLE_7, _SINGLE_6, _SINGLE_5, _SINGLE_4, _SINGLE_3 = (np.float32(1 / math.factorial(n)) for n in range(7, 2, -1))
_SQRT_HALF_BITS_SINGLE = np.int32(0x3F3504F3)
_NINTH, _SEVENTH, _FIFTH, _THIRD = (np.float32(1 / n) for n in (9, 7, 5, 3))


def exp(x):
    """e^x in the type of x, for use in kernels.

    In float64, x ≤ 708, and from −708.8 downwards (below 2e-308) it is 0; in float32, x ≤ 88 and −87.7 (below 9e-39).
    """
    raise NotImplementedError  # to Python; see _exp


@overload(exp)
def _exp(x):
    return (lambda x: _exp_single(x, _ZERO)) if x == types.float32 else (lambda x: _exp_double(x, 0.0))


def expm1(x):
    """e^x − 1 in the type of x, for use in kernels, without loss of digits next to 0; ranges as for :func:`exp`."""
    raise NotImplementedError  # to Python; see _expm1


@overload(expm1)
def _expm1(x):
    return (lambda x: _exp_single(x, _ONE)) if x == types.float32 else (lambda x: _exp_double(x, 1.0))


@to_the_letter
def _exp_double(x, subtracted):
    x = -709.0 if x < -709.0 else float(x)  # whose power of two has the exponent bits of 0; NaN stays NaN
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
    p = p * r * r + r  # e^r − 1
    power = np.int64((np.int64(n) + 1023) << 52).view(np.float64)
    return p * power + (power - subtracted)


@to_the_letter
def _exp_single(x, subtracted):
    x = _LEAST_SINGLE if x < _LEAST_SINGLE else x
    n = np.floor(x * _LOG2_E_SINGLE + _HALF)
    r = (x - n * _LN2_HIGH_SINGLE) - n * _LN2_LOW_SINGLE  # Taylor's remainder after degree 7 is below 2⁻²⁷
    p = _SINGLE_7
    p = p * r + _SINGLE_6
    p = p * r + _SINGLE_5
    p = p * r + _SINGLE_4
    p = p * r + _SINGLE_3
    p = p * r + _HALF
    p = p * r * r + r
    power = np.int32((np.int32(n) + 127) << 23).view(np.float32)
    return p * power + (power - subtracted)


def log(x):
    """Natural logarithm of a normal positive number in the type of x, for use in kernels."""
    raise NotImplementedError  # to Python; see _log


@overload(log)
def _log(x):
    return (lambda x: _log_single(x)) if x == types.float32 else (lambda x: _log_double(x))


@to_the_letter
def _log_double(x):
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


@to_the_letter
def _log_single(x):
    bits = np.float32(x).view(np.int32)
    n = (bits - _SQRT_HALF_BITS_SINGLE) >> np.int32(23)
    m = np.int32(bits - (n << np.int32(23))).view(np.float32)
    s = (m - _ONE) / (m + _ONE)
    z = s * s
    p = _NINTH
    p = p * z + _SEVENTH
    p = p * z + _FIFTH
    p = p * z + _THIRD
    n = np.float32(n)
    return n * _LN2_HIGH_SINGLE + (_TWO * s * (_ONE + z * p) + n * _LN2_LOW_SINGLE)

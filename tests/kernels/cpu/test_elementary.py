"""exp, expm1 and log against NumPy's, in a loop as kernels use them: inlined, vectorised, and with fused products."""

import numba
import numpy as np

from sbmt.kernels.cpu import elementary

EXP_ULPS, LOG_ULPS = 2, 3  # the latter next to one; elsewhere log is good to two


def in_a_loop(function):
    @numba.njit(error_model="numpy", fastmath={"contract", "reassoc", "nsz"})
    def loop(x, out):
        for i in range(x.size):
            out[i] = function(x[i])

    def run(x):
        x = np.atleast_1d(x)
        out = np.empty(x.size, x.dtype)
        loop(x, out)
        return out

    return run


exp, expm1, log = (in_a_loop(f) for f in (elementary.exp, elementary.expm1, elementary.log))


def ulps(found, function, x):
    """The largest error in units in the last place of the exact result, which long doubles stand for."""
    exact = function(x.astype(np.longdouble))
    unit = np.spacing(np.abs(exact.astype(found.dtype)))
    return float((np.abs(found - exact) / unit).max())


def uniform(low, high, n=50_000):
    return np.random.default_rng(0).uniform(low, high, n)


EXPONENTS = {
    "everything": uniform(-708, 708),
    "what a softmax asks for": uniform(-40, 0),
    "next to zero": np.concatenate([sign * 2.0 ** uniform(-70, 0) for sign in (1, -1)]),
    "where the reduction changes": np.nextafter(
        (np.arange(-1000, 1000) + 0.5) * np.log(2), [[-np.inf], [np.inf]]
    ).ravel(),
}
SINGLE_EXPONENTS = {
    "everything": uniform(-87, 88).astype(np.float32),
    "what a softmax asks for": uniform(-40, 0).astype(np.float32),
    "next to zero": np.concatenate([sign * 2.0 ** uniform(-40, 0) for sign in (1, -1)]).astype(np.float32),
    "where the reduction changes": ((np.arange(-120, 120) + 0.5) * np.log(2) * (1 + uniform(-1e-6, 1e-6, 99)[:, None]))
    .ravel()
    .astype(np.float32),
}
ARGUMENTS = {
    "everything": 2.0 ** uniform(-1022, 1023.99),
    "about one": uniform(0.4, 2.5),
    "next to one": np.concatenate([1 + sign * 2.0 ** uniform(-53, -1) for sign in (1, -1)]),
    "where the reduction changes": (
        2.0 ** (np.arange(-1020, 1020) + 0.5) * (1 + uniform(-1e-15, 1e-15, 9)[:, None])
    ).ravel(),
    "uniforms of 53 bits": (np.floor(uniform(0, 2**53)) + 0.5) / 2**53,
    "of single precision": (2.0 ** uniform(-100, 100)).astype(np.float32).astype(np.float64),
}
SINGLE_ARGUMENTS = {
    "everything": (2.0 ** uniform(-125.9, 127.9)).astype(np.float32),
    "about one": ARGUMENTS["about one"].astype(np.float32),
    "next to one": np.concatenate([1 + sign * 2.0 ** uniform(-24, -1) for sign in (1, -1)]).astype(np.float32),
    "where the reduction changes": (2.0 ** (np.arange(-125, 127) + 0.5) * (1 + uniform(-1e-6, 1e-6, 99)[:, None]))
    .ravel()
    .astype(np.float32),
}


def test_all_are_accurate_to_the_last_places():
    for name, x in [*EXPONENTS.items(), *SINGLE_EXPONENTS.items()]:
        for function, theirs in ((exp, np.exp), (expm1, np.expm1)):
            assert function(x).dtype == x.dtype and ulps(function(x), theirs, x) <= EXP_ULPS, (name, x.dtype, theirs)
    for name, x in [*ARGUMENTS.items(), *SINGLE_ARGUMENTS.items()]:
        assert log(x).dtype == x.dtype and ulps(log(x)[x != 1], np.log, x[x != 1]) <= LOG_ULPS, (name, x.dtype)
    for dtype in (np.float64, np.float32):
        assert exp(dtype(0))[0] == exp(dtype(-0.0))[0] == 1 and expm1(dtype(0))[0] == log(dtype(1))[0] == 0
    for x in (EXPONENTS["everything"], SINGLE_EXPONENTS["everything"]):  # the comparison resolves fractions of a unit
        assert 0.4 < ulps(exp(x), np.exp, x) and ulps(np.nextafter(exp(x), x.dtype.type(np.inf)), np.exp, x) > 1


def test_extreme_arguments():
    assert np.isnan(exp(np.array([np.nan, -np.nan]))).all() and np.isnan(exp(np.array([np.nan], np.float32))).all()
    tiny = exp(np.array([-708.0, -709.0, -745.2, -1e4, -1e300, -np.inf]))
    assert 0 < tiny[0] < 1e-300 and (tiny[1:] == 0).all()
    tiny = exp(np.array([-87.0, -88.0, -104.0, -1e4, -1e30, -np.inf], np.float32))
    assert 0 < tiny[0] < 2e-38 and (tiny[1:] == 0).all()  # 2e-38 times a large gradient would be seen

"""Checks of numbers and lists in arguments. NumPy numbers are accepted, but bools are not."""

import math
from reprlib import repr as shorten
from typing import Any

import numpy as np

from sbmt.errors import SbmtError
from sbmt.errors import is_number as is_real

Bound = float | int


def is_number(given: Any, least: Bound = -math.inf, most: Bound = math.inf) -> bool:
    """Returns whether this is a real number in [least, most] that fits into a float, and neither NaN nor a bool."""
    try:
        return is_real(given) and least <= float(given) <= most
    except OverflowError:
        return False


def as_number(given: Any, expected: str, do: str, least: Bound = -math.inf, most: Bound = math.inf) -> float:
    """Converts a real number in [least, most] to a float. Anything else raises an SbmtError with the given text."""
    if not is_number(given, least, most):
        raise SbmtError(expected, shorten(given), do)
    return float(given)


def as_floats(given: Any, expected: str, do: str, least: Bound = -math.inf, most: Bound = math.inf) -> np.ndarray:
    """Copies finite numbers in [least, most] to an array. Anything else raises an SbmtError with the given text."""
    try:
        array = np.asarray(given)
        array = array.astype(np.float64) if array.dtype.kind in "biuf" else np.array(math.nan)
    except ValueError:  # rows of different lengths
        array = np.array(math.nan)
    if not (np.isfinite(array) & (array >= least) & (array <= most)).all():
        raise SbmtError(expected, shorten(given), do)
    return array


def as_list(given: Any, expected: str, do: str) -> list[Any]:
    """Converts an iterable to a list. A string or any other object raises an SbmtError with the given text."""
    if isinstance(given, (str, bytes)) or not np.iterable(given):
        raise SbmtError(expected, repr(given), do)
    return list(given)

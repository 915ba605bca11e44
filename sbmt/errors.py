"""The library's error class, and checks of names and sizes."""

from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any, TypeVar, get_args

Value = TypeVar("Value")


def printable(text: object) -> str:
    """Returns the text on one line, with control characters escaped as in Python."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


class SbmtError(ValueError):
    """An error whose one-line message says what was expected, what was passed instead, and how to fix it.

    Args:
        expected: A description of the expected value, or the whole message if there are no other arguments.
        got: The value that was passed.
        do: Advice on how to fix the error.

    Example:
        >>> print(SbmtError("n_clusters >= 1", 0, "ask for at least one cluster"))
        expected n_clusters >= 1, got 0: ask for at least one cluster
    """

    def __init__(self, expected: str, got: object = None, do: str | None = None) -> None:
        super().__init__(*((expected,) if do is None else (expected, got, do)))

    def __str__(self) -> str:
        return printable("expected {}, got {}: {}".format(*self.args) if len(self.args) == 3 else self.args[0])


def is_integer(x: object) -> bool:
    """Returns whether ``x`` is a Python or NumPy integer but not a bool."""
    return isinstance(x, Integral) and not isinstance(x, bool)


def is_number(x: object) -> bool:
    """Returns whether ``x`` is a real number from Python or NumPy but not a bool."""
    return isinstance(x, Real) and not isinstance(x, bool)


def describe(x: object) -> object:
    """Describes an argument in an error message: tensors by dtype and shape, most other objects by type and value."""
    if x is None or is_number(x):
        return x
    if hasattr(x, "dtype") and hasattr(x, "shape"):
        return f"{x.dtype} {tuple(x.shape)}"
    return f"{type(x).__name__} {x!r}"


def choose(kind: str, name: str, table: Mapping[str, Value]) -> Value:
    """Returns ``table[name]``, or raises an SbmtError that lists the valid names if the name is unknown."""
    if not isinstance(name, str) or name not in table:
        raise SbmtError(f"{kind} to be one of {', '.join(map(repr, table))}", repr(name), "choose one of these names")
    return table[name]


def check_choice(kind: str, name: str, choices: Any) -> None:
    """Raises SbmtError unless ``name`` is one of the strings that a ``Literal`` type lists."""
    choose(kind, name, dict.fromkeys(get_args(choices)))


def check_seed(seed: int) -> None:
    """Raises SbmtError unless the seed is an integer in [0, 2⁶³)."""
    if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 63:
        raise SbmtError("a seed in [0, 2⁶³)", seed, "choose a non-negative integer below 2⁶³")


def check_sizes(**sizes: int) -> None:
    """Raises SbmtError unless every size is an integer in [1, 2³¹)."""
    for name, size in sizes.items():
        if not is_integer(size) or size < 1:
            raise SbmtError(f"{name} ≥ 1", describe(size), "pass a positive integer")
        if size >= 1 << 31:
            raise SbmtError(f"{name} < 2³¹", f"a number of {int(size).bit_length()} bits", "pass a smaller number")

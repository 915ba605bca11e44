"""What checks types and shapes while the tests run: see ``--jaxtyping-packages`` in ``pyproject.toml``."""

from beartype import beartype

_CHECKS = {}


def checked(function):
    """``beartype``; the checks of a function inside a function are compiled once, not with every call of the outer."""
    if "<locals>" not in function.__qualname__:
        return beartype(function)
    key = (function.__module__, function.__qualname__, function.__code__, repr(function.__annotations__))
    if key not in _CHECKS:
        _CHECKS[key] = beartype(function)
    return _CHECKS[key]

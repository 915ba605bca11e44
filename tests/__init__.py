"""The checker of types and shapes in tests, which ``--jaxtyping-packages`` in ``pyproject.toml`` names."""

from beartype import beartype

_CHECKS = {}


def checked(function):
    """``beartype``, except that nested functions are compiled once, not with every call of the outer one."""
    if "<locals>" not in function.__qualname__:
        return beartype(function)
    key = (function.__module__, function.__qualname__, function.__code__, repr(function.__annotations__))
    if key not in _CHECKS:
        _CHECKS[key] = beartype(function)
    return _CHECKS[key]

"""How something of the user's gets a name: a backend, a sampler, an attention."""

import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from sbmt.errors import SbmtError

Value = TypeVar("Value")


def add_to(table: dict[str, Value], kind: str, name: str, value: Value, reserved: Collection[str]) -> None:
    """Enters ``value`` under ``name``. The user's own names may be given anew, so that a cell can be run twice.

    Args:
        table: Where it is looked up.
        kind: What it is, for the error.
        name: Letters, digits and underscores.
        value: What to enter.
        reserved: Names that the library uses itself.

    Raises:
        SbmtError: If the name is no name, or reserved.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise SbmtError(f"a name for the {kind} in letters, digits and _", repr(name), "name it so")
    if name in reserved:
        raise SbmtError(f"a name that the library does not use for {_a(kind)}", repr(name), "take another")
    table[name] = value


def check_takes(kind: str, function: Callable[..., Any], arguments: Collection[str]) -> None:
    """Raises SbmtError unless ``function`` can be called with so many arguments, given by position."""
    called = f"{kind}({', '.join(arguments)})"
    if not callable(function):
        raise SbmtError(f"a function called as {called}", type(function).__name__, "pass the function itself")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise SbmtError(f"a function called as {called}", str(error), "give it these arguments") from error
    except ValueError:  # no signature to be had, as of some functions written in C
        return


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"

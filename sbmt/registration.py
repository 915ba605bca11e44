"""How users add a backend, a sampler or an attention of their own: its name, its options, the module it comes from."""

import inspect
import os
import sys
from collections.abc import Callable, Collection
from dataclasses import field
from importlib import import_module
from typing import Any, TypeVar

from sbmt.errors import SbmtError

Value = TypeVar("Value")
PLUGINS = "SBMT_PLUGINS"


def option(default: Any, help_: str, names: Collection[str] | None = None) -> Any:
    """A dataclass field that the command line offers as an option.

    Args:
        default: Its value where nothing is given.
        help_: What ``--help`` says about it.
        names: The values that are allowed, if they are names; a table of names may grow later.
    """
    return field(default=default, metadata={"help": help_, "names": names})


def load_plugins() -> None:
    """Imports the modules that the environment variable ``SBMT_PLUGINS`` names, separated by commas.

    They register what is theirs when they are imported. The working directory is searched too.

    Raises:
        SbmtError: If one of them cannot be imported.
    """
    names = [name.strip() for name in os.environ.get(PLUGINS, "").split(",") if name.strip()]
    if names and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for name in names:
        try:
            import_module(name)
        except SbmtError:
            raise
        except Exception as error:  # whatever a module does wrong while it is imported
            got = f"{name!r} ({type(error).__name__}: {error})"
            raise SbmtError(
                f"modules that can be imported in {PLUGINS}", got, "correct the name or the module"
            ) from error


def add_to(table: dict[str, Value], kind: str, name: str, value: Value, reserved: Collection[str]) -> None:
    """Enters ``value`` under ``name``. A user's own name may be entered again, so that a cell can be run twice.

    Args:
        table: Where it is looked up.
        kind: What it is, for the error.
        name: Letters, digits and underscores.
        value: What to enter.
        reserved: Names that the library uses itself.

    Raises:
        SbmtError: If the name is not an identifier, or is reserved.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise SbmtError(f"a name for the {kind} in letters, digits and _", repr(name), "name it so")
    if name in reserved:
        raise SbmtError(f"a name that the library does not use for {_a(kind)}", repr(name), "take another")
    table[name] = value


def check_takes(kind: str, function: Callable[..., Any], arguments: Collection[str]) -> None:
    """Raises SbmtError unless ``function`` can be called with these arguments by position."""
    called = f"{kind}({', '.join(arguments)})"
    if not callable(function):
        raise SbmtError(f"a function called as {called}", type(function).__name__, "pass the function itself")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        raise SbmtError(f"a function called as {called}", str(error), "give it these arguments") from error
    except ValueError:  # some functions written in C have no signature
        return


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"

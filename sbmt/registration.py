"""What lets users add a backend, a sampler or an attention of their own: names, options, and modules to import."""

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
    """Imports the modules that ``SBMT_PLUGINS`` names, separated by commas; importing them registers what they define.

    The working directory is searched too.

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
        except Exception as error:  # a module may fail in any way while it is imported
            got = f"{name!r} ({type(error).__name__}: {error})"
            do = "correct the name or the module"
            raise SbmtError(f"modules that can be imported in {PLUGINS}", got, do) from error


def add_to(table: dict[str, Value], kind: str, name: str, value: Value, reserved: Collection[str]) -> None:
    """Enters ``value`` under ``name``. A user's own name may be entered again, so that a cell can be run twice.

    Raises:
        SbmtError: If the name is not an identifier, or is among those that the library reserves for itself.
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise SbmtError(f"a name for the {kind} in letters, digits and _", repr(name), "name it so")
    if name in reserved:
        article = "an" if kind[0] in "aeiou" else "a"
        raise SbmtError(f"a name that the library does not use for {article} {kind}", repr(name), "take another")
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

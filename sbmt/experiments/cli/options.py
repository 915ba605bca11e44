"""Command-line options made from a configuration's fields and from the options of the attentions."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import Field, fields
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from sbmt.errors import SbmtError
from sbmt.layers.registry import ATTENTIONS, options_of


def parameters_of(command: Callable[..., Any], kind: Any) -> list[inspect.Parameter]:
    """The parameters of this kind, all of which have defaults or are named."""
    found = inspect.signature(command).parameters.values()
    return [p.replace(kind=p.KEYWORD_ONLY) for p in found if p.kind is kind]


def config_parameters(config: type, without: Collection[str] = ()) -> list[inspect.Parameter]:
    """One option for each field of a configuration, and one for each option of any attention, all None if not given.

    A field's help text is its metadata ``"help"``; names in ``without`` get no option.
    """
    hints, found = get_type_hints(config), []
    starts: dict[str, Any] = {}
    for field in fields(config):
        if field.name == "option_defaults":
            starts = dict(field.default)  # type: ignore[arg-type]
        elif field.name not in ("options", *without):
            found.append(_parameter(field, hints[field.name], field.metadata["help"], field.default))
    for name, (owners, field, hint) in attention_options().items():
        if name in hints:
            do = "rename it: the command line uses it for something else"
            raise SbmtError(f"another name for an option of {owners[0]!r}", name, do)
        help_ = f"{', '.join(owners)}: {field.metadata['help'] or name}"
        found.append(_parameter(field, hint, help_, starts.get(name, field.default), "Options of the attention"))
    return found


def attention_options() -> dict[str, tuple[list[str], "Field[Any]", Any]]:
    """All options of attentions by name: the attentions that have it, the first one's field, and its type."""
    found: dict[str, tuple[list[str], Field[Any], Any]] = {}
    for attention in ATTENTIONS:
        hints = get_type_hints(options_of(attention))
        for field in fields(options_of(attention)):
            owners, _, hint = found.setdefault(field.name, ([], field, hints[field.name]))
            if hint != hints[field.name]:
                expected = f"the option {field.name} of {attention!r} with the type that it has in {owners[0]!r}"
                raise SbmtError(expected, hints[field.name], "change the type, or rename the option")
            owners.append(attention)
    return found


def _parameter(field: "Field[Any]", hint: Any, help_: str, default: Any, group: str | None = None) -> inspect.Parameter:
    if names := field.metadata.get("names"):
        help_ += f" ({', '.join(names)})"
    if default not in (None, ""):
        help_ += f" (default: {default})"
    option = typer.Option(help=help_, show_default=False, rich_help_panel=group)
    annotation = Annotated[_kind(hint) | None, option]  # type: ignore[valid-type]
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _kind(hint: Any) -> Any:
    """The type of a value on the command line: T for ``T | None``, str for the names of a ``Literal``."""
    if get_origin(hint) is Literal:
        return str
    given = [each for each in get_args(hint) if each is not NoneType]
    return _kind(given[0]) if given else hint

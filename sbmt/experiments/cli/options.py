"""Command-line options made from a configuration's fields."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import fields
from functools import wraps
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

import typer


def with_fields_of(config: type, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command one option per field of a dataclass.

    The decorated command takes ``**overrides``: the fields that were given, None for the rest.

    Args:
        config: The dataclass; a field's help text is its metadata ``"help"``.
        without: Fields that get no option.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command).parameters.values() if p.kind is not p.VAR_KEYWORD]
        hints = get_type_hints(config)
        options = []
        for field in fields(config):
            if field.name in without:
                continue
            choices = get_args(hints[field.name])  # of T | None, or the names of a Literal
            types = [t for t in choices if isinstance(t, type) and t is not NoneType]
            kind = types[0] if types else str if choices else hints[field.name]
            default = "" if field.default in (None, "") else f" (default: {field.default})"
            option = typer.Option(help=field.metadata["help"] + default, show_default=False)
            annotation = Annotated[kind | None, option]  # type: ignore[valid-type]
            options.append(
                inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
            )

        @wraps(command)
        def wrapper(*args: Any, **kwargs: Any) -> None:
            command(*args, **kwargs)

        parameters = [*own, *options]
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate

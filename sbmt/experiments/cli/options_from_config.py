"""Command-line options made from a configuration's fields and from the options of the attentions."""

import inspect
from collections.abc import Callable, Collection, Iterator
from dataclasses import Field, fields
from functools import update_wrapper
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from sbmt.errors import SbmtError
from sbmt.layers.registry import ATTENTIONS, options_of

GROUP = "Options of the attention"


def with_fields_of(config: type, without: Collection[str] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command one option for each field of a configuration, and one for each option of any attention.

    The command takes ``**overrides``: the values that were given, None for the rest. Attentions may be registered
    until the command line is parsed.

    Args:
        config: The dataclass; a field's help text is its metadata ``"help"``.
        without: Names that get no option.
    """
    return lambda command: _Command(command, config, frozenset(without))


class _Command:
    """A command whose signature is built when Typer asks for it, since plugins may register attentions until then."""

    def __init__(self, command: Callable[..., None], config: type, without: frozenset[str]) -> None:
        update_wrapper(self, command)
        self.command, self.config, self.without = command, config, without
        self._known: list[tuple[str, type]] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.command(*args, **kwargs)

    @property
    def __signature__(self) -> inspect.Signature:
        known = [(name, options_of(name)) for name in ATTENTIONS]
        if known != self._known:  # Typer and inspect ask for it dozens of times
            own = [p for p in inspect.signature(self.command).parameters.values() if p.kind is not p.VAR_KEYWORD]
            self._signature = inspect.Signature([*own, *self._parameters({p.name for p in own})])
            self._known = known
        return self._signature

    def _parameters(self, taken: set[str]) -> Iterator[inspect.Parameter]:
        hints = get_type_hints(self.config)
        starts: dict[str, Any] = {}
        for field in fields(self.config):
            if field.name == "option_defaults":
                starts = dict(field.default)  # type: ignore[arg-type]
            elif field.name != "options" and field.name not in self.without:
                yield _parameter(field, hints[field.name], field.metadata["help"], field.default)
        for name, owners in attention_options().items():
            if name in hints or name in taken:
                do = "rename it: the command line uses it for something else"
                raise SbmtError(f"another name for an option of {owners[0]!r}", name, do)
            if name not in self.without:
                options = options_of(owners[0])
                field = next(f for f in fields(options) if f.name == name)
                help_ = f"{', '.join(owners)}: {field.metadata['help'] or name}"
                yield _parameter(field, get_type_hints(options)[name], help_, starts.get(name, field.default), GROUP)


def attention_options() -> dict[str, list[str]]:
    """The names of all options of attentions, each with the attentions that have it.

    Raises:
        SbmtError: If two attentions have options of one name and different types.
    """
    owners: dict[str, list[str]] = {}
    for attention in ATTENTIONS:
        hints = get_type_hints(options_of(attention))
        for field in fields(options_of(attention)):
            first = owners.setdefault(field.name, [attention])[0]
            if first == attention:
                continue
            if get_type_hints(options_of(first))[field.name] != hints[field.name]:
                expected = f"the option {field.name} of {attention!r} with the type that it has in {first!r}"
                raise SbmtError(expected, hints[field.name], "change the type, or rename the option")
            owners[field.name].append(attention)
    return owners


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

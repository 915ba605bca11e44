"""Attentions by name: their classes, their options and their costs."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

from torch import nn

from sbmt.baselines.full import FullAttention, FullOptions
from sbmt.baselines.linear import LinearAttention
from sbmt.baselines.linformer import LinformerAttention, LinformerOptions
from sbmt.baselines.nystromformer import NystromAttention, NystromOptions
from sbmt.baselines.performer import PerformerAttention, PerformerOptions
from sbmt.baselines.random_mask import RandomMaskAttention, RandomMaskOptions
from sbmt.baselines.reformer import ReformerAttention, ReformerOptions
from sbmt.baselines.routing import RoutingAttention, RoutingOptions
from sbmt.errors import SbmtError, choose
from sbmt.layers.sbm import SBMAttention
from sbmt.layers.sbm_options import PRESETS, SBMOptions, StaticSBMOptions
from sbmt.layers.sbm_static import StaticSBMAttention
from sbmt.registration import add_to, check_takes

ATTENTIONS: dict[str, type[nn.Module]] = {
    "sbm": SBMAttention,
    "sbm_static": StaticSBMAttention,
    "full": FullAttention,
    "linear": LinearAttention,
    "linformer": LinformerAttention,
    "reformer": ReformerAttention,
    "routing": RoutingAttention,
    "performer": PerformerAttention,
    "nystromformer": NystromAttention,
    "random_mask": RandomMaskAttention,
}
RESERVED = frozenset(ATTENTIONS)
SHARED = ("d_head", "n_heads", "dropout")
"""What every constructor takes, and no options repeat."""


@dataclass(frozen=True)
class NoOptions:
    """The options of an attention that has none."""


OPTIONS: dict[str, type] = {
    "sbm": SBMOptions,
    "sbm_static": StaticSBMOptions,
    "full": FullOptions,
    "linformer": LinformerOptions,
    "reformer": ReformerOptions,
    "routing": RoutingOptions,
    "performer": PerformerOptions,
    "nystromformer": NystromOptions,
    "random_mask": RandomMaskOptions,
}
"""The dataclass of each attention's options, by name; attentions that are missing here have none. Its defaults are what
training starts from."""

COSTS: dict[type[nn.Module], Callable[[Any, int], Any]] = {}
"""By class: a function of a module and a number of tokens that counts the module's operations."""


def register_attention(
    name: str,
    attention: type[nn.Module],
    options: type | None = None,
    cost: Callable[[Any, int], Any] | None = None,
) -> None:
    """Gives an attention of yours a name, for :func:`build_attention`, the models, the trainer and the command line.

    Its constructor takes ``d_head``, ``n_heads`` and ``dropout`` by name, and whatever else it needs. If it takes
    ``n_positions``, training fills in the length of the sequences. Its modules are called as the library's own are;
    :func:`sbmt.testing.check_attention` says whether they keep its rules.

    Args:
        name: Letters, digits and underscores, and not one of the library's own names. A name of yours may be
            registered again.
        attention: The class.
        options: A frozen dataclass of what the constructor takes besides ``d_head``, ``n_heads`` and ``dropout``. All
            fields have defaults, which training starts from, and values that JSON can hold; a field that is None is
            left to the constructor. Each becomes an option of the command line: ``n_hops`` is ``--n-hops``. Its
            metadata may hold ``"help"``, the text for ``--help``, and ``"names"``, the allowed values.
        cost: Called as ``cost(module, n)`` with a module of the class and a number of tokens; returns a
            :class:`sbmt.cost.ModuleCost`. Without it, ``sbmt cost`` says "not counted".

    Raises:
        SbmtError: If the name is taken or not an identifier, the class is not a ``torch.nn.Module``, the options are
            not a frozen dataclass that fits the constructor, or the cost cannot be called so.

    Example:
        >>> register_attention("sbm", SBMAttention)
        Traceback (most recent call last):
        ...
        sbmt.errors.SbmtError: expected a name that the library does not use for an attention, got 'sbm': take another
    """
    if not isinstance(attention, type) or not issubclass(attention, nn.Module):
        got = attention.__name__ if isinstance(attention, type) else f"a {type(attention).__name__}"
        raise SbmtError("an attention as a subclass of torch.nn.Module", got, "pass the class, not an instance")
    if options is not None:
        _check_options_class(attention, options)
    if cost is not None:
        check_takes("cost", cost, ("module", "n"))
    add_to(ATTENTIONS, "attention", name, attention, RESERVED)
    OPTIONS.pop(name, None)
    if options is not None:
        OPTIONS[name] = options
    if cost is not None:
        COSTS[attention] = cost


def options_of(name: str) -> type:
    """The dataclass of an attention's options.

    Raises:
        SbmtError: If there is no attention of this name.
    """
    choose("attention", name, ATTENTIONS)
    return OPTIONS.get(name, NoOptions)


def make_options(name: str, values: Mapping[str, Any]) -> Any:
    """The options of an attention, with these values and its defaults for the rest.

    Raises:
        SbmtError: If it has no option of that name, or a value is not allowed.

    Example:
        >>> make_options("performer", {"n_features": 64})
        PerformerOptions(n_features=64)
    """
    kind = options_of(name)
    known = {field.name: field for field in fields(kind)}
    if unknown := [option for option in values if option not in known]:
        expected = f"options of attention {name!r} ({', '.join(known) or 'it has none'})"
        raise SbmtError(expected, ", ".join(unknown), "leave it out, or take another attention")
    for option, value in values.items():
        if (names := known[option].metadata.get("names")) and value is not None:
            choose(option, value, dict.fromkeys(names))
    try:
        return kind(**values)
    except TypeError as error:
        raise SbmtError(f"numbers and names as options of {name!r}", str(error), "see its documentation") from error


def arguments_of(options: Any) -> dict[str, Any]:
    """Arguments for :func:`build_attention` from an attention's options."""
    if hasattr(options, "arguments"):
        return dict(options.arguments())
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def has_positions(name: str) -> bool:
    """Whether an attention's constructor takes ``n_positions``."""
    return "n_positions" in _parameters(choose("attention", name, ATTENTIONS))


def has_block_model(name: str) -> bool:
    """Whether an attention infers a block model, so that a price on its density changes its mask."""
    return hasattr(choose("attention", name, ATTENTIONS), "block_model")


def build_attention(name: str, *, preset: str | None = None, **arguments: Any) -> nn.Module:
    """Builds an attention by its name.

    All share one interface: ``(query, key, value, *, query_mask, key_mask, generator, return_edges)`` returns an
    :class:`~sbmt.types.AttentionOutput`.

    Args:
        name: ``"sbm"``, ``"sbm_static"``, ``"full"``, ``"linear"``, ``"linformer"``, ``"reformer"``, ``"routing"``,
            ``"performer"``, ``"nystromformer"``, ``"random_mask"``, or a name that :func:`register_attention` was
            given.
        preset: For ``"sbm"``: ``"recommended"``, ``"faithful"`` or ``"fitted"``; arguments override its settings.
        **arguments: What the class takes; all take ``d_head`` and ``n_heads``.

    Raises:
        SbmtError: If the name, the preset or an argument is unknown, or an argument is missing.

    Example:
        >>> build_attention("full", d_head=8, n_heads=2)
        FullAttention(d_head=8, n_heads=2, dropout=0.0)
    """
    attention = choose("attention", name, ATTENTIONS)
    if preset is not None:
        if name != "sbm":
            raise SbmtError("a preset with attention 'sbm' only", f"{preset!r} with {name!r}", "leave it out")
        arguments = choose("preset", preset, PRESETS) | arguments
    parameters = _parameters(attention)
    takes_any = any(p.kind in _ANY for p in parameters.values())
    if not takes_any and (unknown := [x for x in arguments if x not in parameters]):
        expected = f"arguments that {attention.__name__} takes: {', '.join(parameters)}"
        raise SbmtError(expected, ", ".join(unknown), "leave it out, or take another attention")
    needed = [x for x, p in parameters.items() if p.default is p.empty and p.kind not in _ANY]
    if missing := [x for x in needed if x not in arguments]:
        raise SbmtError(f"arguments for {attention.__name__}", f"no {', no '.join(missing)}", "give them by name")
    return attention(**arguments)


_ANY = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)


def _parameters(attention: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """What a constructor takes; where it hands further keywords on, also what the class that it inherits from takes."""
    found: dict[str, inspect.Parameter] = {}
    more: list[inspect.Parameter] = []
    for kind in attention.__mro__:
        if kind is nn.Module:
            break
        if "__init__" not in vars(kind):
            continue
        mine = list(inspect.signature(kind).parameters.values())
        found = {p.name: p for p in mine if p.kind not in _ANY} | found
        if not (more := [p for p in mine if p.kind is p.VAR_KEYWORD]):
            return found
    return found | {p.name: p for p in more}


def _check_options_class(attention: type[nn.Module], options: type) -> None:
    if not isinstance(options, type) or not is_dataclass(options) or not vars(options)["__dataclass_params__"].frozen:
        got = options.__name__ if isinstance(options, type) else f"a {type(options).__name__}"
        raise SbmtError("options as a frozen dataclass", got, "decorate a class with @dataclass(frozen=True)")
    for field in fields(options):
        if field.default is MISSING and field.default_factory is MISSING:
            raise SbmtError(f"a default for the option {field.name!r}", "none", "training starts from it")
        if field.name in SHARED:
            raise SbmtError("options besides d_head, n_heads and dropout", field.name, "leave it out: all have it")
        if field.name not in (parameters := _parameters(attention)) and not hasattr(options, "arguments"):
            do = f"give it the name of one of these: {', '.join(parameters)}"
            raise SbmtError(f"options that {attention.__name__} takes", field.name, do)

"""The registry of attention layers, and their options for configurations and the command line."""

import inspect
import os
import re
import sys
from collections.abc import Collection, Mapping
from dataclasses import field, fields, make_dataclass
from functools import cache
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

from torch import nn

from sbmt import baselines
from sbmt.block_model.model import ExtraKeys
from sbmt.errors import SbmtError, check_sizes, choose, describe
from sbmt.layers.sbm import SBMAttention, StaticSBMAttention
from sbmt.samplers import SAMPLERS

ATTENTIONS: dict[str, type[nn.Module]] = {
    "sbm": SBMAttention,
    "sbm_static": StaticSBMAttention,
    "full": baselines.FullAttention,
    "linear": baselines.LinearAttention,
    "linformer": baselines.LinformerAttention,
    "reformer": baselines.ReformerAttention,
    "performer": baselines.PerformerAttention,
    "nystromformer": baselines.NystromAttention,
    "random_mask": baselines.RandomMaskAttention,
}
RESERVED = frozenset(ATTENTIONS)
PRESETS: dict[str, dict[str, Any]] = {
    "recommended": {"sampler": "exact", "gate_rule": "score", "exploration": 0.01, "self_loops": True},
    "faithful": {"sampler": "fastrg", "gate_rule": "score", "exploration": 0.01, "self_loops": False},
    "fitted": {
        "learning": "likelihood",
        "n_clusters": 1024,
        "edges_per_query": 16.0,
        "link": "poisson",
        "membership": "crossed",
        "n_groups": 4,
        "reweight": True,
        "sink": True,
        "self_loops": True,
        "exploration": ExtraKeys(8),
    },
}
"""Settings of ``"sbm"``. ``recommended`` uses exact sampling and self-loops, which require as many keys as queries;
without self-loops, training loses the mask for some seeds. ``faithful`` uses the paper's settings, including Algorithm
1. ``fitted`` is ours, for sparse masks that are learned by likelihood."""

FILLED_IN = ("d_head", "n_heads", "n_positions", "dropout", "backend")  # arguments that models pass to constructors
REST = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


def option(default: Any, help_: str, names: Collection[str] | None = None) -> Any:
    """Declares a command-line option, with its ``--help`` text and, if its value is a name, the allowed names."""
    return field(default=default, metadata={"help": help_, "names": names})


def load_plugins() -> None:
    """Imports the modules listed in ``SBMT_PLUGINS``, separated by commas; raises SbmtError if an import fails."""
    for name in os.environ.get("SBMT_PLUGINS", "").replace(",", " ").split():
        sys.path.append(os.getcwd())
        try:
            import_module(name)
        except Exception as error:  # importing a module may raise anything
            raise SbmtError(f"SBMT_PLUGINS names {name!r}, which cannot be imported: {error!r}") from error


def register_attention(name: str, attention: type[nn.Module]) -> None:
    """Registers your attention layer by name for :func:`build_attention`, models, the trainer and the command line.

    Its constructor must take ``d_head``, ``n_heads`` and ``dropout`` by name, and may take ``n_positions``, the length
    of sequences. Other numbers, names and bools with a default become command-line options: ``n_hops=2`` becomes
    ``--n-hops``. You can register your own name again, but a name of the library raises SbmtError.
    """
    if not isinstance(attention, type) or not issubclass(attention, nn.Module):
        raise SbmtError("a subclass of torch.nn.Module", describe(attention), "pass the class, not an instance")
    if not isinstance(name, str) or not name.isidentifier():
        raise SbmtError(f"the name of an attention layer must be a valid Python identifier, got {name!r}")
    if name in RESERVED:
        raise SbmtError(f"the library already has an attention layer {name!r}: choose a different name")
    ATTENTIONS[name] = attention


def options_of(name: str) -> type:
    """Returns a frozen dataclass of an attention layer's options, the constructor's arguments that models do not pass.

    Options that appear in a preset default to None, which stands for the constructor's default.
    """
    return _options_class(name, choose("attention", name, ATTENTIONS))  # type: ignore[arg-type]


@cache
def _options_class(attention_name: str, attention: type[nn.Module]) -> type:
    found: list[tuple[str, Any, Any, Any]] = []  # names, types, defaults and allowed values
    for name, parameter in parameters_of(attention).items():
        hint = type(parameter.default) if parameter.annotation is parameter.empty else parameter.annotation
        kinds = [x for x in (hint, *get_args(hint)) if x in (bool, int, float, str) or get_origin(x) is Literal]
        if kinds and parameter.default is not parameter.empty and name not in FILLED_IN:
            default = None if any(name in preset for preset in PRESETS.values()) else parameter.default
            found.append((name, kinds[0], default, SAMPLERS if name == "sampler" else get_args(kinds[0])))
        if ExtraKeys in get_args(hint):
            found.append(("extra_keys", float, None, ()))
    if attention_name == "sbm":
        found.append(("preset", Literal[tuple(PRESETS)], "recommended", tuple(PRESETS)))
    texts = _help_texts(attention)
    made = [(name, kind | None, option(default, texts.get(name, ""), names)) for name, kind, default, names in found]
    methods = {"__reduce__": lambda self: (make_options, (attention_name, vars(self)))}  # for pickle, by name
    title = attention.__name__.removesuffix("Attention") + "Options"
    return make_dataclass(title, made, frozen=True, namespace=methods)


def _help_texts(attention: type[nn.Module]) -> dict[str, str]:
    """Returns the first sentence about each argument in the docstrings' ``Args`` sections, without markup."""
    texts = {"preset": "named settings, which other options override", "extra_keys": "δ as extra keys per query"}
    for kind in reversed(attention.__mro__):
        args = inspect.cleandoc(kind.__doc__ or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        for name, text in re.findall(r"^    (\w+): (.*(?:\n     .*)*)", args, re.MULTILINE):
            text = re.sub(r":\w+:`[^`]*?(\w+)`", r"\1", " ".join(text.split())).replace("`", "").split(". ")[0]
            texts[name] = text[:1].lower() + text[1:].removesuffix(".")
    return texts


def make_options(name: str, values: Mapping[str, Any]) -> Any:
    """Builds an attention layer's options from values, with defaults for all others; raises SbmtError if invalid."""
    allowed = {each.name: each.metadata["names"] for each in fields(options_of(name))}
    given = {each: value for each, value in values.items() if value is not None}
    if unknown := [each for each in values if each not in allowed]:
        expected = f"only options of attention {name!r} ({', '.join(allowed) or 'it has none'})"
        raise SbmtError(expected, ", ".join(unknown), "omit it or choose a different attention layer")
    for each, value in given.items():
        if allowed[each]:
            choose(each, value, dict.fromkeys(allowed[each]))
    check_sizes(**{each: value for each, value in given.items() if each.startswith("n_")})
    return options_of(name)(**given)


def arguments_of(options: Any) -> dict[str, Any]:
    """Converts the options of an attention layer to arguments for :func:`build_attention`."""
    given = {name: value for name, value in vars(options).items() if value is not None}
    if hasattr(options, "exploration") and "extra_keys" in given:
        if "exploration" in given:
            raise SbmtError("either exploration or extra_keys", "both", "omit one of them")
        given["exploration"] = ExtraKeys(given.pop("extra_keys"))
    return given


def build_attention(name: str, *, preset: str | None = None, **arguments: Any) -> nn.Module:
    """Builds an attention layer by name; all layers have the interface of :class:`~sbmt.SBMAttention`.

    Args:
        name: ``"sbm"``, ``"full"``, …, or a name that you passed to :func:`register_attention`.
        preset: ``"recommended"``, ``"faithful"`` or ``"fitted"``, only for ``"sbm"``; arguments override its settings.
        **arguments: Arguments of the layer's class; all classes take ``d_head`` and ``n_heads``.

    Example:
        >>> build_attention("full", d_head=8, n_heads=2)
        FullAttention(d_head=8, n_heads=2, dropout=0.0)
    """
    attention = choose("attention", name, ATTENTIONS)
    if preset is not None and name != "sbm":
        raise SbmtError("a preset only with attention 'sbm'", f"{preset!r} with {name!r}", "omit the preset")
    if preset is not None:
        arguments = choose("preset", preset, PRESETS) | arguments
    known = parameters_of(attention)
    wrong = [f"no {x}" for x, p in known.items() if p.default is p.empty and p.kind not in REST and x not in arguments]
    if not any(p.kind is p.VAR_KEYWORD for p in known.values()):
        wrong += [x for x in arguments if x not in known]
    if wrong:
        expected = f"arguments that {attention.__name__} takes ({', '.join(known)})"
        raise SbmtError(expected, ", ".join(wrong), "pass all required arguments and no unknown ones")
    return attention(**arguments)


def parameters_of(attention: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """Returns a constructor's parameters, including its parent's if it passes further keyword arguments on to that."""
    found: dict[str, inspect.Parameter] = {}
    for kind in attention.__mro__[: attention.__mro__.index(nn.Module)]:
        if "__init__" in vars(kind):
            mine = inspect.signature(kind, eval_str=True).parameters
            found = dict(mine) | {name: p for name, p in found.items() if p.kind not in REST}
            if not any(p.kind is p.VAR_KEYWORD for p in mine.values()):
                break
    return found

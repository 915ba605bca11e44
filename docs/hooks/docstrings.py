"""Converts the package's docstrings for the API pages (an extension of Griffe, see ``mkdocs.yml``).

- ``Example:`` becomes ``Examples:``, the spelling that Griffe accepts for a section of code.
- A line that starts with ``Cost:``, ``Source:``, ``Paper:`` or ``Deviation:`` becomes a paragraph.
- Settings (dataclasses whose fields have a help text) list their fields with that text, because signatures would fill
  whole screens.
- A role such as ``:class:`~package.Name` `` becomes a link if the API pages have that name, and plain code otherwise.
"""

import importlib
import re
from dataclasses import fields, is_dataclass
from inspect import get_annotations

import griffe

EXAMPLE = re.compile(r"^([ \t]*)Example:[ \t]*$", re.MULTILINE)
PART = re.compile(r"(?<=\S)\n(?=[ \t]*(?:Cost|Source|Paper|Deviations?): )")
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`(~?)([\w.]+)`")


class Docstrings(griffe.Extension):
    def on_class(self, *, cls, **kwargs):
        if any(str(member.value).startswith("option(") for member in cls.attributes.values()):
            settings = getattr(importlib.import_module(cls.module.path), cls.name)
            before, raises, after = cls.docstring.value.partition("\n\nRaises:")
            cls.docstring.value = before + _field_list(settings) + raises + after
            rest = griffe.Parameter("fields", kind=griffe.ParameterKind.var_keyword)
            parameters = griffe.Parameters(griffe.Parameter("self"), rest)
            cls.set_member("__init__", griffe.Function("__init__", parent=cls, parameters=parameters))

    def on_object(self, *, obj, **kwargs):
        if obj.docstring:
            text = PART.sub("\n\n", EXAMPLE.sub(r"\1Examples:", obj.docstring.value))
            obj.docstring.value = ROLE.sub(_link, text)


def _field_list(settings):
    """A section on what a class of settings adds to its parents or changes, with links to them."""
    own = [x for x in fields(settings) if x.name in get_annotations(settings) and "help" in x.metadata]
    lines = [f"    {field.name}: {field.metadata['help']}. Default: `{field.default!r}`" for field in own]
    above = [parent for parent in settings.__mro__[1:] if is_dataclass(parent)]
    links = [f'<autoref identifier="{p.__module__}.{p.__name__}" optional>`{p.__name__}`</autoref>' for p in above]
    rest = f"\n\nBesides those below, it has the fields of {' and '.join(links)}." if links else ""
    return "\n".join([rest, "", "Attributes:", *lines])


def _link(match):
    is_short, name = match.groups()
    shown = name.rpartition(".")[2] if is_short else name
    return f'<autoref identifier="{name}" optional>`{shown}`</autoref>'

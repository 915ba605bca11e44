"""Reads the package's docstrings as the API pages need them (an extension of Griffe, see ``mkdocs.yml``).

- ``Example:`` becomes ``Examples:``, the spelling that Griffe takes for a section of code.
- A role such as ``:class:`~package.Name` `` becomes a link if the API pages have that name, and plain code if not.
"""

import re

import griffe

EXAMPLE = re.compile(r"^([ \t]*)Example:[ \t]*$", re.MULTILINE)
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`(~?)([\w.]+)`")


class Docstrings(griffe.Extension):
    def on_object(self, *, obj, **kwargs):
        if obj.docstring:
            text = EXAMPLE.sub(r"\1Examples:", obj.docstring.value)
            obj.docstring.value = ROLE.sub(_link, text)


def _link(match):
    is_short, name = match.groups()
    shown = name.rpartition(".")[2] if is_short else name
    return f'<autoref identifier="{name}" optional>`{shown}`</autoref>'

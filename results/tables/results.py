"""The result files of one tree, and texts that quote numbers from them.

Texts are Jinja templates: ``{{ show(median("demo", "sbm", "accuracy"), ".1%") }}`` calls a function of
:mod:`results.tables.numbers`, and ``show`` takes one of Python's formats. Without ``show``, three digits of a fraction
are shown.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from results.tables.files import Files
from results.tables.numbers import NUMBERS

NOT_YET = "*not measured yet*"


class Results(Files):
    """The result files of one tree, and templates over them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._environment = Environment(finalize=show, undefined=StrictUndefined, keep_trailing_newline=True)
        self._environment.globals |= {name: self._bound(function) for name, function in NUMBERS.items()}
        self._environment.globals["show"] = show

    def render(self, template: str) -> str:
        """The text of a template; a number that the files do not hold becomes :data:`NOT_YET`."""
        return self._environment.from_string(template).render()

    def files_of(self, template: str) -> list[str]:
        """The names of the result files that a template reads, in the order in which it does."""
        self.opened.clear()
        self.render(template)
        return list(dict.fromkeys(self.opened))

    def _bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any) -> Any:
            try:
                return function(self, *arguments)
            except LookupError:
                return NOT_YET

        return call


def show(value: Any, form: str = "") -> str:
    """A number as pages show it; text stays as it is.

    Example:
        >>> show(-0.25), show(0.7, ".1%"), show(16384), show("so")
        ('−0.250', '70.0 %', '16,384', 'so')
    """
    if isinstance(value, str):
        return value
    form = form or (".3f" if isinstance(value, float) else "," if isinstance(value, int) else "")
    return format(value, form).replace("%", " %").replace("-", "−")

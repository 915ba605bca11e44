"""One number of one result file, asked for by a short name and shown as text.

======================================  ==================================================================
``demo/sbm/accuracy``                   of a study: median over seeds of what a trial reaches on test
``demo/sbm/density/least``              also ``greatest``, ``mean``, and ``seeds`` for how many there are
``glue/mlm/sbm/perplexity``             ``glue.json`` holds a study for each task
``theory/repeated draws collapse``      what a statement of ``python -m theory`` found, in its own words
``full_size/tasks/mnli/density``        anything else: keys of the file, from the outside in
``count/theory/conclusion``             one of the functions in ``derived.py``, which count and compare
======================================  ==================================================================

``reference:format`` takes Python's formats; ``%`` gets its blank. Numbers with a fraction show three digits of it.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median
from typing import Any

NOT_YET = "*not measured yet*"
TEMPLATE = re.compile(r"\{\{(.+?)\}\}")
OVER_SEEDS: dict[str, Callable[[list[float]], float]] = {
    "median": median,
    "mean": mean,
    "least": min,
    "greatest": max,
    "seeds": len,
}


class Results:
    """The result files of one tree, each read once.

    Attributes:
        root: Of the tree; the files are in its folder ``results``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        """Whether a result file is there."""
        return (self.root / "results" / f"{name}.json").exists()

    def load(self, name: str) -> Any:
        """A result file; ``KeyError`` if it is not there."""
        if name not in self._files:
            if not self.has(name):
                raise KeyError(f"no file {name}.json")
            self._files[name] = json.loads((self.root / "results" / f"{name}.json").read_text("utf-8"))
        return self._files[name]

    def value(self, reference: str) -> Any:
        """What a reference stands for; ``LookupError`` if the files do not hold it."""
        from results.tables.derived import DERIVED

        name, _, rest = reference.partition("/")
        if name in DERIVED:
            return DERIVED[name](self, rest)
        if name == "theory":
            return next((row["shown"] for row in self.load(name) if row["name"] == rest), None) or _missing(reference)
        found, keys = self.load(name), rest.split("/")
        if name == "glue":
            found = found[keys.pop(0)]
        if keys[0] in found.get("titles", {}):
            return _over_seeds(found["runs"], *keys)
        for key in keys:
            found = found[int(key)] if isinstance(found, list) else found[key]
        return found

    def shown(self, reference: str) -> str:
        """A reference, with its format if it has one, as a page shows it."""
        name, _, form = reference.partition(":")
        try:
            value = self.value(name)
        except LookupError:
            return NOT_YET
        form = form or (".3f" if isinstance(value, float) else "," if isinstance(value, int) else "")
        return format(value, form).replace("%", " %").replace("-", "−" if isinstance(value, float | int) else "-")

    def filled(self, text: str) -> str:
        """A text with each ``{{reference}}`` replaced by what it stands for."""
        return TEMPLATE.sub(lambda found: self.shown(found[1]), text)


def _over_seeds(runs: list[dict[str, Any]], trial: str, metric: str, how: str = "median") -> float:
    tests = [run["test"] for run in runs if run["trial"] == trial]
    if not tests:
        raise KeyError(trial)
    return OVER_SEEDS[how]([(test | test.get("metrics", {}))[metric] for test in tests])


def _missing(reference: str) -> Any:
    raise KeyError(reference)

"""The result files of one tree."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Files:
    """The result files of one tree, each read once.

    Attributes:
        root: Root of the tree; the files are in its folder ``results``.
        opened: Names of the files that were asked for so far, once per request.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.opened: list[str] = []
        self._contents: dict[str, Any] = {}

    def has(self, name: str) -> bool:
        """Whether a result file exists."""
        return (self.root / "results" / f"{name}.json").exists()

    def load(self, name: str) -> Any:
        """The content of a result file.

        Raises:
            KeyError: If there is no such file.
        """
        self.opened.append(name)
        if name not in self._contents:
            if not self.has(name):
                raise KeyError(f"no file {name}.json")
            self._contents[name] = json.loads((self.root / "results" / f"{name}.json").read_text("utf-8"))
        return self._contents[name]

    def machines(self, name: str) -> list[Any]:
        """The content of a benchmark's file, then of those of the same name that were set aside, newest first."""
        kept = sorted((self.root / "results" / "machines").glob(f"*/{name}.json"))
        others = [self.load(f"machines/{path.parent.name}/{name}") for path in kept]
        others.sort(key=lambda one: one["manifest"]["date"], reverse=True)
        return [self.load(name), *others] if self.has(name) else others

    def study(self, name: str) -> Any:
        """The content of a study's file; ``glue/mlm`` is one of the several studies in ``glue.json``."""
        file, _, part = name.partition("/")
        return self.load(file)[part] if part else self.load(file)


def find(rows: Iterable[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """The first row with these values; raises KeyError if there is none."""
    for row in rows:
        if wanted.items() <= row.items():
            return row
    raise KeyError(wanted)

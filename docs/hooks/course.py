"""Facts about the notebooks for the hooks: the time that reading takes, and the picture to remember.

All times follow one rule: :data:`WORDS_PER_MINUTE` words of prose and :data:`LINES_PER_MINUTE` lines of code per
minute. Folded code, asides and hints are not counted, and neither are exercises.
"""

import base64
import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

WORDS_PER_MINUTE = 200
LINES_PER_MINUTE = 20
MINUTES_PER_EXERCISE = 10
ASIDE = re.compile(r"<details><summary>(?:Aside|Hint).*?</details>", re.DOTALL)
EXERCISES, AFTER_THEM = "## Exercises", "## What to remember"
PICTURE = "picture"  # the tag of the cell that draws the picture to remember

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Notebook:
    """A notebook of the course, by its file."""

    path: Path

    @property
    def number(self) -> str:
        """The two digits at the start of its name."""
        return self.path.name[:2]

    @property
    def uri(self) -> str:
        """Its path in the docs."""
        return f"notebooks/{self.path.name}"

    @cached_property
    def cells(self) -> list[dict]:
        """Its cells, each with its source as one string."""
        cells = json.loads(self.path.read_text(encoding="utf-8"))["cells"]
        return [cell | {"source": "".join(cell["source"])} for cell in cells]

    @property
    def n_exercises(self) -> int:
        """The number of its exercises."""
        return sum(cell["source"].startswith("### ") and " · " in cell["source"].split("\n")[0] for cell in self.cells)

    @property
    def minutes(self) -> int:
        """Minutes of reading, without the exercises."""
        starts = [cell["source"].split("\n")[0] for cell in self.cells]
        exercises = slice(*(starts.index(title) if title in starts else 0 for title in (EXERCISES, AFTER_THEM)))
        others = [cell for cell in self.cells if cell not in self.cells[exercises]]
        shown = [cell for cell in others if not cell["metadata"].get("jupyter", {}).get("source_hidden")]
        words = sum(len(ASIDE.sub("", cell["source"]).split()) for cell in shown if cell["cell_type"] == "markdown")
        lines = sum(len(_lines(cell["source"])) for cell in shown if cell["cell_type"] == "code")
        return math.ceil(words / WORDS_PER_MINUTE + lines / LINES_PER_MINUTE)

    @property
    def picture(self) -> tuple[bytes, str] | None:
        """The picture to remember, as a PNG, and its alternative text; the last figure if no cell is tagged."""
        figures = [(cell, png) for cell in self.cells for png in _pictures(cell)]
        tagged = [found for found in figures if PICTURE in found[0]["metadata"].get("tags", [])]
        if not figures:
            return None
        cell, png = (tagged or figures)[-1]
        alt = cell["metadata"].get("alt", "")
        return base64.b64decode(png), alt[-1] if isinstance(alt, list) else alt


def notebooks() -> list[Notebook]:
    """All notebooks in order."""
    return [Notebook(path) for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))]


def spelled(minutes: int) -> str:
    """A time in words: ``"25 min"``, ``"1 h 40 min"``."""
    hours, rest = divmod(minutes, 60)
    return " ".join([f"{hours} h"] * bool(hours) + [f"{rest} min"] * bool(rest or not hours))


def _lines(source: str) -> list[str]:
    return [line for line in source.splitlines() if line.strip()]


def _pictures(cell: dict) -> list[str]:
    data = [output.get("data", {}) for output in cell.get("outputs", [])]
    return ["".join(found["image/png"]) for found in data if "image/png" in found]

"""Reads the notebooks of the course: their cells, and the parts of their exercises."""

import ast
import builtins
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import nbformat

ROOT = Path(__file__).parents[2]
PATHS = sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))
HEADING = re.compile(r"### (\d+) · ")
PARTS = ["stub", "check", "hint", "solution"]


@dataclass(frozen=True)
class Exercise:
    """One exercise: ``parts`` are kinds and sources in the order of the cells."""

    name: str  # such as 03.1
    end: int  # the cell after its last
    parts: tuple[tuple[str, str], ...]

    def __getattr__(self, kind: str) -> str:
        if kind not in PARTS:
            raise AttributeError(kind)
        return dict(self.parts)[kind]

    @property
    def answers(self) -> list[str]:
        """What the learner is asked for: names in the stub for which the solution has one of its own."""
        solved = stored(self.solution)
        return [name for name in sorted(stored(self.stub)) if f"solution_{name}" in solved]


@cache
def cells(path: Path) -> list:
    return nbformat.v4.reads(path.read_text("utf-8")).cells


def kind_of(cell) -> str:
    if cell.cell_type == "markdown":
        return "hint" if cell.source.startswith("<details><summary>Hint</summary>\n\n") else "prose"
    if "stub" in cell.metadata.get("tags", []):
        return "stub"
    marks = [name for name in ("Solution", "Check") if re.search(rf"^# {name}\b", cell.source, re.MULTILINE)]
    return marks[0].lower() if len(marks) == 1 else "code"


@cache
def exercises(path: Path) -> list[Exercise]:
    sources = [cell.source for cell in cells(path)]
    start = next(i for i, source in enumerate(sources) if source.startswith("## Exercises"))
    end = next(i for i, source in enumerate(sources) if source.startswith("## What to remember"))
    starts = [i for i in range(start, end) if cells(path)[i].cell_type == "markdown" and HEADING.match(sources[i])]
    found = []
    for first, stop in pairwise([*starts, end]):
        parts = tuple((kind_of(cell), cell.source) for cell in cells(path)[first + 1 : stop])
        found.append(Exercise(f"{path.name[:2]}.{HEADING.match(sources[first])[1]}", stop, parts))
    return found


def stored(source: str) -> set[str]:
    """Names that a cell binds, or changes in place by index or attribute."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            while isinstance(node, ast.Subscript | ast.Attribute):
                node = node.value
            found |= {node.id} if isinstance(node, ast.Name) else set()
    return found


def loaded(source: str) -> set[str]:
    nodes = ast.walk(ast.parse(source))
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def needed(before: list[tuple[str, str]], names: set[str]) -> list[str]:
    """Of cells, the first, which imports, and those that ``names`` are made in, as well as what these need."""
    (_, setup), *others = before
    chosen: list[str] = []
    for _, source in reversed(others):
        if stored(source) & names:
            chosen.append(source)
            names = names | loaded(source)
    return [setup, *reversed(chosen)]


def code_before(path: Path, exercise: Exercise) -> list[str]:
    """The cells that an exercise builds on; exercises do not build on one another."""
    before = [(kind_of(cell), cell.source) for cell in cells(path)[: exercise.end] if cell.cell_type == "code"]
    names = set().union(*(loaded(getattr(exercise, part)) for part in ("stub", "check", "solution")))
    own = stored(exercise.stub) | stored(exercise.solution)
    return needed([cell for cell in before if cell[0] == "code"], names - own - set(dir(builtins)))

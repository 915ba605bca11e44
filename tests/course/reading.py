"""Reads the notebooks of the course: their cells, and the parts of their exercises."""

import ast
import re
import symtable
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
    """An exercise, whose ``parts`` are the kind and source of each cell, in order."""

    name: str  # such as 03.1
    end: int  # index of the cell after its last one
    parts: tuple[tuple[str, str], ...]

    def __getattr__(self, kind: str) -> str:
        if kind not in PARTS:
            raise AttributeError(kind)
        return dict(self.parts)[kind]

    @property
    def answers(self) -> list[str]:
        """Returns the names that the learner fills in: those in the stub with a counterpart in the solution."""
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


def scope_of(node: ast.AST) -> symtable.SymbolTable:
    return symtable.symtable(ast.unparse(node), "<cell>", "exec")


def bound(node: ast.AST) -> set[str]:
    """Returns the names that a cell or a statement binds, except those inside its functions."""
    symbols = scope_of(node).get_symbols()
    return {x.get_name() for x in symbols if x.is_assigned() or x.is_imported() or x.is_namespace()}


def stored(source: str) -> set[str]:
    """Returns the names that a cell binds, or changes in place by index or attribute."""
    tree = ast.parse(source)
    found = bound(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            while isinstance(node, ast.Subscript | ast.Attribute):
                node = node.value
            found |= {node.id} if isinstance(node, ast.Name) else set()
    return found


def read(table: symtable.SymbolTable) -> set[str]:
    """Returns the notebook's names that are read, including those read inside functions."""
    is_cell = table.get_type() == "module"
    found = {x.get_name() for x in table.get_symbols() if x.is_referenced() and (is_cell or x.is_global())}
    return found.union(*map(read, table.get_children()))


def loaded(source: str) -> set[str]:
    """Returns the names that a cell reads, even if it binds them itself."""
    return read(scope_of(ast.parse(source)))


def without_checks(source: str) -> str:
    """Returns a cell without its assertions, and without loops that only assert."""
    tree = ast.parse(source)
    bodies = [(node, getattr(node, "body", [node])) for node in tree.body]
    tree.body = [node for node, body in bodies if not all(isinstance(x, ast.Assert) for x in body)]
    return ast.unparse(tree)


def code_before(path: Path, exercise: Exercise) -> list[str]:
    """Returns the first cell, which imports, and the cells that an exercise needs. Exercises are independent."""
    before = [without_checks(cell.source) for cell in cells(path)[: exercise.end] if kind_of(cell) == "code"]
    names = set().union(*(loaded(getattr(exercise, part)) for part in ("stub", "check", "solution")))
    names -= stored(exercise.stub) | stored(exercise.solution)
    chosen: list[str] = []
    for source in reversed(before[1:]):
        if stored(source) & names:
            chosen.append(source)
            names = names - bound(ast.parse(source)) | loaded(source)
    return [before[0], *reversed(chosen)]

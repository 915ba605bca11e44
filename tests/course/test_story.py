"""Tests the form of the course: notebooks with the same structure, asides, and exercises with checks.

Learners work in their own copies without outputs.
"""

import ast
import re
import runpy
import sys
from pathlib import Path

import nbformat
import pytest

from tests.course.reading import PARTS, PATHS, ROOT, cells, exercises, kind_of

LEARNING_PATH = (ROOT / "docs" / "learning-path.md").read_text("utf-8")
COURSE, ASIDES = LEARNING_PATH.split("\n## Asides\n")
MOST_WORDS, MOST_WORDS_IN_ALL = 2400, 30_000  # of prose, in a notebook and in the course without asides
WIDEST = 88  # columns of code; the site cuts off longer lines
ROWS = ["You need", "In the paper", "Runs in", "Afterwards"]

every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem[:2])


def code(path: Path) -> list:
    return [cell for cell in cells(path) if cell.cell_type == "code"]


def prose(path: Path) -> list[str]:
    return [cell.source for cell in cells(path) if cell.cell_type == "markdown"]


def title(path: Path) -> str:
    return cells(path)[0].source.splitlines()[0].removeprefix("# ")


def header_rows(path: Path) -> dict[str, str]:
    rows = [line.strip("| ").split(" | ", 1) for line in cells(path)[0].source.splitlines() if line.startswith("| ")]
    return dict(row for row in rows if len(row) == 2)


def is_aside(path: Path) -> bool:
    return "\n*An aside: " in cells(path)[0].source


def test_notebooks_are_numbered():
    assert [path.name[:3] for path in PATHS] == [f"{number:02}_" for number in range(len(PATHS))]


@every_notebook
def test_an_aside_says_so_everywhere(path):
    part, other = (ASIDES, COURSE) if is_aside(path) else (COURSE, ASIDES.split("\n## ")[0])
    assert f"(notebooks/{path.name})" in part and f"(notebooks/{path.name})" not in other
    (entry,) = re.findall(rf"^( *)- .+: notebooks/{path.name}$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert len(entry) == (14 if is_aside(path) else 10)


def test_a_notebook_is_read_in_one_sitting_and_the_course_is_not_too_long():
    n_words = {path: sum(len(source.split()) for source in prose(path)) for path in PATHS}
    course = [path for path in PATHS if not is_aside(path)]
    assert max(n_words.values()) <= MOST_WORDS
    assert len(course) <= 12 and sum(n_words[path] for path in course) <= MOST_WORDS_IN_ALL


@every_notebook
def test_header_asks_one_question_and_says_what_it_takes(path):
    first, rows = cells(path)[0], header_rows(path)
    assert first.cell_type == "markdown" and title(path).startswith(f"{path.name[:2]} · ")
    question = re.search(r"^\*\*The question\.\*\* (.+?)\n\n", first.source, re.MULTILINE | re.DOTALL)
    assert question and "?" in question[1]
    assert list(rows) == ROWS and all(rows.values())
    assert re.search(r"\b(seconds|minute|minutes)\b", rows["Runs in"]) and "one CPU core" in rows["Runs in"]


def test_learning_path_has_every_notebook_with_its_time():
    expected = []
    for path in PATHS:
        number, question = title(path).split(" · ")
        minutes = re.split(r" on |,", header_rows(path)["Runs in"])[0]
        expected.append((number, f"[{question}](notebooks/{path.name})", minutes))
    rows = re.findall(r"^\| (\d\d) \| (\[.+?) \| (.+?) \|", LEARNING_PATH, re.MULTILINE)
    assert sorted(rows) == expected


@every_notebook
def test_exercises_have_a_stub_a_check_a_hint_and_a_solution(path):
    found = exercises(path)
    assert 2 <= len(found) <= 4
    assert [exercise.name for exercise in found] == [f"{path.name[:2]}.{i + 1}" for i in range(len(found))]
    for exercise in found:
        assert [kind for kind, _ in exercise.parts if kind in PARTS] == PARTS, exercise.name
    tags = [tag for cell in cells(path) for tag in cell.metadata.get("tags", [])]
    assert tags.count("stub") == len(found) and "nbval-skip" not in tags  # tests skip no cell
    folded = [cell for cell in code(path) if kind_of(cell) in ("check", "solution")]
    assert all(cell.metadata["jupyter"]["source_hidden"] for cell in folded)
    # The first line, which JupyterLab shows, does not reveal the answer.
    assert {cell.source.splitlines()[0] for cell in folded} <= {"# Check", "# Solution", "# NBVAL_CHECK_OUTPUT"}


@every_notebook
def test_executed_from_top_to_bottom_without_errors(path):
    execute = runpy.run_path(str(ROOT / "notebooks" / "execute.py"))
    execute["check"](path)  # raises if a count, an output or the size is wrong


@every_notebook
def test_figures_are_png_and_say_in_words_what_they_show(path):
    kinds = {kind for cell in code(path) for output in cell.outputs for kind in output.get("data", {})}
    assert {kind for kind in kinds if kind.startswith("image/")} == {"image/png"}
    assert not kinds & {"text/html", "application/javascript"}
    for cell in code(path):
        n_figures = sum("image/png" in output.get("data", {}) for output in cell.outputs)
        alt = cell.metadata.get("alt", [])
        texts = [alt] if isinstance(alt, str) else alt
        assert len(texts) == n_figures and all(len(text) > 30 for text in texts), cell.id
    marked = [cell for cell in code(path) if "picture" in cell.metadata.get("tags", [])]
    assert len(marked) == 1 and "alt" in marked[0].metadata
    bets = [cell for cell in code(path) if "bet" in cell.metadata.get("tags", [])]
    assert bets and all(cell.outputs for cell in bets)


@every_notebook
def test_cells_are_short_and_prose_prevails(path):
    for cell in code(path):  # a folded check has a line or two for each likely mistake
        lines = cell.source.splitlines()
        assert len(lines) <= (26 if kind_of(cell) == "check" else 20 if cell is code(path)[0] else 18), cell.source
        assert max(map(len, lines)) <= WIDEST, cell.source
    assert len(prose(path)) > len(code(path))
    setup = code(path)[0].source
    imports = [node for node in ast.parse(setup).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert len(imports) <= 10 and "use_style()" in setup


def test_copies_show_no_answers_and_are_never_overwritten(tmp_path, monkeypatch, capsys):
    def copy():
        monkeypatch.setattr(sys, "argv", ["copies.py", str(tmp_path / "lab")])
        runpy.run_path(str(ROOT / "notebooks" / "copies.py"), run_name="__main__")

    copy()
    assert "delete it" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "lab").iterdir())
    assert names == sorted(path.name for path in PATHS[0].parent.glob("*.ipynb"))
    copied = nbformat.read(tmp_path / "lab" / names[0], as_version=4).cells
    assert [cell.source for cell in copied] == [cell.source for cell in cells(PATHS[0])]
    assert all(not cell.outputs and cell.execution_count is None for cell in copied if cell.cell_type == "code")
    mine = tmp_path / "lab" / names[1]
    mine.write_text("my work")
    (tmp_path / "lab" / names[2]).unlink()
    copy()
    assert mine.read_text() == "my work" and (tmp_path / "lab" / names[2]).exists()

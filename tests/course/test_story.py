"""The course is one story: sixteen notebooks of one shape, linked to their neighbours, with exercises that check."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from tests.course.reading import PARTS, PATHS, ROOT, cells, exercises, kind_of

FOLDER = ROOT / "notebooks"
LEARNING_PATH = ROOT / "docs" / "learning-path.md"
ROWS = ["You need", "In the paper", "Runs in", "Afterwards"]
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])+)\]\(([^)\s]+)\)")

every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem[:2])


def code(path: Path) -> list:
    return [cell for cell in cells(path) if cell.cell_type == "code"]


def prose(path: Path) -> list[str]:
    return [cell.source for cell in cells(path) if cell.cell_type == "markdown"]


def title(path: Path) -> str:
    return cells(path)[0].source.splitlines()[0].removeprefix("# ")


def header_rows(path: Path) -> list[tuple[str, str]]:
    rows = [line.strip("| ").split(" | ", 1) for line in cells(path)[0].source.splitlines() if line.startswith("| ")]
    return [(row[0], row[1]) for row in rows if len(row) == 2]


def links(text: str) -> list[tuple[str, str]]:
    return LINK.findall(text)


def neighbour(path: Path, step: int) -> Path | None:
    place = PATHS.index(path) + step
    return PATHS[place] if 0 <= place < len(PATHS) else None


def way_to(word: str, other: Path | None) -> list[str]:
    return [f"**{word}:** [{title(other)}]({other.name})"] if other else []


def test_sixteen_notebooks_in_order():
    assert [path.name[:3] for path in PATHS] == [f"{number:02}_" for number in range(16)]


# --- the header ----------------------------------------------------------------------------------------------------


@every_notebook
def test_header_asks_one_question_and_has_its_rows(path):
    first = cells(path)[0]
    assert first.cell_type == "markdown"
    assert re.fullmatch(rf"# {path.name[:2]} · .+", first.source.splitlines()[0])
    question = re.search(r"^\*\*The question\.\*\* (.+?)\n\n", first.source, re.MULTILINE | re.DOTALL)
    assert question and question[1].count("?") >= 1
    assert [name for name, _ in header_rows(path)] == ROWS
    assert all(text for _, text in header_rows(path))


@every_notebook
def test_header_says_how_long_and_on_what(path):
    runs_in = dict(header_rows(path))["Runs in"]
    assert re.search(r"\b(seconds|minute|minutes)\b", runs_in) and "one CPU core" in runs_in


# --- the way through -----------------------------------------------------------------------------------------------


@every_notebook
def test_header_links_back_and_forth(path):
    targets = [target for _, target in links(cells(path)[0].source)]
    before, after = neighbour(path, -1), neighbour(path, 1)
    assert before is None or before.name in targets
    expected = (title(after), after.name) if after else ("back to the learning path", "../docs/learning-path.md")
    assert links(dict(header_rows(path))["Afterwards"])[0] == expected


@every_notebook
def test_last_words_lead_to_the_next(path):
    last = cells(path)[-1]
    words, way = re.fullmatch(r"(.+)\n\n(\*\*(?:Before|Next):\*\*.+)", last.source, re.DOTALL).groups()
    expected = way_to("Before", neighbour(path, -1)) + way_to("Next", neighbour(path, 1))
    assert re.split(r" ·\s(?=\*\*)", way) == expected
    assert last.cell_type == "markdown" and words.count(" ") > 10 and not words.startswith("#")
    assert prose(path)[-2].startswith("## What to remember")


@every_notebook
def test_links_lead_somewhere(path):
    for text in prose(path):
        for _, target in links(text):
            if not re.match(r"https?:|#", target):
                assert (FOLDER / target.split("#")[0]).resolve().exists(), target


def test_learning_path_has_every_notebook_with_its_question_and_time():
    rows = re.findall(r"^\| (\d\d) \| (\[.+?) \| (.+?) \|", LEARNING_PATH.read_text("utf-8"), re.MULTILINE)
    expected = []
    for path in PATHS:
        number, question = title(path).split(" · ")
        minutes = re.split(r" on |,", dict(header_rows(path))["Runs in"])[0]
        expected.append((number, f"[{question}](notebooks/{path.name})", minutes))
    assert rows == expected


# --- the exercises -------------------------------------------------------------------------------------------------


@every_notebook
def test_exercises_have_a_stub_a_check_a_hint_and_a_solution(path):
    found = exercises(path)
    assert 2 <= len(found) <= 4
    assert [exercise.name for exercise in found] == [f"{path.name[:2]}.{i + 1}" for i in range(len(found))]
    for exercise in found:
        assert [kind for kind, _ in exercise.parts if kind in PARTS] == PARTS, exercise.name


@every_notebook
def test_checks_and_solutions_are_folded_and_their_first_line_gives_nothing_away(path):
    folded = [cell for cell in code(path) if kind_of(cell) in ("check", "solution")]
    assert all(cell.metadata["jupyter"]["source_hidden"] for cell in folded)
    assert {cell.source.splitlines()[0] for cell in folded} <= {"# Check", "# Solution", "# NBVAL_CHECK_OUTPUT"}


def test_learning_path_names_every_exercise():
    rows = re.findall(r"^\| (\d\d) \| [^\[].+? \| (.+?) \|$", LEARNING_PATH.read_text("utf-8"), re.MULTILINE)
    named = [(number, len(row.split(" · "))) for number, row in rows]
    assert named == [(path.name[:2], len(exercises(path))) for path in PATHS]


@every_notebook
def test_nothing_is_skipped_when_the_course_is_tested(path):
    tags = [tag for cell in cells(path) for tag in cell.metadata.get("tags", [])]
    assert tags.count("stub") == len(exercises(path)) and "nbval-skip" not in tags


# --- the cells -----------------------------------------------------------------------------------------------------


@every_notebook
def test_executed_from_top_to_bottom_without_errors(path):
    spec = importlib.util.spec_from_file_location("execute_notebooks", FOLDER / "execute.py")
    execute = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(execute)
    execute.check(path)  # raises where a count, an output or the size is wrong


@every_notebook
def test_figures_are_png(path):
    kinds = {kind for cell in code(path) for output in cell.outputs for kind in output.get("data", {})}
    assert {kind for kind in kinds if kind.startswith("image/")} == {"image/png"}
    assert not kinds & {"text/html", "application/javascript"}


@every_notebook
def test_figures_say_in_words_what_they_show(path):
    for cell in code(path):
        n_figures = sum("image/png" in output.get("data", {}) for output in cell.outputs)
        alt = cell.metadata.get("alt", [])
        texts = [alt] if isinstance(alt, str) else alt
        assert len(texts) == n_figures and all(len(text) > 30 for text in texts), cell.id


@every_notebook
def test_one_figure_is_the_picture_to_remember(path):
    marked = [cell for cell in code(path) if "picture" in cell.metadata.get("tags", [])]
    assert len(marked) == 1 and "alt" in marked[0].metadata


@every_notebook
def test_a_bet_has_something_to_bet_on(path):
    bets = [cell for cell in code(path) if "bet" in cell.metadata.get("tags", [])]
    assert bets and all(cell.outputs for cell in bets)


@every_notebook
def test_setup_has_at_most_ten_imports_and_the_style(path):
    setup = code(path)[0].source
    imports = [node for node in ast.parse(setup).body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert len(imports) <= 10 and "use_style()" in setup


@every_notebook
def test_cells_are_short_and_prose_prevails(path):
    assert max(len(cell.source.splitlines()) for cell in code(path)) <= 15
    assert len(prose(path)) > len(code(path))


@every_notebook
def test_headings_are_unique(path):
    text = re.sub(r"^```.*?^```", "", "\n".join(prose(path)), flags=re.MULTILINE | re.DOTALL)
    headings = [line.lstrip("# ") for line in text.splitlines() if re.match(r"#{1,6} ", line)]
    assert len(headings) == len(set(headings))

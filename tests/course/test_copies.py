"""The copies that learners work in: without outputs, and theirs alone."""

import subprocess
import sys

import nbformat

from tests.course.reading import PATHS, ROOT


def copy(folder) -> str:
    command = [sys.executable, ROOT / "notebooks" / "copies.py", folder]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_copies_show_no_answers_and_are_never_overwritten(tmp_path):
    assert "delete it" in copy(tmp_path / "lab")
    names = sorted(path.name for path in (tmp_path / "lab").iterdir())
    assert names == [path.name for path in PATHS]
    cells = nbformat.read(tmp_path / "lab" / names[0], as_version=4).cells
    assert [cell.source for cell in cells] == [cell.source for cell in nbformat.read(PATHS[0], as_version=4).cells]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells if cell.cell_type == "code")
    mine = tmp_path / "lab" / names[1]
    mine.write_text("my work")
    (tmp_path / "lab" / names[2]).unlink()
    copy(tmp_path / "lab")
    assert mine.read_text() == "my work" and (tmp_path / "lab" / names[2]).exists()

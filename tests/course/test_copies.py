"""The copies that learners work in: without outputs, and theirs alone."""

import runpy
import sys

import nbformat

from tests.course.reading import PATHS, ROOT


def test_copies_show_no_answers_and_are_never_overwritten(tmp_path, monkeypatch, capsys):
    def copy():
        monkeypatch.setattr(sys, "argv", ["copies.py", str(tmp_path / "lab")])
        runpy.run_path(str(ROOT / "notebooks" / "copies.py"), run_name="__main__")

    copy()
    assert "delete it" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "lab").iterdir())
    assert names == [path.name for path in PATHS]
    cells = nbformat.read(tmp_path / "lab" / names[0], as_version=4).cells
    assert [cell.source for cell in cells] == [cell.source for cell in nbformat.read(PATHS[0], as_version=4).cells]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells if cell.cell_type == "code")
    mine = tmp_path / "lab" / names[1]
    mine.write_text("my work")
    (tmp_path / "lab" / names[2]).unlink()
    copy()
    assert mine.read_text() == "my work" and (tmp_path / "lab" / names[2]).exists()

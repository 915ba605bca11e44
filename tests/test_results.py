"""No number in README.md, on the landing page or among the benchmarks that the result files do not hold."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from sbmt.benchmarks import run_suites
from tests.benchmarks.tiny import use_tiny_grids

ROOT = Path(__file__).parent.parent


def write_tables(root, *options):
    command = [sys.executable, str(root / "results" / "write_tables.py"), *options]
    paths = {"PYTHONPATH": str(ROOT)}  # the copies have no library beside them
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | paths)


def write_tables_here(root, monkeypatch, *options):
    """The same without the seconds that another process takes to import the library; returns the exit code."""
    script = str(root / "results" / "write_tables.py")
    monkeypatch.setattr(sys, "argv", [script, *options])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(script, run_name="__main__")
    return stop.value.code


def copy_pages(folder):
    docs = ("index", "benchmarks", "synthetic", "long-range")
    pages = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in docs)]
    for path in [*pages, *(ROOT / "results").glob("*.*")]:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(path.read_bytes())


def test_tables_are_fresh():
    found = write_tables(ROOT, "--check")
    assert found.returncode == 0, found.stderr


def test_a_changed_number_is_noticed(tmp_path):
    copy_pages(tmp_path)
    page = tmp_path / "README.md"
    page.write_text(
        page.read_text("utf-8").replace("| **SBM**, exact edge law | 0.", "| **SBM**, exact edge law | 1."), "utf-8"
    )
    found = write_tables(tmp_path, "--check")
    assert found.returncode == 1
    assert "stale: README.md" in found.stderr


def test_benchmarks_are_written_from_their_results(tmp_path, monkeypatch, capsys):
    copy_pages(tmp_path)
    use_tiny_grids(monkeypatch)
    result = run_suites(["sampler"], is_quick=True)
    (tmp_path / "results" / "bench.json").write_text(json.dumps(result))
    (tmp_path / "results" / "bench.png").write_bytes(b"")
    assert write_tables_here(tmp_path, monkeypatch) == 0
    page = tmp_path / "docs" / "benchmarks.md"
    text = page.read_text("utf-8")
    assert "| near-constant | 64 | 5 % |" in text
    assert "Measured on" in text
    assert "(assets/bench.png)" in text
    assert text.count("*Not measured yet") == 14  # the other suites' tables
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 0

    page.write_text(text.replace("| near-constant | 64 | 5 % |", "| near-constant | 64 | 6 % |"), "utf-8")
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 1
    assert "stale: benchmarks.md" in capsys.readouterr().err


def test_trained_tables_are_written_from_their_results(tmp_path, monkeypatch):
    copy_pages(tmp_path)
    page = tmp_path / "docs" / "synthetic.md"
    result = json.loads((tmp_path / "results" / "collapse.json").read_text("utf-8"))
    chosen = next(run for run in result["runs"] if run["trial"] == "sbm" and run["config"]["seed"] == 3)
    chosen["test"] |= {"accuracy": 0.12345, "density": 0.54321}
    (tmp_path / "results" / "collapse.json").write_text(json.dumps(result), "utf-8")
    (tmp_path / "results" / "sparse.json").unlink()
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 1
    assert write_tables_here(tmp_path, monkeypatch) == 0
    text = page.read_text("utf-8")
    assert "| 0.123 / 0.54 |" in text
    assert text.count("*Not measured yet: run `make results`.*") == 1
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 0


@pytest.mark.parametrize(
    "page", ["README.md", *(f"docs/{name}.md" for name in ("synthetic", "benchmarks", "long-range"))]
)
def test_every_row_of_a_table_fits_its_heading(page):
    lines = (ROOT / page).read_text("utf-8").split("\n")
    widths = [line.replace("\\|", "").count("|") if line.startswith("|") else 0 for line in lines]
    assert any(widths)
    torn = [
        line
        for line, width, before in zip(lines[1:], widths[1:], widths, strict=False)
        if before and width not in (0, before)
    ]
    assert torn == []

"""No number in README.md or on the site's pages that the result files do not hold."""

import importlib.util
import json
import logging
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sbmt.experiments.benchmarks import run_suites
from tests.experiments.benchmarks.tiny import use_tiny_grids
from tests.experiments.studies.made_up_glue import made_up_glue

ROOT = Path(__file__).parents[3]


def write_tables(root, *options):
    command = [sys.executable, str(root / "results" / "write_tables.py"), *options]
    paths = {"PYTHONPATH": str(ROOT)}  # the copy contains no library
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | paths)


def write_tables_here(root, monkeypatch, *options):
    """The same in this process, which has imported the library already; returns the exit code."""
    script = str(root / "results" / "write_tables.py")
    monkeypatch.setattr(sys, "argv", [script, *options])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(script, run_name="__main__")
    return stop.value.code


def copy_pages(folder):
    """Copies the pages, the result files and the hooks; notebooks, which are only read, are linked."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("[ah]*/*.md")]
    hooks = (ROOT / "docs" / "hooks").glob("*.py")
    for path in [*pages, *hooks, *(ROOT / "results").glob("*.*")]:
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    (folder / "notebooks").symlink_to(ROOT / "notebooks")


def test_tables_are_fresh():
    found = write_tables(ROOT, "--check")
    assert found.returncode == 0, found.stderr


def test_a_changed_number_is_noticed(tmp_path):
    copy_pages(tmp_path)
    page = tmp_path / "README.md"
    page.write_text(page.read_text("utf-8").replace("| **SBM, fitted** | ", "| **SBM, fitted** | 9"), "utf-8")
    found = write_tables(tmp_path, "--check")
    assert found.returncode == 1
    assert "stale: README.md" in found.stderr


def load_hook(root):
    spec = importlib.util.spec_from_file_location("fresh_numbers", root / "docs" / "hooks" / "fresh_numbers.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


def warnings_of_build(root, caplog):
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="mkdocs.hooks"):
        load_hook(root).on_pre_build(None)
    return [record.getMessage() for record in caplog.records]


SPOTS = {
    "docs/api/cost.md": r"\| SBM, Algorithm 1 \| 0\.(\d)",
    "docs/errata.md": r"accuracy 0\.(\d)",
    "docs/language.md": r'<!-- n: show\(median\("glue/mlm", "sbm", "perplexity"\), ".0f"\) -->(\d)',
    "docs/results.md": r"Reformer \(0\.(\d)",
    "docs/synthetic.md": r"\| SBM \| 0\.(\d)",
}


def test_the_strict_build_fails_on_a_changed_number(tmp_path, caplog, monkeypatch):
    monkeypatch.delenv("SBMT_DATA", raising=False)
    copy_pages(tmp_path)
    assert warnings_of_build(tmp_path, caplog) == []
    for page, spot in SPOTS.items():
        text = (tmp_path / page).read_text("utf-8")
        place = re.search(spot, text).start(1)
        changed = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
        (tmp_path / page).write_text(changed, "utf-8")
    expected = [f"{page} is stale: run python results/write_tables.py" for page in SPOTS]
    assert warnings_of_build(tmp_path, caplog) == expected


def test_the_strict_build_fails_on_a_changed_result(tmp_path, caplog):
    copy_pages(tmp_path)
    path = tmp_path / "results" / "window_coverage.json"
    coverage = json.loads(path.read_text("utf-8"))
    coverage["found"]["SST-2"]["512"]["pairs"]["64"] = 0.5
    path.write_text(json.dumps(coverage), "utf-8")
    found = warnings_of_build(tmp_path, caplog)
    assert [line.split()[0] for line in found] == ["docs/errata.md", "docs/language.md", "docs/results.md"]
    overview = (tmp_path / "docs" / "results.md").read_text("utf-8")
    assert "covers 50 % of the real pairs" not in overview  # the build reports it, and changes nothing


def test_links_to_headings_of_notebooks_are_known(tmp_path):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="notebooks/00.ipynb"), present_anchor_ids=None)
    html = '<h2 id="a-b">A b</h2><p id=\'x\'></p><h3 class="y" id="c&amp;d">C</h3>'
    assert load_hook(ROOT).on_page_content(html, page, None, None) == html
    assert page.present_anchor_ids == {"a-b", "c&d"}
    plain = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"), present_anchor_ids={"own"})
    load_hook(ROOT).on_page_content(html, plain, None, None)
    assert plain.present_anchor_ids == {"own"}


SHOWN = {
    "errata": ("make results", 0),
    "results": ("make results", 0),
    "synthetic": ("make results", 3),
    "language": ("make language", 7),
    "benchmarks": ("make bench", 18),
}
"""For each page, what would measure the results that are missing, and how many tables lack them."""


def test_missing_results_are_said_to_be_missing(tmp_path, monkeypatch):
    copy_pages(tmp_path)
    for name in ("ste_bias", "theory", "glue", "sparse", "bench"):
        (tmp_path / "results" / f"{name}.json").unlink()
    assert write_tables_here(tmp_path, monkeypatch) == 0
    text = {page: (tmp_path / "docs" / f"{page}.md").read_text("utf-8") for page in SHOWN}
    assert "the exact gradient is *not measured yet* for equation 9" in text["errata"]
    assert "| [Does the proof hold?](theory.md) | *Not measured yet.* |" in text["results"]
    for page, (target, n_tables) in SHOWN.items():
        assert text[page].count(f"*Not measured yet: run `{target}`.*") == n_tables, page
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 0


def test_tables_are_written_from_their_results(tmp_path, monkeypatch, capsys):
    copy_pages(tmp_path)
    results = tmp_path / "results"
    use_tiny_grids(monkeypatch)
    (results / "bench.json").write_text(json.dumps(run_suites(["sampler"], is_quick=True)))
    (results / "glue.json").write_text(json.dumps(made_up_glue()), "utf-8")
    collapse = json.loads((results / "collapse.json").read_text("utf-8"))
    chosen = next(run for run in collapse["runs"] if run["trial"] == "sbm" and run["config"]["seed"] == 3)
    chosen["test"] |= {"accuracy": 0.12345, "density": 0.54321}
    (results / "collapse.json").write_text(json.dumps(collapse), "utf-8")
    coverage = json.loads((results / "window_coverage.json").read_text("utf-8"))
    coverage["found"]["SST-2"]["512"]["pairs"]["64"] = 0.1234
    (results / "window_coverage.json").write_text(json.dumps(coverage), "utf-8")
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 1
    stale = capsys.readouterr().err
    assert all(f"{page}.md" in stale for page in ("benchmarks", "language", "synthetic"))
    assert write_tables_here(tmp_path, monkeypatch) == 0
    for page, cells in {
        "benchmarks": ("| near-constant | 64 | 5 % |", "Measured on", "(assets/bench.png)"),
        "synthetic": ("| 0.123 / 0.54 |",),
        "language": ("| 151.0 |", "| 71.5 ± 0.7 (25.0) |", "| 63.1 ± 1.4 (25.0) |", "| 50.9 |", "| 60,614, 872 |"),
    }.items():
        text = (tmp_path / "docs" / f"{page}.md").read_text("utf-8")
        assert all(cell in text for cell in cells), page
    text = (tmp_path / "docs" / "language.md").read_text("utf-8")
    assert "| SBM and window, density 13.5 | 89.8 | 85.2 | 83.5 | 83.6 |" in text and "| 12.3 |" in text
    assert "(assets/glue.png)" in text and "Not measured yet" not in text
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 0


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        *(f"docs/{name}.md" for name in ("synthetic", "benchmarks", "long-range", "language", "errata", "results")),
    ],
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

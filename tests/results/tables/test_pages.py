"""No number in README.md or on the site's pages that the result files do not hold."""

import importlib.util
import json
import logging
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.experiments.studies.made_up_glue import made_up_glue

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("[ah]*/*.md")]


@pytest.fixture
def tree(tmp_path):
    """A copy of the pages, the result files and the hooks; notebooks, which are only read, are linked."""
    results = [*(ROOT / "results").glob("*.*"), *(ROOT / "results").glob("gpu/*.json")]
    results += (ROOT / "results" / "machines").glob("*/*")
    for path in [*PAGES, *(ROOT / "docs" / "hooks").glob("*.py"), *results]:
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (tmp_path / "notebooks").symlink_to(ROOT / "notebooks")
    return tmp_path


@pytest.fixture
def write_tables(tree, monkeypatch):
    """Runs the copied script in this process, which has imported the library already; returns the exit code."""

    def run(*options):
        script = str(tree / "results" / "write_tables.py")
        monkeypatch.setattr(sys, "argv", [script, *options])
        with pytest.raises(SystemExit) as stop:
            runpy.run_path(script, run_name="__main__")
        return stop.value.code

    return run


def load_hook(root):
    spec = importlib.util.spec_from_file_location("fresh_numbers", root / "docs" / "hooks" / "fresh_numbers.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


def test_tables_are_fresh():
    command = [sys.executable, str(ROOT / "results" / "write_tables.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


SPOTS = {
    "README.md": r"\| \*\*SBM, fitted\*\* \| 0\.(\d)",
    "docs/api/cost.md": r"\| SBM, Algorithm 1 \| 0\.(\d)",
    "docs/errata.md": r"accuracy 0\.(\d)",
    "docs/language.md": r'<!-- n: show\(median\("glue/mlm", "sbm", "perplexity"\), ".0f"\) -->(\d)',
    "docs/results.md": r"Reformer \(0\.(\d)",
    "docs/synthetic.md": r"\| SBM \| 0\.(\d)",
}


def test_a_changed_number_is_noticed_and_set_right(tree, write_tables, caplog, capsys):
    before = {page: (tree / page).read_text("utf-8") for page in SPOTS}
    for page, spot in SPOTS.items():
        text = before[page]
        place = re.search(spot, text).start(1)
        changed = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
        (tree / page).write_text(changed, "utf-8")
    with caplog.at_level(logging.WARNING, logger="mkdocs.hooks"):
        load_hook(tree).on_pre_build(None)  # a warning, on which the strict build fails
    found = [record.getMessage() for record in caplog.records]
    assert found == [f"{page} is stale: run python results/write_tables.py" for page in SPOTS]
    assert write_tables("--check") == 1
    assert "stale: README.md, cost.md, errata.md" in capsys.readouterr().err
    assert write_tables() == 0
    assert {page: (tree / page).read_text("utf-8") for page in SPOTS} == before


def test_links_to_headings_of_notebooks_are_known():
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


def test_missing_results_are_said_to_be_missing(tree, write_tables):
    for name in ("ste_bias", "theory", "glue", "sparse", "bench"):
        (tree / "results" / f"{name}.json").unlink()
    assert write_tables() == 0
    text = {page: (tree / "docs" / f"{page}.md").read_text("utf-8") for page in SHOWN}
    assert "the exact gradient is *not measured yet* for equation 9" in text["errata"]
    assert "| [Does the proof hold?](theory.md) | *Not measured yet.* |" in text["results"]
    for page, (target, n_tables) in SHOWN.items():
        assert text[page].count(f"*Not measured yet: run `{target}`.*") == n_tables, page


def test_tables_are_written_from_their_results(tree, write_tables):
    results = tree / "results"
    (results / "glue.json").write_text(json.dumps(made_up_glue()), "utf-8")
    bench = json.loads((results / "bench.json").read_text("utf-8"))
    bench["suites"]["sampler"]["found"]["cases"][0]["n"] = 64
    (results / "bench.json").write_text(json.dumps(bench | {"suites": {"sampler": bench["suites"]["sampler"]}}))
    collapse = json.loads((results / "collapse.json").read_text("utf-8"))
    chosen = next(run for run in collapse["runs"] if run["trial"] == "sbm" and run["config"]["seed"] == 3)
    chosen["test"] |= {"accuracy": 0.12345, "density": 0.54321}
    (results / "collapse.json").write_text(json.dumps(collapse), "utf-8")
    coverage = json.loads((results / "window_coverage.json").read_text("utf-8"))
    coverage["found"]["SST-2"]["512"]["pairs"]["64"] = 0.1234
    (results / "window_coverage.json").write_text(json.dumps(coverage), "utf-8")
    assert write_tables() == 0
    for page, cells in {
        "benchmarks": ("| near-constant | 64 | 0.25 % |", "Measured on", "(assets/bench.png)"),
        "synthetic": ("| 0.123 / 0.54 |",),
        "language": ("| 151.0 |", "| 71.5 ± 0.7 (25.0) |", "| 63.1 ± 1.4 (25.0) |", "| 50.9 |", "| 60,614, 872 |"),
    }.items():
        text = (tree / "docs" / f"{page}.md").read_text("utf-8")
        assert all(cell in text for cell in cells), page
    text = (tree / "docs" / "language.md").read_text("utf-8")
    assert "| SBM and window, density 13.5 | 89.8 | 85.2 | 83.5 | 83.6 |" in text and "| 12.3 |" in text
    assert "(assets/glue.png)" in text and "Not measured yet" not in text


def test_every_row_of_a_table_fits_its_heading():
    torn = []
    for page in PAGES:
        lines = page.read_text("utf-8").split("\n")
        widths = [line.replace("\\|", "").count("|") if line.startswith("|") else 0 for line in lines]
        after = zip(lines[1:], widths[1:], widths, strict=False)
        torn += [(page.name, line) for line, width, before in after if before and width not in (0, before)]
    assert torn == []

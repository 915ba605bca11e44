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
    page.write_text(
        page.read_text("utf-8").replace("| **SBM**, exact edge law | 0.", "| **SBM**, exact edge law | 1."), "utf-8"
    )
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
    "docs/results.md": r"Reformer 0\.(\d)",
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


def test_missing_results_are_said_to_be_missing(tmp_path, monkeypatch):
    copy_pages(tmp_path)
    for name in ("ste_bias", "theory"):
        (tmp_path / "results" / f"{name}.json").unlink()
    assert write_tables_here(tmp_path, monkeypatch) == 0
    assert "cosine *not measured yet* at p" in (tmp_path / "docs" / "errata.md").read_text("utf-8")
    assert "**What holds of the proof?** *Not measured yet.*" in (tmp_path / "docs" / "results.md").read_text("utf-8")
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 0


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
    assert text.count("*Not measured yet: run `make bench`.*") == 14  # the other suites' tables
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


def made_up_glue():
    """Results of two attentions on MNLI, as ``sbmt glue --json`` writes them."""
    test = {"accuracy": 0.4567, "density": 0.25, "loss": 4.0, "densities": [[0.2, 0.3], [0.1, 0.5]]}
    run = {"n_test": 400, "seconds": 60.0, "config": {"seed": 0, "steps": 9, "batch_size": 16, "length": 128}}
    run |= {"data": {"name": "some", "n_train": 4321, "origin": "stand-in"}, "interval": [0.4, 0.5], "chance": 0.347}
    run |= {"chance_metrics": {"pipeline_f1": 0.0}, "frequencies": {"perplexity": 654.3, "accuracy": 0.05}}
    titles = {"full": "full attention", "sbm": "SBM and window"}
    found = {}
    for task, metrics in (("mlm", {"perplexity": 123.4}), ("mnli", {"macro_f1": 0.44, "pipeline_f1": 0.6789})):
        runs = [run | {"trial": trial, "test": test | {"metrics": metrics}} for trial in titles]
        found[task] = {"titles": titles, "runs": runs}
    return found


def test_language_tables_are_written_from_their_results(tmp_path, monkeypatch, capsys):
    copy_pages(tmp_path)
    page, results = tmp_path / "docs" / "language.md", tmp_path / "results"
    (results / "glue.json").write_text(json.dumps(made_up_glue()), "utf-8")
    (results / "glue.png").write_bytes(b"")
    coverage = json.loads((results / "window_coverage.json").read_text("utf-8"))
    coverage["found"]["SST-2"]["512"]["pairs"]["64"] = 0.1234
    (results / "window_coverage.json").write_text(json.dumps(coverage), "utf-8")
    assert write_tables_here(tmp_path, monkeypatch) == 0
    text = page.read_text("utf-8")
    for cell in ("| 123.4 |", "| 45.7 (25.0) |", "| 67.9 (25.0) |", "| 34.7 |", "| 4,321, 400 |", "| 12.3 | 44.5 |"):
        assert cell in text, cell
    assert "| SBM and window, density 13.5 | 89.8 | 85.2 | 83.5 | 83.6 |" in text
    assert "(assets/glue.png)" in text
    assert "Not measured yet" not in text
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 0

    (results / "glue.json").unlink()
    assert write_tables_here(tmp_path, monkeypatch, "--check") == 1
    assert "language.md" in capsys.readouterr().err
    assert write_tables_here(tmp_path, monkeypatch) == 0
    assert page.read_text("utf-8").count("*Not measured yet: run `make language`.*") == 7


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

"""What the page says of GPUs, from results that are made up."""

import json
from pathlib import Path

import pytest

from results.tables.benchmarks import bench_page
from results.tables.files import Files
from results.tables.marked import TABLE, with_tables

PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"
MANIFEST = {"gpu": "Some GPU", "gpu_memory_gib": 139.8, "driver": "580", "cuda": "13.0", "torch": "2.11.0"}
MANIFEST |= {"triton": "3.6.0", "python": "3.12.3", "command": "sbmt bench --device cuda", "date": "2026-01-02"}


def made_up_case(is_training):
    setting = {"kind": "structured", "n": 4096, "density": 0.01, "n_clusters": 128, "n_heads": 8, "d_head": 64}
    results = {
        "sdpa": {"median": 2.0, "ratio": 1.0, "peak": 60.0},
        "sparse": {"median": 1.0, "ratio": 0.5, "ratio_low": 0.4, "ratio_high": 0.6, "peak": 123.0},
        "pyg": {"missing": "out of memory"},
    }
    return setting | {"dtype": "bfloat16", "is_training": is_training, "results": results}


@pytest.fixture
def root(tmp_path):
    found = {"cases": [made_up_case(way) for way in (False, True)]}
    found |= {"left_out": ["structured, n = 65,536"]}
    folder = tmp_path / "results" / "gpu"
    folder.mkdir(parents=True)
    suites = {"gpu": {"seconds": 9.0, "found": found}}
    (folder / "bench.json").write_text(json.dumps({"manifest": MANIFEST, "is_quick": False, "suites": suites}))
    finished = {"status": "finished", "result": {"test": {"accuracy": 0.98765, "density": 0.25}, "seconds": 90.0}}
    runs = {"repeated-tokens-sbm": finished, "listops-sbm": {"status": "stopped"}}
    (folder / "runs.json").write_text(json.dumps({"runs": runs, "manifest": MANIFEST}))
    return tmp_path


def test_the_page_has_a_place_for_every_table_that_may_be_missing(root):
    text = PAGE.read_text("utf-8")
    names = {found[2] for found in TABLE.finditer(text) if found[2].startswith(("gpu-", "block-masks"))}
    assert names == set(bench_page(Files(root)))


def test_tables_hold_the_numbers(root):
    tables = bench_page(Files(root))
    assert "Some GPU (140 GiB), driver 580, CUDA 13.0, torch 2.11.0, triton 3.6.0" in tables["gpu-machine"]
    assert "| 2.00 | 1.00 | 0.50 | 0.40–0.60 |" in tables["gpu-training"]
    assert "8 heads of width 64; bfloat16; memberships = structured; n = 4,096; density = 1 %" in tables["gpu-forward"]
    assert "– pyg: out of memory." in tables["gpu-training"]
    assert "| structured | 4,096 | 1 % | 128 | 60 | 123 | – |" in tables["gpu-memory-training"]
    assert "n = 65,536 | no time left" in tables["gpu-left-out"]
    assert "| repeated-tokens-sbm | finished | 98.77 | 25.00 | 1.5 |" in tables["gpu-runs"]
    assert "| listops-sbm | stopped | – | – | – |" in tables["gpu-runs"]


def test_nothing_is_made_up_where_nothing_was_measured(tmp_path):
    page = with_tables(PAGE.read_text("utf-8"), bench_page(Files(tmp_path)), "*Not measured yet: run `make bench`.*")
    assert page.count("run `make gpu`.*") == page.count(": make gpu -->") == 7
    assert page.count("run `make bench`.*") == page.count(": make bench -->")


# --- several processors ---


def of_a_processor(name, date, ratios, sweep="n"):
    """A result of the suite ``fitted`` with these ratios of a training step by number of tokens."""
    cases = [
        {"kind": "fitted", "n": n, "density": 16 / n, "is_training": True, "sweeps": [sweep],
         "results": {"sdpa": {"median": 12.345},
                     "sbm": {"median": 1.0, "ratio": ratio, "ratio_low": 0.9 * ratio, "ratio_high": 1.1 * ratio}}}
        for n, ratio in ratios.items()
    ]  # fmt: skip
    about = {"processor": name, "date": date, "threads": 2, "OMP_WAIT_POLICY": "not set", "python": "3", "torch": "2"}
    found = {"cases": cases, "memory": {"cases": []}}
    suites = {"fitted": {"seconds": 1.0, "found": found}}
    return {"manifest": about | {"numba": "0", "command": "sbmt bench"}, "is_quick": False, "suites": suites}


def page_of(root, *results):
    """The page's tables where the first result is in its place and the others were set aside."""
    for place, result in zip((root, *(root / "machines" / name for name in "ab")), results, strict=False):
        place.mkdir(parents=True, exist_ok=True)
        (place / "bench_fitted.json").write_text(json.dumps(result))
    return bench_page(Files(root.parent))


def test_processors_stand_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setattr("results.tables.benchmarks.tables_of", lambda result: [])
    here = of_a_processor("One", "2026-01-02", {512: 2.0, 2048: 0.5, 4096: 0.04, 8192: 0.02})
    there = of_a_processor("Other", "2026-01-01", {512: 4.0, 2048: 1.0, 4096: 0.05})
    tables = page_of(tmp_path / "results", here, there)
    rows = tables["fitted-machines"].splitlines()
    assert rows[0] == "| | n | A: SDPA, ms | A: ours / SDPA | B: SDPA, ms | B: ours / SDPA |"
    assert rows[2] == "| fitted, training | 512 | 12.3 | 2.00 (1.80–2.20) | 12.3 | 4.00 (3.60–4.40) |"
    assert rows[5] == "| fitted, training | 8,192 | 12.3 | 0.020 (0.018–0.022) | – | – |"
    assert rows[-1] == "*A: One, 2026-01-02; B: Other, 2026-01-01.*"
    gain = tables["fitted-gain"]
    assert gain == (
        "- A training step with a fitted mask of 16 keys per query is as fast as full attention's at about 1,000 to "
        "2,000 tokens, 20.0 to 25.0 times as fast at 4,096."
    )


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        (({512: 2.0, 2048: 0.5}, {512: 0.5, 2048: 0.5}), "at about 512 or fewer to 1,000 tokens, "),
        (({512: 2.0, 2048: 0.5}, {512: 3.0, 2048: 2.0}), "is not faster on every processor."),
        (({512: 3.0, 2048: 2.0},), "is not faster on every processor."),
    ],
)
def test_where_it_begins_to_pay_if_processors_disagree(tmp_path, monkeypatch, ratios, said):
    monkeypatch.setattr("results.tables.benchmarks.tables_of", lambda result: [])
    results = (of_a_processor(str(i), "2026-01-01", one, "shared") for i, one in enumerate(ratios))
    gain = page_of(tmp_path / "results", *results)["fitted-gain"]
    assert gain.startswith("- A training step with one such mask for all heads is ") and said in gain

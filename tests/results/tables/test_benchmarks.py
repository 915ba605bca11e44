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
    assert page.count("*Not built yet") == 1

"""What the page says of GPUs, from results that are made up."""

import json
from pathlib import Path

import pytest

from results.tables.gpu import gpu_blocks
from results.tables.gpu_needs import bounds, gpu_needs_blocks
from results.tables.markers import TABLE, with_blocks
from results.tables.references import Results
from sbmt.experiments.benchmarks.cut_offs import cut_offs

PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"
MANIFEST = {"gpu": "Some GPU", "gpu_memory_gib": 139.8, "driver": "580", "cuda": "13.0", "torch": "2.11.0"}
MANIFEST |= {"triton": "3.6.0", "python": "3.12.3", "command": "sbmt bench --device cuda", "date": "2026-01-02"}


def made_up_case(is_training):
    setting = {"kind": "structured", "n": 4096, "density": 0.01, "n_clusters": 128, "n_heads": 8, "d_head": 64}
    results = {
        "sdpa": {"median": 2.0, "ratio": 1.0, "peak": 60.0},
        "sparse": {"median": 1.0, "ratio": 0.5, "peak": 123.0},
        "tiled": {"failed": "CompilationError: at 1:1: … no", "trace": "long"},
        "pyg": {"missing": "out of memory", "is_too_large": True},
    }
    return setting | {"dtype": "bfloat16", "is_training": is_training, "results": results}


@pytest.fixture
def root(tmp_path):
    cases = [made_up_case(way) for way in (False, True)]
    kernel = {"name": "row_attention", "milliseconds": 0.75, "calls": 3, "share": 0.6}
    profiles = {"sparse": {"milliseconds": 1.25, "n_kernels": 9, "kernels": [kernel], "case": "structured"}}
    found = {"cases": cases, "cut_offs": cut_offs(cases), "profiles": profiles | {"tiled": {"failed": "no"}}}
    found |= {"left_out": ["structured, n = 65,536"], "failures": [], "lost": [], "trying": None}
    folder = tmp_path / "results" / "gpu"
    folder.mkdir(parents=True)
    suites = {"gpu": {"seconds": 9.0, "found": found}}
    (folder / "bench.json").write_text(json.dumps({"manifest": MANIFEST, "is_quick": False, "suites": suites}))
    finished = {"status": "finished", "result": {"test": {"accuracy": 0.98765, "density": 0.25}, "seconds": 90.0}}
    stopped = {"status": "stopped", "why": "time", "last": {"step": "150", "loss": "2"}}
    runs = {"repeated-tokens-sbm": finished, "listops-sbm": stopped}
    (folder / "runs.json").write_text(json.dumps({"runs": runs, "manifest": MANIFEST}))
    return tmp_path


def test_the_page_has_a_place_for_every_table_and_no_other(root):
    names = {found[2] for found in TABLE.finditer(PAGE.read_text("utf-8")) if ": make gpu -->" in found[1]}
    assert names == set(gpu_blocks(Results(root)))


def test_blocks_hold_the_numbers(root):
    blocks = gpu_blocks(Results(root))
    assert "Some GPU (140 GiB), driver 580, CUDA 13.0, torch 2.11.0, triton 3.6.0" in blocks["gpu-machine"]
    assert "| structured | 4,096 | 1 % | 2.00 | 1.00 | 0.50 | failed | – |" in blocks["gpu-training"]
    assert "8 heads of width 64; k = 128; bfloat16" in blocks["gpu-forward"]
    assert "– pyg: out of memory." in blocks["gpu-training"]
    assert "| structured | 4,096 | 1 % | 60 | 123 | failed | – |" in blocks["gpu-memory-training"]
    assert "| `row_attention` | 0.750 | 3 | 60% |" in blocks["gpu-kernels-sparse"]
    assert blocks["gpu-kernels-tiled"] == "*The profile failed.*"
    for words in ("tiled, 2 of 2 races | CompilationError", "profile of tiled | no", "n = 65,536 | no time left"):
        assert words in blocks["gpu-trouble"]
    assert "| repeated-tokens-sbm | finished | 98.77 | 25.00 | 1.5 |" in blocks["gpu-runs"]
    assert "| listops-sbm | stopped, step 150 | – | – | – |" in blocks["gpu-runs"]


def test_nothing_is_made_up_where_nothing_was_measured(tmp_path):
    assert gpu_blocks(Results(tmp_path)) == {}
    counted = gpu_needs_blocks(Results(tmp_path))
    page = with_blocks(PAGE.read_text("utf-8"), TABLE, counted, "*Not measured yet*")
    assert page.count("*Not measured yet*") == page.count(": make gpu -->") == 10
    assert page.count("*Not counted yet") == page.count("results/measure_gpu_needs.py -->") == len(counted)


def test_bounds_are_those_of_the_slower_pipe():
    """Of two kernels over tiles one is bound by instructions, the other by matrix units."""

    def kernel(name, way, is_training, instructions, products):
        about = {"kernel": name, "way": way, "is_training": is_training, "n_clusters": 7}
        return about | {"instructions": instructions, "products": products}

    kernels = [
        kernel("attend_tiles", "tiled", False, 128.0, 2048.0),
        kernel("differentiate_keys", "tiled", True, 64.0, 8192.0),
        kernel("attend", "sparse", False, 1280.0, 0.0),
        kernel("sum_along of keys", "sparse", True, 640.0, 0.0),
    ]
    found = list(bounds({"d": 64, "kernels": kernels}, 7))
    assert found == [("forward", 256 / 4096, 1.0, 10.0), ("training step", 896 / 4096, 3.0, 15.0)]

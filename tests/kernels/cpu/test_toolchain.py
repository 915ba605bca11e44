"""Machine code is kept, found again, renewed with its sources, and done without; indices are checked where asked."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import caching, config

from sbmt.kernels.cpu import products, toolchain

ROOT = Path(__file__).parents[3]


def triple(x):
    return 3 * x


def compiled_and_called():
    compiled = toolchain.kernel(triple)
    assert compiled(2) == 6
    return sum(compiled.stats.cache_hits.values()), sum(compiled.stats.cache_misses.values())


def files(folder):
    return sorted(path.suffix for path in folder.rglob("*.nb?"))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where machine code is kept for the test."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    return tmp_path


FOUND, MADE = (1, 0), (0, 1)


def test_code_is_kept_and_found_again_with_other_types_beside_it(folder):
    assert files(folder) == []
    assert compiled_and_called() == MADE and files(folder) == [".nbc", ".nbi"]
    assert compiled_and_called() == FOUND and files(folder) == [".nbc", ".nbi"]
    assert toolchain.kernel(triple)(0.5) == 1.5
    assert compiled_and_called() == FOUND and files(folder) == [".nbc", ".nbc", ".nbi"]


def test_processes_that_save_at_once_do_not_mix_up_their_kernels(folder):
    """Neither has seen the other's index, and the first one's is written last."""
    assert compiled_and_called() == MADE
    [index] = folder.rglob("*.nbi")
    first = index.read_bytes()
    index.unlink()
    assert toolchain.kernel(triple)(0.5) == 1.5
    index.write_bytes(first)
    assert compiled_and_called() == FOUND and isinstance(toolchain.kernel(triple)(2), int)


def test_checked_code_is_kept_apart(folder, monkeypatch):
    assert compiled_and_called() == MADE
    with monkeypatch.context() as patch:
        patch.setattr(config, "BOUNDSCHECK", 1)
        assert compiled_and_called() == MADE
        assert compiled_and_called() == FOUND
    assert compiled_and_called() == FOUND


@pytest.mark.parametrize(
    ("owner", "name"), [(toolchain, "_stamp"), (caching._SourceFileBackedLocatorMixin, "get_source_stamp")]
)
def test_code_of_other_sources_is_not_run_but_replaced(folder, monkeypatch, owner, name):
    assert compiled_and_called() == MADE
    old = list(folder.rglob("*.nbc"))
    monkeypatch.setattr(owner, name, lambda *_: "other sources")
    assert compiled_and_called() == MADE
    assert compiled_and_called() == FOUND
    assert len(old) == 1 and files(folder) == [".nbc", ".nbi"] and not old[0].exists()


@pytest.mark.parametrize(
    ("owner", "name"), [(caching._CacheLocator, "ensure_cache_path"), (caching.IndexDataCacheFile, "_save_data")]
)
def test_a_kernel_runs_where_nothing_can_be_written(folder, monkeypatch, owner, name):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(owner, name, refuse)
    assert compiled_and_called()[0] == 0 and compiled_and_called()[0] == 0


def test_a_file_that_was_cut_short_is_written_anew(folder):
    assert compiled_and_called() == MADE
    for path in folder.rglob("*.nb?"):
        path.write_bytes(path.read_bytes()[:50])
    assert compiled_and_called()[0] == 0
    assert compiled_and_called() == FOUND


def sources():
    """The files of kernels, and the files of the library that they import: all that machine code is made of."""
    found = set()
    for path in sorted((ROOT / "sbmt/kernels/cpu").rglob("*.py")):
        modules = [node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        if "sbmt.kernels.cpu.toolchain" in modules:
            ours = (ROOT / f"{module.replace('.', '/')}.py" for module in modules if module.startswith("sbmt."))
            found |= {path, *(path for path in ours if path.exists())}
    return found


def test_the_stamp_changes_with_every_source(monkeypatch):
    read, compute = Path.read_bytes, toolchain._stamp.__wrapped__
    before, paths = compute(), sources()
    assert {"rows", "candidates", "attention", "products", "masks", "structures"} <= {path.stem for path in paths}
    for path in paths:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", lambda self, path=path: read(self) + b"# changed" * (self == path))
            assert compute() != before, path
    assert compute() == before


def test_only_kernels_may_regroup_sums_and_division_by_zero_is_infinite(folder):
    def in_order(x, y):
        return (x + y) - x  # y only up to rounding

    def regrouped(x, y):
        return (x + y) - x

    def quotient(x, y):
        return x / y

    assert toolchain.to_the_letter(in_order)(1e16, 1.0) == 0.0 and toolchain.kernel(regrouped)(1e16, 1.0) == 1.0
    assert toolchain.kernel(quotient)(1.0, 0.0) == np.inf and np.isnan(toolchain.kernel(quotient)(0.0, 0.0))


@pytest.mark.parametrize("decorator", [toolchain.borrowing, toolchain.inlined])
def test_what_counts_no_references_neither_makes_arrays_nor_returns_them(folder, decorator):
    def looks_at_rows(x):
        return x[1][0] + x[1:][1, 0]

    def makes_one(n):
        return np.empty(n).size

    def returns_one(x):
        return x[1:]

    assert decorator(looks_at_rows)(np.array([[1.0], [2.0], [3.0]])) == 5
    for refused, given in ((makes_one, 3), (returns_one, np.ones(3))):
        with pytest.raises(numba.TypingError, match="returning of array"):
            decorator(refused)(given)


@pytest.mark.slow
def test_every_kernel_stays_within_its_arrays(folder, monkeypatch):
    """Compiled with checked indices, and with little optimisation, which would take twice as long.

    Afterwards this process finds the machine code of the other one.
    """
    settings = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1", "NUMBA_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.kernels.cpu.every_kernel"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | settings)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    counts = json.loads(done.stdout.splitlines()[-1])
    assert len(counts) > 25
    assert [
        name for name, (n_signatures, hits, misses) in counts.items() if not n_signatures == misses > hits == 0
    ] == []

    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    dots = toolchain.kernel(products.dots.py_func)
    inputs = np.ones(2), np.ones((3, 2)), 0, np.array([2]), 0, 1, np.empty(1)
    dots(*inputs)
    assert sum(dots.stats.cache_hits.values()) == 1
    with pytest.raises(IndexError):
        dots(*inputs[:3], np.array([3]), *inputs[4:])

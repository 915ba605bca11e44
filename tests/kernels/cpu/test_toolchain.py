"""Machine code is kept, found again, renewed with its sources, and done without; indices are checked where asked."""

import ast
import json
import os
import subprocess
import sys
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching, config

from sbmt.kernels.cpu import toolchain

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


def test_code_is_kept_and_found_again(folder):
    assert files(folder) == []
    assert compiled_and_called() == MADE and files(folder) == [".nbc", ".nbi"]
    assert compiled_and_called() == FOUND and files(folder) == [".nbc", ".nbi"]


def test_other_types_are_kept_beside_it(folder):
    assert compiled_and_called() == MADE
    assert toolchain.kernel(triple)(0.5) == 1.5
    assert files(folder) == [".nbc", ".nbc", ".nbi"]
    assert compiled_and_called() == FOUND


def test_another_stamp_makes_it_anew(folder, monkeypatch):
    assert compiled_and_called() == MADE
    monkeypatch.setattr(toolchain, "_stamp", lambda: "other sources")
    assert compiled_and_called() == MADE
    assert compiled_and_called() == FOUND


def test_checked_and_unchecked_code_are_kept_apart(folder, monkeypatch):
    assert compiled_and_called() == MADE
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    assert compiled_and_called() == MADE
    assert files(folder) == [".nbc", ".nbc", ".nbi"]
    monkeypatch.setattr(config, "BOUNDSCHECK", None)
    assert compiled_and_called() == FOUND


def test_where_nothing_can_be_written_each_process_compiles_for_itself(folder, monkeypatch):
    def refuse(self):
        raise PermissionError("read-only")

    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    assert compiled_and_called()[0] == 0 and compiled_and_called()[0] == 0
    assert files(folder) == []


def test_a_full_disk_does_not_stop_a_kernel(folder, monkeypatch):
    def refuse(self, name, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(caching.IndexDataCacheFile, "_save_data", refuse)
    assert compiled_and_called()[0] == 0


def sources():
    """The files of kernels, and what they import from the library: all that machine code is made of."""
    found = set()
    for path in sorted((ROOT / "sbmt/kernels/cpu").rglob("*.py")):
        tree = ast.parse(path.read_text())
        modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        if "sbmt.kernels.cpu.toolchain" in modules:
            ours = (ROOT / f"{module.replace('.', '/')}.py" for module in modules if module.startswith("sbmt."))
            found |= {path, *ours}
    return sorted(found)


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)
def test_the_stamp_changes_with_every_source(path, monkeypatch):
    read, compute = Path.read_bytes, toolchain._stamp.__wrapped__
    before = compute()
    monkeypatch.setattr(Path, "read_bytes", lambda self: read(self) + b"# changed" * (self.resolve() == path))
    assert compute() != before
    monkeypatch.undo()
    assert compute() == before


def test_there_are_sources_to_change():
    assert {"rows", "candidates", "attention", "products", "masks", "structures"} <= {path.stem for path in sources()}


def test_what_tests_wrap_is_compiled_bare(folder):
    @wraps(triple)
    def checked(x):
        raise AssertionError("only Python comes here")

    assert toolchain.kernel(checked)(2) == 6


@pytest.mark.parametrize("make", [toolchain.kernel, toolchain.to_the_letter])
def test_arithmetic_is_that_of_floating_point(make, folder):
    def difference(x, y):
        return x - y

    def quotient(x, y):
        return x / y

    def is_itself(x):
        return x == x

    assert np.isnan(make(difference)(np.inf, np.inf))
    assert make(quotient)(1.0, 0.0) == np.inf and np.isnan(make(quotient)(0.0, 0.0))
    assert not make(is_itself)(np.nan)


def test_order_is_kept_where_asked_for(folder):
    """(x + y) − x is y only up to rounding; who may regroup sums finds y itself."""

    @toolchain.to_the_letter
    def in_order(x, y):
        return (x + y) - x

    @toolchain.kernel
    def regrouped(x, y):
        return (x + y) - x

    assert in_order(1e16, 1.0) == 0.0 and regrouped(1e16, 1.0) == 1.0


def run_every_kernel(folder):
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.kernels.cpu.every_kernel"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["is_checked"]
    return report["kernels"]


@pytest.mark.slow
def test_every_kernel_stays_within_its_arrays(tmp_path):
    """Once compiled with checked indices, and once more in another process, which finds the machine code of the first.

    What kernels call is compiled into them, so that the second process loads only those that Python calls.
    """
    first = run_every_kernel(tmp_path)
    assert len(first) > 25
    assert [
        name for name, (n_signatures, hits, misses) in first.items() if not n_signatures == misses > hits == 0
    ] == []
    second = run_every_kernel(tmp_path)
    assert sum(misses for _, _, misses in second.values()) == 0
    assert {"attention.attend_rows", "rows.draw_rows"} <= {name for name, (_, hits, _) in second.items() if hits}

"""Runs tests that call every compiled kernel, and tells how often each was compiled and found in the cache.

A script, ``python -m tests.kernels.cpu.every_kernel``, so that it can be run with checked indices and on a directory of
machine code of its own. The last line that it prints is JSON: for each kernel its signatures, cache hits and misses.
"""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TESTS = (
    "tests/kernels/cpu/threads/test_threads.py",
    "tests/kernels/cpu/test_crossed.py",
    "tests/block_model/test_crossed.py",
)


def kernels():
    """Every kernel of the package by its dotted name; not before the tests, which instrument the package's import."""
    for path in sorted((ROOT / "sbmt/kernels/cpu").rglob("[a-z]*.py")):
        module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for name, thing in vars(module).items():
            if hasattr(thing, "py_func") and thing.py_func.__module__ == module.__name__:
                yield f"{path.stem}.{name}", thing


def main():
    if code := pytest.main(["-q", "-x", "-p", "no:cacheprovider", *TESTS]):
        sys.exit(code)
    stats = {name: (kernel.signatures, kernel.stats) for name, kernel in kernels()}
    print(json.dumps({
        name: (len(signatures), sum(of.cache_hits.values()), sum(of.cache_misses.values()))
        for name, (signatures, of) in stats.items()
    }))  # fmt: skip


if __name__ == "__main__":
    main()

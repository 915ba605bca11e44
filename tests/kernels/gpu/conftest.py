"""Kernels need a GPU or the interpreter; that they can be built needs neither."""

import pytest

from tests.kernels.gpu.device import HAS_KERNELS


def pytest_collection_modifyitems(items):
    """Skips what nothing here could run."""
    skip = pytest.mark.skip(reason="needs a GPU, or TRITON_INTERPRET=1: see make gpu-test")
    for item in items:
        if "tests/kernels/gpu/" in item.path.as_posix() and item.path.name != "test_builds.py" and not HAS_KERNELS:
            item.add_marker(skip)

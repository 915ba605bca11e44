"""Looking rates up sixteen at once takes AVX-512; without it kernels do without."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from sbmt.kernels.cpu.vectors.look_up import can_look_up

ROOT = Path(__file__).parents[4]
CHECK = """
import numba, pytest
assert pytest.main(["-q", "-p", "no:cacheprovider", "tests/kernels/cpu/test_crossed.py", "-k", "looked_up"]) == 0
from sbmt.kernels.cpu.vectors.look_up import can_look_up
assert not can_look_up(numba.float32[::1], (0, 0))
"""


def test_only_single_precision_whose_groups_fill_the_lanes_is_looked_up():
    single = can_look_up(numba.float32[::1], (0, 0))
    assert [can_look_up(numba.float32[::1], (0,) * n) for n in (1, 4, 8)] == [single] * 3
    assert not any(can_look_up(numba.float32[::1], (0,) * n) for n in (3, 5, 16))
    assert not can_look_up(numba.float64[::1], (0, 0))


@pytest.mark.slow
def test_processors_without_it_compute_the_same(tmp_path):
    settings = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, cwd=ROOT, env=os.environ | settings
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

"""What a process holds, and its peak."""

import subprocess
import sys

import pytest

SCRIPT = """
import torch
from sbmt.experiments.benchmarks.machine import peak_of
print(peak_of(lambda: torch.ones(2**25).sum()), peak_of(lambda: None))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_a_peak_is_what_a_call_held():
    """In a process of its own: one that has freed much memory before takes from there."""
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    large, nothing = map(float, found.stdout.split())  # MiB, of 128
    assert 120 < large < 160 and nothing < 60

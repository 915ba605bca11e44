"""What a process holds, and its peak."""

import sys

import pytest
import torch

from sbmt.experiments.memory import peak_of


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_a_peak_is_what_a_call_held():
    large = peak_of(lambda: torch.ones(2**25).sum())[1]  # 128 MiB
    assert 120 < large < 160 and peak_of(lambda: None)[1] < 60

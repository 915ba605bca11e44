"""What a process holds, and its peak."""

import sys

import pytest
import torch

from sbmt.experiments.memory import in_fresh_process, peak_of


def test_a_process_that_fails_or_is_killed_says_why(tmp_path):
    assert "No module named" in in_fresh_process("no_such_module", {"n": 8})["missing"]
    (tmp_path / "killed.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    assert "signal 9" in in_fresh_process("killed", {}, {"PYTHONPATH": str(tmp_path)})["missing"]


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_a_peak_is_what_a_call_held():
    large = peak_of(lambda: torch.ones(2**25).sum())[1]  # 128 MiB
    assert 120 < large < 160 and peak_of(lambda: None)[1] < 60

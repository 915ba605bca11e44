"""What a process holds, and its peak."""

import sys

import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.memory import MEBIBYTE, give_back, held, in_fresh_process, reset_peak


def test_a_process_that_fails_says_why():
    assert "No module named" in in_fresh_process("no_such_module", {"n": 8})["missing"]


def test_a_process_that_is_killed_is_told_from_one_that_fails(tmp_path):
    (tmp_path / "killed.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    found = in_fresh_process("killed", {}, {"PYTHONPATH": str(tmp_path)})
    assert found == {"missing": "killed by signal 9, which is what happens where memory runs out"}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_a_peak_is_what_was_held_since_the_last_reset():
    give_back()  # what earlier tests have freed would be taken up again
    reset_peak()
    before = held("VmHWM")
    large = torch.ones(2**25)  # 128 MiB
    del large
    assert held("VmHWM") - before > 120 * MEBIBYTE
    give_back()
    reset_peak()
    assert held("VmHWM") - before < 60 * MEBIBYTE


@pytest.mark.bad_input
@pytest.mark.parametrize("measure", [reset_peak, lambda: held("VmHWM")])
def test_elsewhere_memory_is_refused(monkeypatch, measure):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SbmtError, match="expected Linux, to measure memory, got darwin"):
        measure()

"""The peak memory of a call."""

import pytest
import torch

from sbmt.experiments.benchmarks.machine import peak_of


def test_a_peak_counts_what_is_freed_within_the_call_and_nothing_allocated_before(capfd):
    before = torch.ones(2**22)

    def call():
        first = before + 1  # 16 MiB
        del first
        second = before + 1
        return second + 1

    assert [peak_of(call) for _ in range(2)] == [pytest.approx(32.0, rel=1e-3)] * 2
    assert peak_of(lambda: None) == 0.0
    assert capfd.readouterr().err == ""

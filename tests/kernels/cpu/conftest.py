"""Fixtures that cut small work into many parts, and that give threads back."""

import pytest
import torch

from sbmt.kernels.cpu.threads import parallel


@pytest.fixture
def set_threads():
    """``torch.set_num_threads``, undone after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def part_counts(monkeypatch):
    """Shares out even the smallest work; lists into how many parts each piece of it was cut."""
    right, counts = parallel._count, []

    def counted(work):
        counts.append(right(work))
        return counts[-1]

    monkeypatch.setattr(parallel, "_LEAST_WORK", 1)
    monkeypatch.setattr(parallel, "_count", counted)
    return counts

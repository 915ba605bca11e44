"""Parts shared by the tests of Triton kernels, which run on a GPU or else through Triton's interpreter."""

import sys
from contextlib import contextmanager

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
REAL = torch.float32 if DEVICE == "cuda" else torch.float64  # no kernel is built for float64
CLOSE = {torch.float32: 2e-4, torch.float64: 1e-7}[REAL]  # δ, scales and bounds are float32


def random(*shape):
    return torch.randn(*shape, dtype=REAL, device=DEVICE, requires_grad=True)


@contextmanager
def without_shape_checks():
    """Imports modules without type checks, which the interpreter requires."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "meta_path", [x for x in sys.meta_path if type(x).__name__ != "_JaxtypingFinder"])
        yield

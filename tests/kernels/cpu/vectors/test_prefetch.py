"""Asking for numbers early: the instruction is there, and nothing else happens."""

import numba
import numpy as np
import pytest

from sbmt.kernels.cpu.vectors.prefetch import prefetch


def asks(array, row):
    prefetch(array, row)
    return array[0]


def instructions(compiled):
    """The lines of machine code that ask for memory, on x86 and on ARM."""
    lines = "\n".join(compiled.inspect_asm().values()).splitlines()
    return [line for line in lines if line.strip().startswith(("prefetch", "prfm"))]


@pytest.mark.parametrize(("shape", "n_lines"), [((5,), 1), ((5, 16), 2)])
def test_both_ends_of_a_row_are_asked_for(shape, n_lines):
    compiled, array = numba.njit(asks), np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    before = array.copy()
    assert np.array_equal(compiled(array, 3), before[0]) and np.array_equal(array, before)
    assert len(instructions(compiled)) == n_lines


def test_a_row_that_does_not_exist_does_no_harm():
    compiled = numba.njit(asks)
    for row in (5, -1, 2**40):
        assert compiled(np.zeros((5, 2)), row).sum() == 0


def test_an_array_that_is_not_contiguous_is_refused():
    for array in (np.zeros((4, 4)).T, np.zeros((4, 4))[:, ::2], np.zeros((2, 2, 2))):
        with pytest.raises(numba.TypingError):
            numba.njit(asks)(array, 0)

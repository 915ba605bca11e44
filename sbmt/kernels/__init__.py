"""Compiled code: for the CPU by numba, for GPUs by Triton."""

MAX_BOOST = 32.0  # of candidates' rates: at rate 32·p a certain edge is missed with probability e⁻³² < 2e-14

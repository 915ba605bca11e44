"""The comparison of two ways to compute the same numbers by their gradients."""

import torch


def assert_same_gradients(found, expected, leaves, *, rtol=1e-10, atol=1e-12, least=0.0):
    """Those of a sum in which no two numbers have the same factor; the expected ones reach ``least`` somewhere."""
    factors = torch.linspace(-1, 2, found.numel(), dtype=found.dtype).view_as(found)
    gradients = [torch.autograd.grad((x * factors).sum(), leaves, retain_graph=True) for x in (found, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        assert theirs.abs().max() >= least
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol)

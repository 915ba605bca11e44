"""Compares two ways to compute the same numbers by their gradients."""

import torch


def weighted_sum(values):
    """Returns a sum in which every number has a different factor."""
    return (values * torch.linspace(-1, 2, values.numel(), dtype=values.dtype).view_as(values)).sum()


def assert_same_gradients(found, expected, leaves, *, rtol=1e-10, atol=1e-12, least=0.0):
    """Compares gradients of weighted sums; the expected ones reach ``least`` somewhere."""
    gradients = [torch.autograd.grad(weighted_sum(x), leaves, retain_graph=True) for x in (found, expected)]
    for mine, theirs in zip(*gradients, strict=True):
        assert theirs.abs().max() >= least
        torch.testing.assert_close(mine, theirs, rtol=rtol, atol=atol)

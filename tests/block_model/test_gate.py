"""The gate: one in the forward pass, the identity in the backward pass."""

import pytest
import torch

from sbmt import straight_through_gate


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_value_is_one_bit_for_bit(dtype):
    generator = torch.Generator().manual_seed(0)
    odd = torch.tensor([0.0, 1e-30, 0.1, 1 / 3, 1.0, 1.7, 1e4])
    probability = torch.cat([odd, torch.rand(1000, generator=generator)]).to(dtype)
    gate = straight_through_gate(probability)
    assert gate.dtype == dtype and torch.equal(gate, torch.ones_like(probability))


def test_the_gradient_passes_unchanged():
    probability = torch.rand(50, dtype=torch.float64, requires_grad=True)
    incoming = torch.randn(50, dtype=torch.float64)
    straight_through_gate(probability).backward(incoming)
    assert torch.equal(probability.grad, incoming)


def test_no_edges_no_gate():
    assert straight_through_gate(torch.zeros(0)).shape == (0,)

"""Nothing to attend, one query or key, all padding, where the conformance kit does not look."""

import pytest
import torch

from sbmt.attention import available_backends
from sbmt.errors import SbmtError
from sbmt.layers import MultiHeadAttention, SBMAttention, build_attention
from tests.layers.inputs import seeded, tokens, without_edges
from tests.testing.passing import PASSING, SELF_ATTENTION

every_attention = pytest.mark.parametrize("name", PASSING)


def finite_gradients(out, *tensors):
    """Backward through all that an attention returns, then looks at each gradient."""
    loss = out.values.square().sum() + out.density.sum() + out.expected_density.sum() + out.auxiliary_loss
    if loss.requires_grad:
        loss.backward()
    return all(t.grad is None or bool(t.grad.isfinite().all()) for t in tensors)


@every_attention
@pytest.mark.bad_input
def test_queries_and_keys_differ_in_number(name):
    """Self-attentions refuse that."""
    layer = build_attention(**PASSING[name], d_head=4, n_heads=3)
    key_mask = torch.tensor([[True], [False]])
    for n_queries, n_keys in ((1, 6), (6, 1)):
        query, key = tokens(n=n_queries).requires_grad_(), tokens(n=n_keys, seed=1).requires_grad_()
        arguments = dict(key_mask=key_mask.expand(2, n_keys), generator=seeded(), return_edges=True)
        if name in SELF_ATTENTION:
            with pytest.raises(SbmtError):
                layer(query, key, key, **arguments)
            continue
        out = layer(query, key, key, **arguments)
        assert out.edges.shape == (2, 3, n_queries, n_keys)
        assert (out.values[1] == 0).all() and out.values.isfinite().all()
        assert finite_gradients(out, query, key, *layer.parameters())


@pytest.mark.parametrize("sampler", ["exact", "bernoulli", "fastrg"])
@pytest.mark.parametrize("gate_rule", ["score", "weight"])
@pytest.mark.parametrize("backend", available_backends())
def test_no_edge_at_all(backend, gate_rule, sampler):
    settings = dict(exploration=0.0, sampler=sampler, gate_rule=gate_rule, backend=backend)
    layer = without_edges(SBMAttention(4, 3, 5, **settings))
    x = tokens().requires_grad_()
    out = layer(x, x, x)
    assert (out.values == 0).all() and (out.density == 0).all()
    assert finite_gradients(out, x, *layer.parameters())


@every_attention
def test_a_batch_of_padding_through_the_projections(name):
    settings = dict(PASSING[name])
    layer = MultiHeadAttention(8, 2, attention=settings.pop("name"), **settings)
    x = torch.randn(3, 5, 8, generator=seeded())
    output, attended = layer(x, x, x, torch.ones(3, 5, dtype=torch.bool))
    assert torch.equal(output, layer.out_proj.bias.expand(3, 5, 8))
    assert (attended.density == 0).all()
    output.square().sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in layer.parameters())

"""Nothing to attend, one of each, all padding: zeros and finite gradients, never NaN, in every attention."""

import pytest
import torch

from sbmt.attention import available_backends
from sbmt.errors import SbmtError
from sbmt.layers import MultiHeadAttention, SBMAttention, build_attention
from sbmt.layers.registry import RESERVED as NAMES
from sbmt.testing import CHECKS
from sbmt.testing.subject import make_subject
from tests.layers.inputs import seeded, tokens, without_edges

ATTENTIONS = {
    "full": dict(name="full"),
    "full, scaled": dict(name="full", is_log_scaled=True),
    "random": dict(name="random_mask", mask_density=0.5),
    "random, empty": dict(name="random_mask", mask_density=0.0),
    "random, complete": dict(name="random_mask", mask_density=1.0),
    "sbm": dict(name="sbm", n_clusters=3),
    "one cluster": dict(name="sbm", n_clusters=1),
    "fastrg": dict(name="sbm", n_clusters=3, preset="faithful"),
    "bernoulli": dict(name="sbm", n_clusters=3, sampler="bernoulli"),
    "poisson": dict(name="sbm", n_clusters=3, link="poisson"),
    "weight rule": dict(name="sbm", n_clusters=3, gate_rule="weight"),
    "softmax memberships": dict(name="sbm", n_clusters=3, link="poisson", membership="softmax"),
    "window": dict(name="sbm", n_clusters=3, window=2),
    "fitted": dict(name="sbm", n_clusters=4, preset="fitted"),
    "fitted, no loops": dict(name="sbm", n_clusters=4, preset="fitted", self_loops=False),
    "by position": dict(name="sbm_static", n_clusters=3, n_positions=7),
    "linear": dict(name="linear"),
    "linformer": dict(name="linformer", n_positions=7, n_projected=3),
    "reformer": dict(name="reformer", n_chunk=2),
    "routing": dict(name="routing", n_centroids=2),
    "reformer, one chunk": dict(name="reformer", n_chunk=8, n_hashes=1),
    "performer": dict(name="performer", n_features=5),
    "nystromformer": dict(name="nystromformer", n_landmarks=2),
    "nystromformer, convolution": dict(name="nystromformer", n_landmarks=2, n_conv=3),
} | {backend: dict(name="sbm", n_clusters=3, backend=backend) for backend in available_backends()}
SELF_ATTENTIONS = {"window", "fitted", "reformer", "reformer, one chunk", "routing", "nystromformer, convolution"}
"""What needs a token to be query and key at once."""
every_attention = pytest.mark.parametrize("name", ATTENTIONS)


def finite_gradients(out, *tensors):
    """Backward through all that an attention returns, then looks at each gradient."""
    loss = out.values.square().sum() + out.density.sum() + out.expected_density.sum() + out.auxiliary_loss
    if loss.requires_grad:
        loss.backward()
    return all(t.grad is None or bool(t.grad.isfinite().all()) for t in tensors)


@pytest.mark.bad_input  # some of what the kit gives; other tests check the shapes
@every_attention
def test_nothing_to_attend(name):
    """One real token, none, tokens that no edge reaches: see the checks for what must hold."""
    torch.manual_seed(0)
    subject = make_subject(build_attention(**ATTENTIONS[name], d_head=4, n_heads=3), n_draws=2)
    for check in ("shapes", "density", "padded queries", "empty rows", "all padding", "single token"):
        CHECKS[check](subject)


@pytest.mark.parametrize("name", [name for name in ATTENTIONS if name not in SELF_ATTENTIONS])
@pytest.mark.parametrize("n_queries, n_keys", [(1, 6), (6, 1), (4, 7)])
def test_queries_and_keys_differ_in_number(n_queries, n_keys, name):
    layer = build_attention(**ATTENTIONS[name], d_head=4, n_heads=3)
    query, key = tokens(n=n_queries).requires_grad_(), tokens(n=n_keys, seed=1).requires_grad_()
    key_mask = torch.ones(2, n_keys, dtype=torch.bool)
    key_mask[1] = False
    out = layer(query, key, key, key_mask=key_mask, generator=seeded(), return_edges=True)
    assert out.edges.shape == (2, 3, n_queries, n_keys)
    assert (out.values[1] == 0).all() and out.values.isfinite().all()
    assert finite_gradients(out, query, key, *layer.parameters())


@pytest.mark.bad_input
@pytest.mark.parametrize("name", sorted(SELF_ATTENTIONS))
def test_self_attention_refuses_other_keys(name):
    layer = build_attention(**ATTENTIONS[name], d_head=4, n_heads=3)
    with pytest.raises(SbmtError):
        layer(tokens(n=4), tokens(n=7), tokens(n=7))


def test_every_name_is_among_them():
    assert {settings["name"] for settings in ATTENTIONS.values()} == set(NAMES)


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
    settings = dict(ATTENTIONS[name])
    layer = MultiHeadAttention(8, 2, attention=settings.pop("name"), **settings)
    x = torch.randn(3, 5, 8, generator=seeded())
    output, attended = layer(x, x, x, torch.ones(3, 5, dtype=torch.bool))
    assert torch.equal(output, layer.out_proj.bias.expand(3, 5, 8))
    assert (attended.density == 0).all()
    output.square().sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in layer.parameters())

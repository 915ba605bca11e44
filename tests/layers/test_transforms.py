"""What PyTorch does with a forward pass besides running it: checkpointing, and the transforms of torch.func."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from sbmt import EdgeList, MultiHeadAttention, SbmtError, build_attention, counter_rng, edge_attention, sample_edges

pytestmark = pytest.mark.bad_input


def gradient(attend, x, *, is_checkpointed, use_reentrant=True):
    """The gradient at x; the seed of torch's own generator is always the same."""
    torch.manual_seed(3)
    x = x.clone().requires_grad_()
    out = checkpoint(attend, x, use_reentrant=use_reentrant) if is_checkpointed else attend(x)
    out.square().sum().backward()
    return x.grad


@pytest.fixture
def layer():
    return MultiHeadAttention(8, 2, n_clusters=4)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_generator_from_outside_is_refused_under_checkpointing(layer, use_reentrant):
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(SbmtError, match=r"no generator= from outside .*torch\.manual_seed"):
        gradient(
            lambda x: layer(x, x, x, generator=generator)[0],
            torch.randn(2, 30, 8),
            is_checkpointed=True,
            use_reentrant=use_reentrant,
        )


def test_few_generators_are_remembered():
    """Torch 2.11 has no weak references to them."""
    counter_rng._used.clear()
    for seed in range(3 * counter_rng._MOST_USED):
        counter_rng.draw_seed(torch.Generator().manual_seed(seed))
    seeds = [generator.initial_seed() for generator in counter_rng._used.values()]
    assert seeds == list(range(2 * counter_rng._MOST_USED, 3 * counter_rng._MOST_USED))


@pytest.mark.parametrize("source", ["torch", "new", "kept"])
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_repeats_the_masks(layer, use_reentrant, source):
    """Of torch's generator, and of one that is seeded inside, made there or not."""
    kept = torch.Generator()

    def attend(x):
        generator = {"torch": None, "new": torch.Generator(), "kept": kept}[source]
        if generator is not None:
            generator.manual_seed(5)
        return layer(x, x, x, generator=generator)[0] + layer(x, x, x, generator=generator)[0]

    x = torch.randn(2, 30, 8)
    plain = gradient(attend, x, is_checkpointed=False)
    assert torch.equal(gradient(attend, x, is_checkpointed=True, use_reentrant=use_reentrant), plain)


def test_training_and_evaluation_with_a_generator_go_on(layer):
    generator, x = torch.Generator().manual_seed(0), torch.randn(2, 30, 8)
    for _ in range(2):
        layer(x, x, x, generator=generator)[0].sum().backward()
    with torch.no_grad():
        layer.eval()(x, x, x, generator=generator)


X = torch.randn(3, 2, 5, 8)
EDGES = EdgeList.from_dense(torch.ones(3, 2, 5, 5, dtype=torch.bool))


@pytest.mark.parametrize(
    "transform",
    [
        lambda layer: torch.func.vmap(lambda x: layer(x[None], x[None], x[None]).values)(X),
        lambda layer: torch.func.grad(lambda x: layer(x, x, x).values.sum())(X),
        lambda layer: torch.func.jvp(lambda x: layer(x, x, x).values.sum(), (X,), (X,)),
        lambda layer: torch.func.vmap(lambda x: sample_edges(layer.block_model(x, x)).n_pairs)(X[None]),
        lambda layer: torch.func.grad(lambda b: edge_attention(X, X, X, EDGES, sink=b, backend="cpu").sum())(
            X[0, :, 0, 0]
        ),
    ],
    ids=["vmap", "grad", "jvp", "block model", "sink of edge attention"],
)
@pytest.mark.parametrize("preset", ["faithful", "recommended", "fitted"])
def test_transforms_of_torch_func_are_refused(transform, preset):
    layer = build_attention("sbm", preset=preset, d_head=8, n_heads=2, n_clusters=4).eval()
    with pytest.raises(SbmtError, match=r"outside torch\.func.*batch dimension.*backward"):
        transform(layer)


@pytest.mark.parametrize("backend", ["dense", "pyg"])
def test_backends_in_plain_torch_take_them(backend):
    found = torch.func.grad(lambda x: edge_attention(x, x, x, EDGES, backend=backend).sum())(X)
    x = X.clone().requires_grad_()
    edge_attention(x, x, x, EDGES, backend=backend).sum().backward()
    torch.testing.assert_close(found, x.grad)

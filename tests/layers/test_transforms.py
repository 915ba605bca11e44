"""What PyTorch's tools do with a layer: hooks, parametrizations, checkpoints, tracing, and torch.func."""

import sys

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from sbmt import EdgeList, MultiHeadAttention, SbmtError, build_attention, edge_attention, sample_edges
from tests.layers.inputs import seeded, tokens

pytestmark = pytest.mark.bad_input
each_preset = pytest.mark.parametrize("preset", ["recommended", "faithful", "fitted"])


def make(preset="recommended", n_clusters=16):
    torch.manual_seed(0)
    return MultiHeadAttention(8, 2, preset=preset, n_clusters=n_clusters)


@each_preset
def test_a_layer_calls_its_children(preset):
    """So that their hooks run: once for queries and once for keys."""
    layer, called = make(preset), []
    for name, child in layer.named_modules():
        if name not in ("", "attention"):
            child.register_forward_hook(lambda *_, name=name: called.append(name))
    layer(*torch.randn(3, 1, 6, 8))
    mlp = [f"attention.node_mlp.{i}" for i in range(len(layer.attention.node_mlp))]
    assert called == [*mlp, "attention.node_mlp"] * 2 + ["out_proj"]


@each_preset
@pytest.mark.parametrize(
    "change", [parametrizations.weight_norm, lambda linear: prune.random_unstructured(linear, "weight", 0.5)]
)
def test_a_layer_takes_parametrized_children(change, preset):
    layer, x = make(preset), torch.randn(2, 9, 8)
    linear = layer.attention.node_mlp[0]
    change(linear)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(2):
        before = [p.detach().clone() for p in linear.parameters()]
        optimizer.zero_grad()
        output, attended = layer(x, x, x, generator=seeded())
        (output.square().sum() + attended.density.sum() + attended.auxiliary_loss).backward()
        optimizer.step()
        assert all((p != old).any() for p, old in zip(linear.parameters(), before, strict=True))


def gradient(attend, x, *, is_checkpointed, use_reentrant=True):
    """The gradient at x; the seed of torch's own generator is always the same."""
    torch.manual_seed(3)
    x = x.clone().requires_grad_()
    out = checkpoint(attend, x, use_reentrant=use_reentrant) if is_checkpointed else attend(x)
    out.square().sum().backward()
    return x.grad


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_generator_from_outside_is_refused_under_checkpointing(use_reentrant):
    layer, generator = make(), seeded()
    with pytest.raises(SbmtError, match=r"external generator=.*torch\.manual_seed"):
        gradient(
            lambda x: layer(x, x, x, generator=generator)[0],
            torch.randn(2, 30, 8),
            is_checkpointed=True,
            use_reentrant=use_reentrant,
        )


@pytest.mark.parametrize("source", ["torch", "new", "kept"])
@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("preset", ["recommended", "fitted"])
def test_checkpointing_repeats_the_masks(preset, use_reentrant, source):
    """Of torch's generator, and of one that is seeded inside, made there or not."""
    layer, kept = make(preset), torch.Generator()

    def attend(x):
        generator = {"torch": None, "new": torch.Generator(), "kept": kept}[source]
        if generator is not None:
            generator.manual_seed(5)
        return sum(layer(x, x, x, generator=generator)[0] for _ in range(2))

    x = torch.randn(2, 30, 8)
    plain = gradient(attend, x, is_checkpointed=False)
    assert torch.equal(gradient(attend, x, is_checkpointed=True, use_reentrant=use_reentrant), plain)


@each_preset
def test_tensors_without_numbers_give_shapes(preset):
    with FakeTensorMode():
        output, attended = make(preset)(*torch.randn(3, 2, 30, 8))
    assert output.shape == (2, 30, 8) and attended.values.shape == (2, 2, 30, 4) and attended.density.shape == (2, 2)
    assert make(preset).to("meta")(*torch.randn(3, 2, 30, 8, device="meta"))[0].shape == (2, 30, 8)


class Parent(torch.nn.Module):
    """Whose child is traced with it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x, x, x)


def test_symbolic_tracing_is_refused_by_name():
    for layer in (make("recommended"), make("fitted").attention):
        with pytest.raises(SbmtError, match="torch.fx"):
            torch.fx.symbolic_trace(Parent(layer))


@each_preset
@pytest.mark.parametrize("n", [64, 2048])
def test_evaluation_passes_through_few_files(n, preset):
    """A reader who follows one forward pass opens no more of the library."""
    layer, x, files = make(preset).eval(), torch.randn(1, n, 8), set()

    def note(frame, event, argument):
        _, is_ours, name = frame.f_code.co_filename.rpartition("/sbmt/")
        files.update([name] if is_ours else [])

    with torch.no_grad():
        layer(x, x, x)  # imports and compiles
        before = sys.gettrace()
        sys.settrace(note)
        try:
            layer(x, x, x)
        finally:
            sys.settrace(before)
    assert "layers/sbm.py" in files and len(files) <= 14, sorted(files)


@each_preset
def test_an_export_is_refused(preset):
    """It would hold one seed, and so one mask."""
    layer = make(preset).eval()
    with torch.no_grad(), pytest.raises(SbmtError, match=r"torch\.export would keep one mask"):
        torch.export.export(layer, (torch.randn(2, 30, 8),) * 3)


X = tokens(3, 2, 5, 8)
EDGES = EdgeList.from_dense(torch.ones(3, 2, 5, 5, dtype=torch.bool))


@pytest.mark.parametrize(
    "transform",
    [
        lambda layer: torch.func.vmap(lambda x: layer(x[None], x[None], x[None]).values)(X),
        lambda layer: torch.func.grad(lambda x: layer(x, x, x).values.sum())(X),
        lambda layer: torch.func.jvp(lambda x: layer(x, x, x).values.sum(), (X,), (X,)),
        lambda layer: torch.func.vmap(lambda x: sample_edges(layer.block_model(x, x)).n_pairs)(X[None]),
        lambda _: torch.func.grad(lambda b: edge_attention(X, X, X, EDGES, sink=b, backend="cpu").sum())(X[0, :, 0, 0]),
    ],
    ids=["vmap", "grad", "jvp", "block model", "sink of edge attention"],
)
@each_preset
def test_transforms_of_torch_func_are_refused(transform, preset):
    layer = build_attention("sbm", preset=preset, d_head=8, n_heads=2, n_clusters=4).eval()
    with pytest.raises(SbmtError, match=r"torch\.func.*batch dimension.*backward"):
        transform(layer)


@pytest.mark.parametrize("backend", ["dense", "pyg"])
def test_backends_in_plain_torch_take_them(backend):
    found = torch.func.grad(lambda x: edge_attention(x, x, x, EDGES, backend=backend).sum())(X)
    x = X.clone().requires_grad_()
    edge_attention(x, x, x, EDGES, backend=backend).sum().backward()
    torch.testing.assert_close(found, x.grad)

"""Tests layers with PyTorch's tools: hooks, parametrizations, checkpoints, tracing, and torch.func."""

import sys

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.ao.quantization import quantize_dynamic
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint

from sbmt import EdgeList, Encoder, MultiHeadAttention, SbmtError, build_attention, edge_attention, sample_edges
from tests.layers.inputs import EVERY, seeded, tokens

pytestmark = pytest.mark.bad_input
each_preset = pytest.mark.parametrize("preset", ["recommended", "faithful", "fitted"])
each = pytest.mark.parametrize("name", EVERY)
DRAWN = "recommended", "faithful", "fitted", "sbm_static", "random_mask"


def make(name="recommended"):
    torch.manual_seed(0)
    return MultiHeadAttention(8, 2, **EVERY[name])


def step(layer, x, padding=None):
    """Returns the output, values, densities and gradients of a training step with a fixed seed."""
    layer.zero_grad()
    torch.manual_seed(1)
    output, attended = layer(x, x, x, padding)
    (output.square().sum() + attended.density.sum() + attended.auxiliary_loss).backward()
    return [output, *attended[:3], *(p.grad for p in layer.parameters() if p.grad is not None)]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")
@each
def test_backward_hooks_run_and_change_nothing(name):
    """These hooks wrap a layer's inputs, so one tensor given three times becomes three; they require a tuple."""
    layer, padding, found, called = make(name), torch.zeros(2, 30, dtype=torch.bool), [], set()
    padding[0, 20:] = True
    for is_hooked in (False, True):
        for path, module in layer.named_modules() if is_hooked else ():
            module.register_full_backward_hook(lambda *_, path=path: called.add(path))
        x = torch.randn(2, 30, 8, generator=seeded(), requires_grad=True)
        found.append([*step(layer, x, padding), x.grad])
    for plain, hooked in zip(*found, strict=True):
        torch.testing.assert_close(hooked, plain)
    assert {"", "attention", "out_proj"} <= called


@each
def test_no_attention_depends_on_the_default_device(name):
    """Tensors are created on the default device unless the code names another, as layers must."""
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(8, 2, dropout=0.2, **EVERY[name]), torch.randn(2, 30, 8, generator=seeded())
    padding, found = torch.arange(30) >= torch.tensor([[30], [20]]), []
    layer(x, x, x)  # the first step initialises the rates
    for device in ("cpu", "meta"):
        with torch.device(device):
            found.append(step(layer, x, padding))
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)


class Offloaded:
    """Moves a module's parameters elsewhere except during calls, as hooks of ``accelerate`` do."""

    def __init__(self, module):
        self.module, self.kept = module, {**module._parameters, **module._buffers}
        module.register_forward_pre_hook(lambda *_: self.put(self.kept))
        module.register_forward_hook(lambda *_: self.put({n: x.to("meta") for n, x in self.kept.items()}))
        self.put({name: x.to("meta") for name, x in self.kept.items()})

    def put(self, tensors):
        for name, x in tensors.items():
            held = self.module._parameters if name in self.module._parameters else self.module._buffers
            held[name] = nn.Parameter(x, requires_grad=False) if held is self.module._parameters else x


@each
def test_weights_may_be_loaded_when_a_module_is_called(name):
    layer, x = make(name).eval(), torch.randn(2, 30, 8)
    with torch.no_grad():
        wanted, _ = layer(x, x, x, generator=seeded())
        modules = [Offloaded(module) for module in layer.modules()]
        assert all(p.is_meta for p in layer.parameters()) and len(modules) > 2
        assert torch.equal(layer(x, x, x, generator=seeded())[0], wanted)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@each
def test_linear_layers_may_be_quantized_or_wrapped(name):
    layer, x = make(name).eval(), torch.randn(2, 30, 8)
    wanted, _ = layer(x, x, x, generator=seeded())
    torch.testing.assert_close(quantize_dynamic(layer, {nn.Linear})(x, x, x)[0], wanted, rtol=0, atol=1.0)
    layer.out_proj = nn.Sequential(layer.out_proj)
    assert torch.equal(layer(x, x, x, generator=seeded())[0], wanted)


@each_preset
@pytest.mark.parametrize(
    "change", [parametrizations.weight_norm, lambda linear: prune.random_unstructured(linear, "weight", 0.5)]
)
def test_children_may_be_parametrized(change, preset):
    layer, x = make(preset), torch.randn(2, 9, 8)
    linear = layer.attention.node_mlp[0]
    change(linear)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for _ in range(2):
        before = [p.detach().clone() for p in linear.parameters()]
        step(layer, x)
        optimizer.step()
        assert all((p != old).any() for p, old in zip(linear.parameters(), before, strict=True))


def gradient(attend, x, *, is_checkpointed, use_reentrant=True):
    """Returns the gradient at x, with a fixed seed of torch's global generator."""
    torch.manual_seed(3)
    x = x.clone().requires_grad_()
    out = checkpoint(attend, x, use_reentrant=use_reentrant) if is_checkpointed else attend(x)
    out.square().sum().backward()
    return x.grad


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_generator_from_outside_is_refused_under_checkpointing(use_reentrant):
    layer, generator = make(), seeded()
    with pytest.raises(SbmtError, match=r"unless the function creates the generator.*torch\.manual_seed"):
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
    """Tests torch's global generator, and one that is seeded inside the function, created there or not."""
    layer, kept = make(preset), torch.Generator()

    def attend(x):
        generator = {"torch": None, "new": torch.Generator(), "kept": kept}[source]
        if generator is not None:
            generator.manual_seed(5)
        return sum(layer(x, x, x, generator=generator)[0] for _ in range(2))

    x = torch.randn(2, 30, 8)
    plain = gradient(attend, x, is_checkpointed=False)
    assert torch.equal(gradient(attend, x, is_checkpointed=True, use_reentrant=use_reentrant), plain)


@each
def test_tensors_without_numbers_give_shapes(name):
    with FakeTensorMode():
        output, attended = make(name)(*torch.randn(3, 2, 30, 8))
    assert output.shape == (2, 30, 8) and attended.values.shape == (2, 2, 30, 4) and attended.density.shape == (2, 2)
    assert make(name).to("meta")(*torch.randn(3, 2, 30, 8, device="meta"))[0].shape == (2, 30, 8)


class Parent(nn.Module):
    """A module whose child is traced with it."""

    def __init__(self, layer, n_arguments=3):
        super().__init__()
        self.layer, self.n_arguments = layer, n_arguments

    def forward(self, x):
        return self.layer(*[x] * self.n_arguments)


@each
def test_symbolic_tracing_is_refused_by_name(name):
    encoder = Encoder(11, 30, d_model=8, d_hidden=8, n_heads=2, n_layers=1, **EVERY[name])
    for layer in (Parent(make(name)), Parent(make(name).attention), Parent(encoder, 1)):
        with pytest.raises(SbmtError, match=r"torch\.fx"):
            torch.fx.symbolic_trace(layer)


@each
def test_only_attentions_without_masks_can_be_exported(name):
    """An exported layer would contain one seed, and so always draw the same mask."""
    layer, x = make(name).eval(), torch.randn(2, 30, 8)
    if name in (*DRAWN, "reformer"):
        with torch.no_grad(), pytest.raises(SbmtError, match=r"torch\.export would store a fixed mask"):
            torch.export.export(layer, (x, x, x))
    else:
        found, _ = torch.export.export(layer, (x, x, x)).module()(x, x, x)
        torch.testing.assert_close(found, layer(x, x, x)[0])


def test_a_model_of_full_attention_is_exported():
    model = Encoder(11, 30, d_model=8, d_hidden=8, n_heads=2, n_layers=1, attention="full").eval()
    ids = torch.randint(11, (2, 7))
    torch.testing.assert_close(torch.export.export(model, (ids,)).module()(ids).values, model(ids).values)


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
def test_backends_in_plain_torch_support_them(backend):
    found = torch.func.grad(lambda x: edge_attention(x, x, x, EDGES, backend=backend).sum())(X)
    x = X.clone().requires_grad_()
    edge_attention(x, x, x, EDGES, backend=backend).sum().backward()
    torch.testing.assert_close(found, x.grad)


@each_preset
def test_a_layer_calls_its_children(preset):
    """Projections are called as modules, so that their hooks run: once for queries and once for keys."""
    layer, called = make(preset), []
    for name, child in layer.named_modules():
        if name not in ("", "attention"):
            child.register_forward_hook(lambda *_, name=name: called.append(name))
    layer(*torch.randn(3, 1, 6, 8))
    mlp = [f"attention.node_mlp.{i}" for i in range(len(layer.attention.node_mlp))]
    assert called == [*mlp, "attention.node_mlp"] * 2 + ["out_proj"]


@each_preset
@pytest.mark.parametrize("n", [64, 2048])
def test_an_eval_forward_enters_few_files(n, preset):
    """A reader who follows one forward pass need not open other modules of the library."""
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

"""Compares counted products with torch's own counter, exactly."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sbmt import Encoder, SbmtError, SequenceClassifier, TokenTagger, build_attention
from sbmt.attention import dispatch
from sbmt.cost import FORMULAS, count_operations
from sbmt.layers.registry import RESERVED
from sbmt.layers.sbm import SBMAttention
from sbmt.models import DualEncoder, MaskedLM, SentenceClassifier
from sbmt.samplers import SAMPLERS

N = 150
SETTINGS = [
    ("full", {}),
    ("linear", {}),
    ("linformer", {"n_positions": N + 7, "n_projected": 12}),
    ("performer", {"n_features": 12}),
    ("nystromformer", {"n_landmarks": 12}),
    ("nystromformer", {"n_landmarks": N + 1, "n_iterations": 2}),
    ("reformer", {"n_chunk": 16}),
    ("reformer", {"n_chunk": 64, "n_hashes": 3}),
    ("sbm", {"n_clusters": 6}),
    ("sbm", {"n_clusters": 6, "preset": "faithful"}),
    ("sbm", {"n_clusters": 6, "sampler": "bernoulli"}),
    ("sbm", {"n_clusters": 6, "link": "poisson"}),
    ("sbm", {"n_clusters": 6, "reweight": True}),
    ("sbm", {"n_clusters": 8, "preset": "fitted"}),
    ("sbm", {"n_clusters": 64, "preset": "fitted"}),
    ("sbm", {"n_clusters": 6, "backend": "dense"}),
    ("sbm_static", {"n_clusters": 6, "n_positions": N}),
    ("random_mask", {"mask_density": 0.1}),
    ("random_mask", {"mask_density": 0.1, "window": 6}),
]


def encoder(attention="full", vocab_size=9, max_length: int | None = N, **settings):
    sizes = dict(d_model=12, d_hidden=20, n_heads=3, n_layers=1)
    return Encoder(vocab_size, max_length, attention=attention, **sizes, **settings)


def attend_flops(query, key, value, bias, gate, sink, scale, row_ptr, keys, *rest, out_shape=None, **_):
    """Counts the work of the compiled loop, of which torch sees only the number of edges."""
    return 2 * keys[0] * (key[3] + value[3])


def dot_flops(query, key, row_ptr, keys, *rest, out_shape=None, **_):
    return 2 * keys[0] * key[3]


def rate_flops(query_part, query, blocks, part, weight, row_ptr, keys, *rest, out_shape=None, **_):
    return 2 * query[0] * query[1] * query[2] * query[3] * blocks[-1] + 2 * keys[0] * part[3]


def draw_flops(query_part, query, blocks, *rest, out_shape=None, **_):
    """Returns tables that map parts to parts."""
    return 2 * query[0] * query[1] * blocks[1] * blocks[2] ** 3


def choice_flops(clusters, tokens, n_partitions, out_shape=None, **_):
    return 2 * tokens[0] * tokens[2] * tokens[3] * clusters[0] * clusters[1]


def flops_by_torch(model, *inputs):
    """Disables the fused kernel, which torch's counter does not support on the CPU; returns the model's output."""
    model.eval().requires_grad_(False)
    ours = torch.ops.sbmt
    compiled = {
        ours.attend: attend_flops,
        ours.edge_dot: dot_flops,
        ours.edge_rate: rate_flops,
        ours.draw_crossed: draw_flops,
        ours.choose_parts: choice_flops,
    }
    is_fitted = any(getattr(module, "learning", None) == "likelihood" for module in model.modules())
    with torch.set_grad_enabled(is_fitted), sdpa_kernel(SDPBackend.MATH):  # the fit is counted, gates are not
        with FlopCounterMode(display=False, custom_mapping=compiled) as counter:
            output = model(*inputs)
    return counter, output


@pytest.fixture(autouse=True)
def attention_along_edges(monkeypatch):
    """Returns the counts. Masks as dense as some of these would otherwise be computed pair by pair."""
    monkeypatch.setattr(dispatch, "DENSE_CELLS", 0)


def density(output):
    return float(output.attention[0].density.double().mean())


@pytest.mark.parametrize(
    ("name", "settings"), SETTINGS, ids=[f"{name}-{'-'.join(map(str, mine.values()))}" for name, mine in SETTINGS]
)
def test_every_product_of_an_encoder_is_counted(name, settings):
    model = encoder(name, **settings)
    counter, output = flops_by_torch(model, torch.randint(9, (2, N)))
    count = count_operations(model, N, density=density(output), batch=2)
    assert count.n_flops == counter.get_total_flops()
    inside = counter.get_flop_counts()["Encoder.blocks.0.attention.attention"]
    assert count.attention().n_flops == sum(inside.values())


@pytest.mark.parametrize(
    ("kind", "sizes"),
    [
        (SequenceClassifier, (4, 15)),
        (DualEncoder, (4, 15)),
        (TokenTagger, (4,)),
        (SentenceClassifier, (4,)),
        (MaskedLM, ()),
    ],
)
def test_every_product_of_a_model_is_counted(kind, sizes):
    model = kind(encoder("sbm", n_clusters=6), *sizes)
    counter, output = flops_by_torch(model, torch.randint(9, (3, 2, N) if kind is DualEncoder else (3, N)))
    assert count_operations(model, N, density=density(output), batch=3).n_flops == counter.get_total_flops()


def test_embedding_vectors_is_counted():
    model = encoder(vocab_size=None, d_input=5)
    counter, _ = flops_by_torch(model, torch.randn(2, N, 5))
    assert count_operations(model, N, batch=2).n_flops == counter.get_total_flops()


def test_every_attention_of_the_library_is_counted():
    assert {*FORMULAS, "sbm", "sbm_static"} == RESERVED == {name for name, _ in SETTINGS}


class Strange(nn.Module):
    """An attention mechanism without a cost function."""


class Stranger(SBMAttention):
    """An attention mechanism that overrides an inherited method."""


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (lambda: Strange(), {}, "Strange is not a model"),
        (lambda: Stranger(4, 2), {"density": 0.1}, "Stranger is not a model"),
        (lambda: encoder("sbm"), {}, "density="),
        (lambda: encoder("sbm"), {"density": 1.5}, r"density must be in \[0, 1\]"),
        (lambda: encoder("sbm"), {"density": float("nan")}, r"density must be in \[0, 1\]"),
        (lambda: encoder(), {"batch": 0}, "batch ≥ 1"),
    ],
)
def test_what_cannot_be_counted_is_refused(model, arguments, words):
    with pytest.raises(SbmtError, match=words):
        count_operations(model(), N, **arguments)


@pytest.mark.bad_input
def test_an_unknown_attention_inside_a_model_is_not_free():
    model = encoder()
    model.blocks[0].attention.attention = Strange()
    with pytest.raises(SbmtError, match=r"Strange at blocks\.0\.attention\.attention"):
        count_operations(model, N)


@pytest.mark.bad_input
def test_a_sampler_of_the_users_is_not_counted_as_one_of_the_librarys(monkeypatch):
    monkeypatch.setitem(SAMPLERS, "mine", SAMPLERS["bernoulli"])
    layer = build_attention("sbm", d_head=4, n_heads=2, sampler="mine")
    with pytest.raises(SbmtError, match="sampler of a counted layer to be one of 'exact', .*, got 'mine'"):
        count_operations(layer, N, density=0.1)

"""Counted products against torch's own counter, to the last one."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sbmt import Encoder, MultiHeadAttention, SbmtError, SequenceClassifier, TokenTagger, build_attention
from sbmt.attention import dispatch
from sbmt.cost import SYMBOLS, Formula, count_operations
from sbmt.cost.operations import ATTENTIONS
from sbmt.kernels.cutoffs import Cutoff
from sbmt.layers.registry import ATTENTIONS as REGISTERED
from sbmt.layers.sbm import SBMAttention
from sbmt.models import DualEncoder, MaskedLM, SentenceClassifier
from sbmt.samplers import SAMPLERS

N = 150
SETTINGS = [
    ("full", {}),
    ("full", {"is_log_scaled": True}),
    ("linear", {}),
    ("linformer", {"n_positions": N + 7, "n_projected": 12}),
    ("performer", {"n_features": 12}),
    ("nystromformer", {"n_landmarks": 12}),
    ("nystromformer", {"n_landmarks": N + 1, "n_iterations": 2}),
    ("reformer", {"n_chunk": 16}),
    ("reformer", {"n_chunk": 64, "n_hashes": 3}),
    ("routing", {"n_centroids": 7}),
    ("sbm", {"n_clusters": 6}),
    ("sbm", {"n_clusters": 6, "preset": "faithful"}),
    ("sbm", {"n_clusters": 6, "sampler": "bernoulli"}),
    ("sbm", {"n_clusters": 6, "link": "poisson"}),
    ("sbm", {"n_clusters": 6, "link": "poisson", "membership": "softmax"}),
    ("sbm", {"n_clusters": 6, "reweight": True}),
    ("sbm", {"n_clusters": 8, "preset": "fitted"}),
    ("sbm", {"n_clusters": 8, "preset": "fitted", "shared_graph": True}),
    ("sbm", {"n_clusters": 4, "n_groups": 1, "preset": "fitted", "shared_graph": True}),
    ("sbm", {"n_clusters": 6, "shared_graph": True}),
    ("sbm", {"n_clusters": 6, "backend": "dense"}),
    ("sbm_static", {"n_clusters": 6, "n_positions": N}),
    ("sbm_static", {"n_clusters": 6, "n_positions": N, "shared_graph": True}),
    ("random_mask", {"mask_density": 0.1}),
    ("random_mask", {"mask_density": 0.1, "window": 6}),
]


def ids(settings):
    return [f"{name}-{'-'.join(map(str, mine.values()))}" for name, mine in settings]


def encoder(attention="full", vocab_size=9, max_length: int | None = N, **settings):
    sizes = dict(d_model=12, d_hidden=20, n_heads=3, n_layers=2)
    return Encoder(vocab_size, max_length, attention=attention, **sizes, **settings)


def attend_flops(query, key, value, gate, bias, sink, scale, row_ptr, keys, *rest, out_shape=None, **_):
    """What the compiled kernel does: torch cannot look inside, but it sees how many edges go in."""
    return 2 * keys[0] * (key[1] + value[1])


def dot_flops(query, key, row_ptr, keys, *rest, out_shape=None, **_):
    return 2 * keys[0] * key[1]


def membership_flops(query, key, matrix, *rest, out_shape=None, **_):
    batch, heads, n_queries, width = query
    return 2 * batch * heads * (n_queries + key[2]) * width * matrix[2]


def crossed_rates_flops(query_part, query, blocks, part, weight, row_ptr, keys, *rest, out_shape=None, **_):
    return 2 * query[0] * query[1] * blocks[-1] + 2 * keys[0] * part[1]


def fit_flops(query, key, value, sink, scale, *rest, out_shape=None, **_):
    """Attention and rates of edges, and the sum of all rates; gradients found on the way are the backward pass's."""
    (_, of_query, blocks, _, _, _, keys, n_queries), copies = rest[:8], query[0] // rest[1][0]
    along_edges = crossed_rates_flops(*rest[:7]) + 2 * copies * keys[0] * (key[1] + value[1])
    return along_edges + 4 * of_query[0] // n_queries * blocks[1] // 2 * blocks[2] ** 3


def crossed_draws_flops(query_part, query, blocks, part, weight, shape, *rest, out_shape=None, **_):
    n_groups, size = blocks[1] // 2, blocks[2]
    return 2 * shape[0] * shape[1] * n_groups * size**3 + query[0] * query[1] * size


def flops_by_torch(model, *inputs):
    """Without the fused kernel, which torch's counter does not know on the CPU; and the model's output."""
    model.eval().requires_grad_(False)
    edges = {torch.ops.sbmt.attend: attend_flops, torch.ops.sbmt.edge_dot: dot_flops}
    edges |= {
        torch.ops.sbmt.part_memberships: membership_flops,
        torch.ops.sbmt.crossed_rates: crossed_rates_flops,
        torch.ops.sbmt.attend_and_fit: fit_flops,
        torch.ops.sbmt.sample_crossed: crossed_draws_flops,
    }
    is_fitted = any(getattr(module, "learning", None) == "likelihood" for module in model.modules())
    with torch.set_grad_enabled(is_fitted), sdpa_kernel(SDPBackend.MATH):  # the fit is counted, gates are not
        with FlopCounterMode(display=False, custom_mapping=edges) as counter:
            output = model(*inputs)
    return counter, output


@pytest.fixture(autouse=True)
def attention_along_edges(monkeypatch):
    """What is counted; masks as dense as some of these would be visited pair by pair."""
    monkeypatch.setattr(dispatch, "cutoffs", lambda: {"attention": Cutoff(0, 1.0)})


def densities(output):
    return [float(attended.density.double().mean()) for attended in output.attention]


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=ids(SETTINGS))
def test_every_product_of_an_encoder_is_counted(name, settings):
    model = encoder(name, **settings)
    counter, output = flops_by_torch(model, torch.randint(9, (2, N)))
    count = count_operations(model, N, density=densities(output), batch=2)
    assert count.n_flops == counter.get_total_flops()
    by_module = {path.removeprefix("Encoder."): counts for path, counts in counter.get_flop_counts().items()}
    for path in ("blocks.0", "blocks.1", "blocks.0.attention", "blocks.1.attention.attention"):
        assert count.within(path).n_flops == sum(by_module[path].values()), path
    assert count.attention().n_flops == sum(
        count.within(f"blocks.{layer}.attention.attention").n_flops for layer in range(2)
    )
    for row in count.rows:
        assert set(Formula(row.flops).symbols) | set(Formula(row.elementwise).symbols) <= set(SYMBOLS), row


@pytest.mark.parametrize("kind", ["classifier", "products", "concatenation", "tagger", "sentence", "masked"])
def test_every_product_of_a_model_is_counted(kind):
    inner = encoder("sbm", n_clusters=6)
    is_pair = kind in ("products", "concatenation")
    if is_pair:
        model = DualEncoder(inner, 4, 15, pair_features=kind)
    else:
        model = {
            "classifier": lambda: SequenceClassifier(inner, 4, 15),
            "tagger": lambda: TokenTagger(inner, 4),
            "sentence": lambda: SentenceClassifier(inner, 4),
            "masked": lambda: MaskedLM(inner),
        }[kind]()
    tokens = torch.randint(9, (3, 2, N) if is_pair else (3, N))
    counter, output = flops_by_torch(model, tokens)
    count = count_operations(model, N, density=densities(output), batch=3)
    assert count.n_flops == counter.get_total_flops()
    assert count.within("encoder").n_flops < count.n_flops


def test_embedding_vectors_is_counted():
    model = encoder(vocab_size=None, d_input=5)
    counter, _ = flops_by_torch(model, torch.randn(2, N, 5))
    assert count_operations(model, N, batch=2).n_flops == counter.get_total_flops()


def test_modules_can_be_counted_by_themselves():
    layer = MultiHeadAttention(12, 3, bias=False, attention="linear")
    x = torch.randn(2, N, 12)
    counter, _ = flops_by_torch(layer, x, x, x)
    count = count_operations(layer, N, batch=2)
    assert count.n_flops == counter.get_total_flops()
    assert count.n_elementwise == count.attention().n_elementwise  # no biases to add


def test_embeddings_cost_nothing_but_the_sum_of_positions():
    sizes = [(9, N), (5000, N), (9, 3 * N)]
    counts = {count_operations(encoder("full", *mine), N) for mine in sizes}
    assert len(counts) == 1
    without = count_operations(encoder("full", max_length=None), N)
    (with_positions,) = counts
    assert with_positions.n_flops == without.n_flops
    assert with_positions.n_elementwise - without.n_elementwise == 12 * N


def test_the_window_and_the_dense_backend_show():
    plain, looped, dense = (
        count_operations(build_attention("sbm", d_head=4, n_heads=2, n_clusters=3, **mine), 50, density=0.1)
        for mine in ({}, {"self_loops": True}, {"backend": "dense"})
    )
    assert looped.n_elementwise - plain.n_elementwise == round(0.1 * 2 * 50**2)
    assert dense.n_flops - plain.n_flops == round(0.9 * 4 * 2 * 50**2 * 4)


@pytest.mark.parametrize(("mask_density", "window"), [(0.05, None), (0.0, 7), (0.4, 7), (0.05, 500)])
def test_a_random_mask_knows_its_density_and_its_window(mask_density, window):
    layer = build_attention("random_mask", d_head=4, n_heads=2, mask_density=mask_density, window=window)
    x = torch.randn(1, 2, 60, 4)
    expected = layer(x, x, x).expected_density.double().mean().item()
    count = count_operations(layer, 60)
    rows = {row.part: row for row in count.rows}
    assert rows["scores per edge"].n_flops == 2 * 4 * round(2 * 60**2 * expected)
    plain = count_operations(build_attention("random_mask", d_head=4, n_heads=2), 60, density=expected)
    assert count.n_flops == plain.n_flops
    union = 0 if window is None else round(2 * 60**2 * expected)
    assert count.n_elementwise - plain.n_elementwise == union


def test_every_registered_attention_is_counted():
    assert set(REGISTERED.values()) == set(ATTENTIONS)


class Strange(nn.Module):
    """An attention that nobody has counted."""


class Stranger(SBMAttention):
    """One that changes what it inherits."""


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("model", "arguments", "words"),
    [
        (lambda: Strange(), {}, "one of SequenceClassifier"),
        (lambda: Stranger(4, 2), {"density": 0.1}, "got Stranger"),
        (lambda: encoder("sbm"), {}, "the density of the masks"),
        (lambda: encoder("sbm"), {"density": 1.5}, r"density in \[0, 1\]"),
        (lambda: encoder("sbm"), {"density": float("nan")}, r"density in \[0, 1\]"),
        (lambda: encoder("sbm"), {"density": [0.1]}, "2 densities"),
        (lambda: encoder(), {"batch": 0}, "batch ≥ 1"),
    ],
)
def test_what_cannot_be_counted_is_refused(model, arguments, words):
    with pytest.raises(SbmtError, match=words):
        count_operations(model(), N, **arguments)


@pytest.mark.bad_input
def test_an_unknown_attention_inside_a_model_is_not_free():
    model = encoder()
    model.blocks[1].attention.attention = Strange()
    with pytest.raises(SbmtError, match=r"is known at blocks\.1\.attention\.attention, got Strange: not counted"):
        count_operations(model, N)


@pytest.mark.bad_input
def test_a_sampler_of_the_users_is_not_counted_as_one_of_the_librarys(monkeypatch):
    monkeypatch.setitem(SAMPLERS, "mine", SAMPLERS["bernoulli"])
    layer = build_attention("sbm", d_head=4, n_heads=2, sampler="mine")
    with pytest.raises(SbmtError, match="sampler whose cost is known among 'exact', 'fastrg', 'bernoulli', got 'mine'"):
        count_operations(layer, N, density=0.1)

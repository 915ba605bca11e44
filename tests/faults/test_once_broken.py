"""What the properties of this folder have found: once each, so that it stays mended."""

import math

import pytest
import torch

from sbmt import EdgeList, available_backends, build_attention, edge_attention
from sbmt.block_model.model import LARGEST_RATE, BlockModel
from sbmt.experiments.studies import study
from sbmt.experiments.training import RepeatedTokensConfig
from tests.faults.calls import CALLS
from tests.faults.cases import normal, seeded
from tests.faults.mistakes import is_refused

MASK = torch.tensor([[True, True, False, False]])
BACKENDS = pytest.mark.parametrize("backend", available_backends())


def with_junk(junk, seed):
    return normal((1, 2, 4, 3), seed).masked_fill(~MASK[:, None, :, None], junk).requires_grad_()


@pytest.mark.parametrize("junk", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("name", ["full", "sbm"])
def test_what_stands_at_padding_reaches_neither_values_nor_gradients(name, junk):
    found = []
    for x in (with_junk(junk, 0), with_junk(0.0, 0)):
        torch.manual_seed(0)
        layer = build_attention(name, d_head=3, n_heads=2)
        out = layer(x, x, x, query_mask=MASK, key_mask=MASK, generator=seeded(0))
        loss = out.values.square().sum() + out.expected_density.sum()
        found.append([out.values, *torch.autograd.grad(loss, [x, *layer.parameters()])])
    for mine, theirs in zip(*found, strict=True):
        assert mine.isfinite().all()
        torch.testing.assert_close(mine, theirs)


@BACKENDS
@pytest.mark.parametrize("junk", [math.nan, math.inf])
def test_no_backend_reads_padding(backend, junk):
    edges = EdgeList.from_dense((MASK[:, None, :, None] & MASK[:, None, None]).expand(1, 2, 4, 4), MASK, MASK)
    tensors = [with_junk(junk, seed) for seed in range(3)]
    out = edge_attention(*tensors, edges, backend=backend)
    assert (out[:, :, 2:] == 0).all() and all(
        gradient.isfinite().all() for gradient in (out, *torch.autograd.grad(out.square().sum(), tensors))
    )


@BACKENDS
def test_scores_that_overflow_leave_rows_without_edges_alone(backend):
    large = torch.full((1, 1, 2, 1), 1e30, requires_grad=True)
    value = normal((1, 1, 2, 1), 0)
    edges = EdgeList.from_dense(torch.tensor([[[[True, False], [False, False]]]]))
    out = edge_attention(large, large.detach(), value, edges, backend=backend)
    assert out[0, 0, 1, 0] == 0
    (gradient,) = torch.autograd.grad(out[0, 0, 1, 0], large)
    assert gradient[0, 0, 1, 0] == 0


@BACKENDS
def test_backends_take_inputs_of_different_types(backend):
    query, key, value = (normal((1, 2, 4, 3), seed) for seed in range(3))
    edges = EdgeList.from_dense(torch.ones(1, 2, 4, 4, dtype=torch.bool))
    expected = edge_attention(query, key, value, edges, backend=backend)
    mixed = edge_attention(query.double(), key, value, edges, backend=backend)
    assert mixed.dtype == value.dtype
    torch.testing.assert_close(mixed, expected)


@pytest.mark.parametrize("name, settings", [("full", {}), ("linformer", {"n_positions": 4, "n_projected": 2})])
def test_attentions_take_inputs_of_different_types(name, settings):
    torch.manual_seed(0)
    layer = build_attention(name, d_head=3, n_heads=2, **settings)
    query, key, value = (normal((1, 2, 4, 3), seed) for seed in range(3))
    expected = layer(query, key, value).values
    for tensors in ((query.double(), key, value), (query, key.double(), value), (query, key, value.bfloat16())):
        found = layer(*tensors).values
        assert found.dtype == tensors[2].dtype
        torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.02)


def test_the_largest_rates_leave_probabilities_and_gradients_finite():
    shape = 1, 1, 9, 9
    query, key = (torch.rand(shape, generator=seeded(seed), requires_grad=True) for seed in (0, 1))
    block = torch.full((1, 9, 9), LARGEST_RATE, requires_grad=True)
    model = BlockModel(query, block, key, link="poisson")
    p = model.expected_mask()
    assert ((p >= 0) & (p <= 1)).all()
    assert all(g.isfinite().all() for g in torch.autograd.grad(p.sum(), [query, block, key]))


MISTAKES = [
    *(("EdgeList", part, what) for part in ("row_ptr", "keys", "multiplicity") for what in ("[]", "1j")),
    *((call, "shape", what) for call in ("EdgeList", "from_cells", "self_loops") for what in ("None", "'sbm'", "[]")),
    *(("from_cells", "cells", what) for what in ("None", "of float64", "with one more", "negative")),
    *(("to_scipy", part, what) for part in ("example", "head") for what in ("None", "1e-300", "tensor")),
    *(("ExtraKeys", "per_query", what) for what in ("None", "'sbm'", "NumPy array")),
    *((call, "edges", "None") for call in ("gate", "edge_probability", "sampled_density")),
    *(("straight_through_gate", "probability", what) for what in ("None", "of bool")),
    *(("sampled_density", "gate", what) for what in ("2.5", "cut at the end")),
    *(("density_penalty", "outputs", what) for what in ("True", "'sbm'", "[1, 'x']", "tensor")),
    *((call, name, "[]") for call, name in (("BlockModel", "link"), ("sample_edges", "sampler"), ("sbm", "name"),
       ("edge_attention", "gate_rule"), ("edge_attention", "backend"), ("density_penalty", "kind"), ("sbm", "preset"))),
    *(("SBMAttention", name, what) for name in ("d_head", "n_heads", "n_clusters") for what in ("True", str(1 << 63))),
    *(("Encoder", name, str(1 << 63)) for name in ("vocab_size", "max_length", "d_model", "d_hidden", "n_layers")),
    *(("Encoder", "embedding_std", what) for what in ("None", "nan", "-1", "'sbm'")),
    *((call, "dropout", what) for call in ("Encoder", "SentenceClassifier") for what in ("None", "tensor")),
    ("random_mask", "mask_density", "tensor"),
    *((call, "encoder", "a module") for call in CALLS if "encoder" in CALLS[call][1]),
    *(("DualEncoder()", name, what) for name in ("tokens", "mask") for what in ("'sbm'", "flat", "NumPy array")),
    *(("MultiHeadAttention()", name, "of float64") for name in ("query", "key", "value")),
    ("measure_estimators", "loss", "None"),
    *((call, name, "on the meta device") for call, name in (("BlockModel", "block_matrix"), ("BlockModel", "key_mask"),
       ("EdgeList", "row_ptr"), ("from_dense", "key_mask"), ("edge_attention", "key"), ("edge_attention", "gate"),
       ("Encoder()", "tokens"), ("Encoder()", "mask"), ("MaskedLM()", "selected"), ("MultiHeadAttention()", "query"),
       ("full()", "value"), ("linear()", "key_mask"), ("sbm()", "query_mask"), ("measure_estimators", "key"))),
]  # fmt: skip


@pytest.mark.bad_input
@pytest.mark.parametrize("name, argument, what", MISTAKES)
def test_mistakes_that_met_another_error(name, argument, what):
    assert is_refused(name, {argument: what})


def test_as_many_processes_as_runs_at_most(tmp_path, monkeypatch):
    asked = []

    class Stop(Exception):
        pass

    def pool(n_workers, *_, **__):
        asked.append(n_workers)
        raise Stop

    monkeypatch.setattr(study, "ProcessPoolExecutor", pool)
    config = RepeatedTokensConfig(length=4, batch_size=2, steps=1, test_sequences=2)
    config = study.Study("two", "two", config, (study.Trial("full", "full", {"attention": "full"}),), n_seeds=2)
    with pytest.raises(Stop):
        study.run_study(config, tmp_path, n_workers=1 << 40)
    assert asked == [2]

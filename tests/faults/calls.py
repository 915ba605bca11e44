"""Public calls with arguments that are right."""

from dataclasses import fields

import torch

import sbmt
from sbmt import BlockModel, EdgeList
from sbmt.counter_rng import examples_from
from sbmt.experiments.studies.gradient_estimators import measure_estimators
from sbmt.graph.patterns import self_loops, sliding_window
from sbmt.layers.registry import ATTENTIONS
from sbmt.testing import check_attention
from tests.faults.cases import normal, seeded

SHAPE = (2, 2, 5, 5)  # batch heads n n
X, MASK = normal((2, 2, 5, 4), 0), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
DENSE = torch.rand(SHAPE, generator=seeded(0)) < 0.5
EDGES = EdgeList.from_dense(DENSE)
MODEL = BlockModel(X.sigmoid(), torch.full((2, 4, 4), 1 / 16), X.sigmoid())
GATE = torch.ones(EDGES.n_edges)
MASKS = dict(query_mask=MASK, key_mask=MASK)
TOKENS = dict(query=X, key=X, value=X)
SIZES = dict(d_head=4, n_heads=2)
NETWORK = dict(d_model=8, d_hidden=6, n_heads=2, n_layers=1)
VECTORS, IDS = normal((2, 5, 8), 0), torch.arange(10).view(2, 5)
DRAW = dict(sampler="exact", exploration=0.1, generator=seeded(0), first_example=0)
ATTEND = dict(gate_rule="score", dropout=0.1, backend="auto")
SBM = dict(n_clusters=3, sampler="exact", exploration=0.01, link="bilinear", membership="sigmoid")
SBM |= ATTEND | dict(self_loops=False, window=None)
OWN = dict(
    linformer=dict(n_positions=6, n_projected=3),
    sbm_static=dict(n_positions=6, n_clusters=3),
    sbm=dict(n_clusters=3, preset=None),
    performer=dict(n_features=3),
    reformer=dict(n_chunk=2, n_hashes=2),
    routing=dict(n_centroids=2, backend="auto"),
    nystromformer=dict(n_landmarks=2, n_iterations=2),
    full=dict(is_log_scaled=False),
    random_mask=dict(mask_density=0.5, window=None, backend="auto"),
)
"""Settings of attentions besides sizes and dropout."""
ENCODER = sbmt.Encoder(11, 6, **NETWORK, n_clusters=3)
READ = dict(tokens=IDS, mask=MASK, generator=seeded(0))
PAIRS = READ | dict(tokens=IDS[:, None].repeat(1, 2, 1), mask=MASK[:, None].repeat(1, 2, 1))
HEAD = dict(encoder=ENCODER, n_labels=2)
ESTIMATED = dict(query=X[0, 0, :2], key=X[0, 1, :3], value=X[0, 1, :3], probability=torch.full((2, 3), 0.5))


def _number_examples(first_example):
    with examples_from(first_example):
        pass


CALLS = {
    "BlockModel": (
        BlockModel,
        dict(query_membership=X.sigmoid(), block_matrix=torch.full((2, 4, 4), 0.1), key_membership=X.sigmoid())
        | MASKS
        | dict(link="bilinear"),
    ),
    "expected_mask": (MODEL.expected_mask, dict(exploration=0.1)),
    "expected_density": (MODEL.expected_density, dict(exploration=0.1)),
    "edge_probability": (MODEL.edge_probability, dict(edges=EDGES, exploration=0.1, clamp=False)),
    "gate": (MODEL.gate, dict(edges=EDGES)),
    "EdgeList": (EdgeList, {f.name: getattr(EDGES, f.name) for f in fields(EdgeList)} | dict(check=True)),
    "from_dense": (EdgeList.from_dense, dict(mask=DENSE & MASK[:, None, :, None] & MASK[:, None, None]) | MASKS),
    "from_cells": (EdgeList.from_cells, dict(cells=EDGES.cells(), shape=SHAPE, multiplicity=GATE.long())),
    "union": (EDGES.union, dict(other=EDGES)),
    "to_scipy": (EDGES.to_scipy, dict(example=0, head=0)),
    "sliding_window": (sliding_window, dict(shape=SHAPE, window=2) | MASKS),
    "self_loops": (self_loops, dict(shape=SHAPE) | MASKS),
    "sample_edges": (sbmt.sample_edges, dict(block_model=MODEL) | DRAW),
    "sbm_attention": (sbmt.sbm_attention, TOKENS | dict(block_model=MODEL, window=2) | ATTEND | DRAW),
    "edge_attention": (
        sbmt.edge_attention,
        TOKENS | ATTEND | dict(edges=EDGES, gate=GATE, generator=seeded(0), bias=GATE, sink=torch.zeros(2)),
    ),
    "straight_through_gate": (sbmt.straight_through_gate, dict(probability=GATE)),
    "sampled_density": (sbmt.sampled_density, dict(edges=EDGES, gate=GATE)),
    "density_penalty": (
        sbmt.density_penalty,
        dict(outputs=[sbmt.build_attention("full", **SIZES)(X, X, X)], kind="sampled"),
    ),
    "ExtraKeys": (sbmt.ExtraKeys, dict(per_query=2)),
    "examples_from": (_number_examples, dict(first_example=0)),
    "EdgeAttention": (sbmt.EdgeAttention, dict(gate_rule="score")),
    "SBMAttention": (sbmt.SBMAttention, SIZES | SBM),
    "MultiHeadAttention": (
        sbmt.MultiHeadAttention,
        dict(embed_dim=8, num_heads=2, dropout=0.0, bias=True, attention="sbm", has_tied_start=False),
    ),
    "MultiHeadAttention()": (
        sbmt.MultiHeadAttention(8, 2, n_clusters=3),
        dict(query=VECTORS, key=VECTORS, value=VECTORS, key_padding_mask=~MASK, query_padding_mask=~MASK)
        | dict(attn_mask=None, generator=seeded(0), need_weights=True, return_edges=True),
    ),
    "Encoder": (
        sbmt.Encoder,
        dict(vocab_size=11, max_length=6, dropout=0.0, attention_dropout=0.0, embedding_std=0.02, attention="sbm")
        | NETWORK
        | dict(n_clusters=3),
    ),
    "Encoder()": (ENCODER, READ | dict(return_edges=True)),
    "TokenTagger": (sbmt.TokenTagger, HEAD),
    "SequenceClassifier": (sbmt.SequenceClassifier, HEAD | dict(d_hidden=3, is_padded_mean=False)),
    "SequenceClassifier()": (sbmt.SequenceClassifier(ENCODER, 2, 3), READ),
    "SentenceClassifier": (sbmt.SentenceClassifier, HEAD | dict(pooling="mean", dropout=0.0)),
    "SentenceClassifier()": (sbmt.SentenceClassifier(ENCODER, 2, pooling="first"), READ),
    "DualEncoder": (
        sbmt.DualEncoder,
        HEAD | dict(d_hidden=3, pair_features="products", is_padded_mean=False),
    ),
    "DualEncoder()": (sbmt.DualEncoder(ENCODER, 2, 3), PAIRS),
    "MaskedLM": (sbmt.MaskedLM, dict(encoder=ENCODER)),
    "MaskedLM()": (sbmt.MaskedLM(ENCODER), READ | dict(selected=MASK)),
    "measure_estimators": (
        measure_estimators,
        ESTIMATED | dict(loss=lambda values: values.square().sum((1, 2)), exploration=0.0),
    ),
    "check_attention": (check_attention, dict(module=sbmt.build_attention("full", **SIZES), n_heads=2, d_head=4)),
}
for _name in ATTENTIONS:
    CALLS[_name] = sbmt.build_attention, dict(name=_name, dropout=0.1) | SIZES | OWN.get(_name, {})
    _module = sbmt.build_attention(_name, **SIZES, **OWN.get(_name, {}))
    CALLS[f"{_name}()"] = _module, TOKENS | MASKS | dict(generator=seeded(0), return_edges=True)
"""What is called with which valid arguments."""

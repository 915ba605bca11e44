"""Public calls with arguments that are right."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch

import sbmt
from sbmt import BlockModel, EdgeList
from sbmt.counter_rng import examples_from
from sbmt.experiments.studies.gradient_estimators import measure_estimators
from sbmt.graph.patterns import self_loops, sliding_window
from sbmt.layers.registry import ATTENTIONS
from sbmt.testing import check_attention
from tests.faults.ingredients import normal, seeded

SHAPE = (2, 2, 5, 4)  # batch heads n d
X, MASK = normal(SHAPE, 0), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
DENSE = torch.rand(2, 2, 5, 5, generator=seeded(0)) < 0.5
EDGES = EdgeList.from_dense(DENSE)
MODEL = BlockModel(X.sigmoid(), torch.full((2, 4, 4), 1 / 16), X.sigmoid())
MASKS = {"query_mask": MASK, "key_mask": MASK}
TOKENS = {"query": X, "key": X, "value": X}
GATE = torch.ones(EDGES.n_edges)
SIZES = {"d_head": 4, "n_heads": 2}
NETWORK = {"d_model": 8, "d_hidden": 6, "n_heads": 2, "n_layers": 1}
VECTORS = normal((2, 5, 8), 0)
IDS = torch.arange(10).view(2, 5)
OWN = {
    "linformer": {"n_positions": 6, "n_projected": 3},
    "sbm_static": {"n_positions": 6, "n_clusters": 3},
    "sbm": {"n_clusters": 3, "preset": None},
    "performer": {"n_features": 3},
    "reformer": {"n_chunk": 2, "n_hashes": 2},
    "nystromformer": {"n_landmarks": 2, "n_iterations": 2, "n_conv": None},
    "random_mask": {"mask_density": 0.5, "window": None, "backend": "auto"},
}
SBM = dict(sampler="exact", gate_rule="score", exploration=0.01, link="bilinear", membership="sigmoid", dropout=0.0)
SBM |= dict(is_diagonal=False, self_loops=False, window=None, backend="auto")
DRAW = {"sampler": "exact", "exploration": 0.1, "generator": seeded(0), "first_example": 0}


def _encoder():
    return sbmt.Encoder(11, 6, **NETWORK, n_clusters=3)


def _with(thing, call):
    """A call of a method on something that is made anew."""
    return lambda **arguments: call(thing(), **arguments)


def _number_examples(first_example):
    with examples_from(first_example):
        pass


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "BlockModel": (
        BlockModel,
        {"query_membership": X.sigmoid(), "block_matrix": torch.full((2, 4, 4), 0.1), "key_membership": X.sigmoid()}
        | MASKS
        | {"link": "bilinear"},
    ),
    "expected_mask": (MODEL.expected_mask, {"exploration": 0.1}),
    "expected_density": (MODEL.expected_density, {"exploration": 0.1}),
    "edge_probability": (MODEL.edge_probability, {"edges": EDGES, "exploration": 0.1, "clamp": False}),
    "gate": (MODEL.gate, {"edges": EDGES}),
    "EdgeList": (EdgeList, {f.name: getattr(EDGES, f.name) for f in fields(EdgeList)} | {"check": True}),
    "from_dense": (EdgeList.from_dense, {"mask": DENSE & MASK[:, None, :, None] & MASK[:, None, None]} | MASKS),
    "from_cells": (EdgeList.from_cells, {"cells": EDGES.cells(), "shape": EDGES.shape, "multiplicity": GATE.long()}),
    "union": (EDGES.union, {"other": EDGES}),
    "to_scipy": (EDGES.to_scipy, {"example": 0, "head": 0}),
    "sliding_window": (sliding_window, {"shape": (2, 2, 5, 5), "window": 2} | MASKS),
    "self_loops": (self_loops, {"shape": (2, 2, 5, 5)} | MASKS),
    "sample_edges": (sbmt.sample_edges, {"block_model": MODEL} | DRAW),
    "sbm_attention": (
        sbmt.sbm_attention,
        TOKENS | {"block_model": MODEL, "gate_rule": "score", "window": 2, "dropout": 0.1, "backend": "auto"} | DRAW,
    ),
    "edge_attention": (
        sbmt.edge_attention,
        TOKENS
        | {
            "edges": EDGES,
            "gate": GATE,
            "gate_rule": "score",
            "backend": "auto",
            "dropout": 0.1,
            "generator": seeded(0),
        },
    ),
    "straight_through_gate": (sbmt.straight_through_gate, {"probability": GATE}),
    "sampled_density": (sbmt.sampled_density, {"edges": EDGES, "gate": GATE}),
    "density_penalty": (
        sbmt.density_penalty,
        {"outputs": [sbmt.build_attention("full", **SIZES)(X, X, X)], "kind": "sampled"},
    ),
    "ExtraKeys": (sbmt.ExtraKeys, {"per_query": 2}),
    "examples_from": (_number_examples, {"first_example": 0}),
    "EdgeAttention": (sbmt.EdgeAttention, {"gate_rule": "score"}),
    "SBMAttention": (sbmt.SBMAttention, SIZES | {"n_clusters": 3} | SBM),
    "MultiHeadAttention": (
        sbmt.MultiHeadAttention,
        {"embed_dim": 8, "num_heads": 2, "dropout": 0.0, "bias": True, "attention": "sbm", "has_tied_start": False},
    ),
    "MultiHeadAttention()": (
        _with(lambda: sbmt.MultiHeadAttention(8, 2, n_clusters=3), lambda layer, **arguments: layer(**arguments)),
        {"query": VECTORS, "key": VECTORS, "value": VECTORS, "key_padding_mask": ~MASK, "attn_mask": None}
        | {"query_padding_mask": ~MASK, "generator": seeded(0), "need_weights": True, "return_edges": True},
    ),
    "Encoder": (
        sbmt.Encoder,
        {"vocab_size": 11, "max_length": 6, **NETWORK, "dropout": 0.0, "attention_dropout": 0.0}
        | {"embedding_std": 0.02, "attention": "sbm", "n_clusters": 3},
    ),
    "Encoder()": (
        _with(_encoder, lambda encoder, **arguments: encoder(**arguments)),
        {"tokens": IDS, "mask": MASK, "generator": seeded(0), "return_edges": True},
    ),
    "TokenTagger": (sbmt.TokenTagger, {"encoder": _encoder(), "n_labels": 2}),
    "SequenceClassifier": (
        sbmt.SequenceClassifier,
        {"encoder": _encoder(), "n_labels": 2, "d_hidden": 3, "is_padded_mean": False},
    ),
    "SentenceClassifier": (
        sbmt.SentenceClassifier,
        {"encoder": _encoder(), "n_labels": 2, "pooling": "mean", "dropout": 0.0},
    ),
    "DualEncoder": (
        sbmt.DualEncoder,
        {"encoder": _encoder(), "n_labels": 2, "d_hidden": 3, "pair_features": "products", "is_padded_mean": False},
    ),
    "DualEncoder()": (
        _with(lambda: sbmt.DualEncoder(_encoder(), 2, 3), lambda model, **arguments: model(**arguments)),
        {"tokens": IDS[:, None].repeat(1, 2, 1), "mask": MASK[:, None].repeat(1, 2, 1), "generator": seeded(0)},
    ),
    "SequenceClassifier()": (
        _with(lambda: sbmt.SequenceClassifier(_encoder(), 2, 3), lambda model, **arguments: model(**arguments)),
        {"tokens": IDS, "mask": MASK, "generator": seeded(0)},
    ),
    "SentenceClassifier()": (
        _with(
            lambda: sbmt.SentenceClassifier(_encoder(), 2, pooling="first"),
            lambda model, **arguments: model(**arguments),
        ),
        {"tokens": IDS, "mask": MASK, "generator": seeded(0)},
    ),
    "MaskedLM": (sbmt.MaskedLM, {"encoder": _encoder()}),
    "MaskedLM()": (
        _with(lambda: sbmt.MaskedLM(_encoder()), lambda model, **arguments: model(**arguments)),
        {"tokens": IDS, "mask": MASK, "selected": MASK, "generator": seeded(0)},
    ),
    "measure_estimators": (
        measure_estimators,
        {"query": X[0, 0, :2], "key": X[0, 1, :3], "value": X[0, 1, :3], "probability": torch.full((2, 3), 0.5)}
        | {"loss": lambda values: values.square().sum((1, 2)), "exploration": 0.0},
    ),
    "check_attention": (check_attention, {"module": sbmt.build_attention("full", **SIZES), "n_heads": 2, "d_head": 4}),
    **{
        name: (sbmt.build_attention, {"name": name} | SIZES | OWN.get(name, {}) | {"dropout": 0.1})
        for name in ATTENTIONS
    },
    **{
        f"{name}()": (
            _with(
                lambda name=name: sbmt.build_attention(name, **SIZES, **OWN.get(name, {})),
                lambda module, **arguments: module(**arguments),
            ),
            TOKENS | MASKS | {"generator": seeded(0), "return_edges": True},
        )
        for name in ATTENTIONS
    },
}
"""What is called with which valid arguments."""

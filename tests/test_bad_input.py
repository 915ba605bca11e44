"""Mistakes raise one kind of error, which says what was expected; there are no silent defaults."""

import math
from functools import partial

import numpy as np
import pytest
import torch

from sbmt import EdgeAttention
from sbmt.attention import edge_attention
from sbmt.block_model.model import BlockModel
from sbmt.errors import SbmtError
from sbmt.graph.edges import EdgeList
from sbmt.layers import MultiHeadAttention, SBMAttention
from sbmt.layers.functional import sbm_attention
from sbmt.models import Encoder
from tests.layers.inputs import tokens

pytestmark = pytest.mark.bad_input
NAN = math.nan
SIZES = dict(d_model=8, d_hidden=16, n_heads=2, n_layers=1)
ENCODER = dict(vocab_size=11, max_length=6) | SIZES


def refused(words):
    return pytest.raises(SbmtError, match=words)


X = tokens(2, 2, 5, 4)
EDGES = EdgeList.from_dense(torch.ones(2, 2, 5, 5, dtype=torch.bool))
TENSORS = [  # replacements for query, key and value, and the words of the error
    (dict(query=X.long()), "query to be a floating-point tensor"),
    (dict(key=X.bool()), "key to be a floating-point tensor"),
    (dict(value=X.tolist()), "value to be a floating-point tensor.*list"),
    (dict(query=X[0]), r"query of shape \(batch, heads, n, d\)"),
    (dict(query=X[:, :, :0]), r"query of shape .*only batch may be 0"),
    (dict(key=X[:, :, :0], value=X[:, :, :0]), "key of shape .*only batch may be 0"),
    (dict(query=X[:1]), "equal batch sizes"),
    (dict(key=X[:, :1], value=X[:, :1]), "head count"),
    (dict(query=X[..., :3]), "queries and keys of equal width"),
    (dict(value=X[:, :, :4]), "one value per key"),
]


@pytest.mark.parametrize("replaced, words", TENSORS)
def test_tensors(replaced, words):
    """One attention mechanism stands for all, since all check inputs by one function; see the conformance kit."""
    with refused(words):
        edge_attention(**dict(query=X, key=X, value=X) | replaced, edges=EDGES)


GATE = torch.ones(EDGES.n_edges)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(gate_rule="hard"), "gate_rule to be one of .*'score'.*'weight'.*'hard'"),
        (dict(backend="cuda"), "backend to be one of .*'auto'.*'dense'.*'pyg'.*'cuda'"),
        (dict(gate=GATE[1:]), rf"gate of shape \({EDGES.n_edges},\)"),
        (dict(gate=[1.0] * EDGES.n_edges), "gate of shape .*list"),
        (dict(gate=GATE - 1), "positive gate"),
        (dict(gate=GATE.index_fill(0, torch.tensor([3]), NAN)), "positive gate"),
        (dict(bias=GATE[1:]), rf"floating-point bias of shape \({EDGES.n_edges},\).*one number per edge"),
        (dict(bias=GATE.long()), "floating-point bias"),
        (dict(bias=GATE.index_fill(0, torch.tensor([3]), NAN)), "finite bias"),
        (dict(sink=GATE), rf"floating-point sink of shape \(2,\), got torch.float32 \({EDGES.n_edges},\).*per head"),
        (dict(sink=[0.0, 1.0]), "sink of shape .*list"),
        (dict(sink=torch.tensor([0.0, math.inf])), "sinks that are finite or −∞"),
        (dict(dropout=1.0), "dropout"),
        (dict(dropout=NAN), "dropout"),
        (dict(edges=EDGES.to_dense()), "EdgeList.*Tensor.*from_dense"),
        (dict(edges=EdgeList.from_dense(torch.ones(2, 2, 5, 4, dtype=torch.bool))), r"edges of shape \(2, 2, 5, 5\)"),
        (dict(generator=0, dropout=0.5), "torch.Generator"),
    ],
)
def test_edge_attention(arguments, words):
    with refused(words):
        edge_attention(**dict(query=X, key=X, value=X, edges=EDGES) | arguments)


@pytest.mark.parametrize("backend", ["dense", "cpu"])
@pytest.mark.parametrize("sink", [torch.zeros(1), torch.zeros(3), torch.tensor([0, 1]), 1.0])
def test_sbm_attention_needs_one_sink_per_head(sink, backend):
    ones = torch.ones(2, 2, 5, 1)
    with refused("sink"):
        sbm_attention(X, X, X, BlockModel(ones, torch.ones(2, 1, 1), ones), sink=sink, backend=backend)


def test_sizes_may_be_integers_of_numpy():
    layer = SBMAttention(np.int64(8), np.int32(2), np.int64(4), window=np.int64(2), exploration=np.float32(0.1))
    x = torch.randn(1, 2, 5, 8)
    assert layer(x, x, x).values.shape == x.shape


MULTI_HEAD = partial(MultiHeadAttention, 8, 2)


@pytest.mark.parametrize("attention, arguments, words", [
    (SBMAttention, dict(d_head=0), "d_head"),
    (SBMAttention, dict(sampler="gumbel"), "sampler to be one of .*'exact'.*'gumbel'"),
    (SBMAttention, dict(gate_rule="hard"), "gate_rule to be one of .*'score'.*'hard'"),
    (SBMAttention, dict(link="logit"), "link to be one of .*'bilinear'.*'poisson'.*'logit'"),
    (SBMAttention, dict(exploration=1.0), "exploration"),
    (SBMAttention, dict(window=-1), "window"),
    (SBMAttention, dict(dropout=1.0), "dropout"),
    (SBMAttention, dict(learning="guess"), "learning to be one of 'straight_through', 'likelihood', got 'guess'"),
    (SBMAttention, dict(learning="likelihood"), "edges_per_query > 0 for learning='likelihood', got None"),
    (SBMAttention, dict(learning="likelihood", edges_per_query=NAN), "edges_per_query > 0"),
    (SBMAttention, dict(reweight=0.0), r"reweight to be True, False, or a number in \(0, 1\], got 0.0"),
    (SBMAttention, dict(reweight=20.0), "reweight to be True"),
    (SBMAttention, dict(reweight="yes"), "reweight to be True"),
    (SBMAttention, dict(edges_per_query=4.0), "edges_per_query only with learning='likelihood'"),
    (SBMAttention, dict(membership="crossed"), "link='poisson' for crossed memberships, got link='bilinear'"),
    (SBMAttention, dict(membership="hardmax", link="poisson"), "membership to be one of 'sigmoid', 'crossed'"),
    (SBMAttention, dict(n_groups=0), "n_groups"),
    (SBMAttention, dict(n_groups=2), "n_groups > 1 only with membership='crossed', got n_groups=2"),
    (SBMAttention, dict(n_groups=16385, link="poisson", membership="crossed"), "at most 32768 parts.*got 32770"),
    (MultiHeadAttention, dict(embed_dim=10, num_heads=3), "embed_dim to be a multiple of num_heads = 3"),
    (MultiHeadAttention, dict(embed_dim=8, num_heads=2, attention="flash"), "attention to be one of .*'sbm'.*'flash'"),
    (MULTI_HEAD, dict(batch_first=False), "batch_first=True"),
    (MULTI_HEAD, dict(add_bias_kv=True), "SBMAttention takes.*got add_bias_kv"),
    (MULTI_HEAD, dict(dtype=torch.int64), "dtype to be a floating-point type"),
    (MULTI_HEAD, dict(clusters=4), "SBMAttention takes .*n_clusters.*, got clusters"),
    (MULTI_HEAD, dict(transform_heads=3), "a callable transform_heads"),
    (Encoder, ENCODER | dict(positions="rotary", d_model=6), "even head width"),
    (Encoder, ENCODER | dict(positions="sinusoidal"), "positions to be one of 'learned', 'rotary', 'none'"),
    (Encoder, ENCODER | dict(positions="learned", max_length=None), "learned positions require max_length"),
    (Encoder, ENCODER | dict(vocab_size=0), "vocab_size"),
    (Encoder, ENCODER | dict(dropout=1.0), "dropout"),
    (Encoder, ENCODER | dict(attention_dropout=NAN), "dropout"),
    (Encoder, ENCODER | dict(widow=4), "SBMAttention.*widow"),
])  # fmt: skip
def test_constructors(attention, arguments, words):
    shape = dict(d_head=4, n_heads=2) if attention is SBMAttention else {}
    with refused(words):
        attention(**shape | arguments)


@pytest.mark.parametrize(
    "settings, query, key, words",
    [
        ({}, tokens(2, 3, 5, 4), tokens(2, 3, 5, 4), "n_heads = 2"),
        ({}, tokens(2, 2, 5, 6), tokens(2, 2, 5, 6), "d_head = 4"),
        (dict(window=2), X, X[:, :, :3], "as many queries as keys"),
        (dict(self_loops=True), X, X[:, :, :3], "as many queries as keys"),
    ],
)
def test_a_layer_for_other_shapes(settings, query, key, words):
    with refused(words):
        SBMAttention(4, 2, **settings)(query, key, key)


VECTORS = torch.randn(2, 5, 8)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(attn_mask=torch.ones(5, 5).bool()), "no attn_mask"),
        (dict(key_padding_mask=torch.ones(2, 5)), "key_padding_mask to contain only 0 and -inf"),
        (dict(key_padding_mask=torch.zeros(2, 5).int()), r"key_padding_mask to be a bool tensor \(True = ignore\)"),
        (dict(query_padding_mask=[[False] * 5] * 2), "query_padding_mask to be a bool tensor"),
        (dict(key_padding_mask=torch.zeros(2, 6).bool()), "mask of shape"),
        (dict(query=VECTORS[0]), r"query of shape \(batch, n, 8\)"),
        (dict(key=VECTORS[..., :6]), "key of shape"),
        (dict(value=VECTORS.long()), "value to be a floating-point tensor"),
        (dict(value=VECTORS[:, :4]), "one value per key"),
        (dict(query=VECTORS[:, :0]), "only batch may be 0"),
        (dict(query=VECTORS[:1]), "equal batch sizes"),
    ],
)
def test_multi_head(arguments, words):
    layer = MultiHeadAttention(8, 2)
    with refused(words):
        layer(**dict(query=VECTORS, key=VECTORS, value=VECTORS) | arguments)
    with refused("transform_heads to return heads"):
        MultiHeadAttention(8, 2, transform_heads=lambda query, key: (query, key[:, :, 1:]))(*[VECTORS] * 3)


NODES, ARCS = torch.randn(3, 4), torch.tensor([[0, 1], [2, 2]])


@pytest.mark.parametrize(
    "arguments, words",
    [
        (dict(query=NODES.long()), "query to be a floating-point tensor, got torch.int64"),
        (dict(key=NODES[None]), r"\(nodes, width\), got .*key \(1, 3, 4\)"),
        (dict(value=NODES[:2]), "one value per key"),
        (dict(query=NODES[:, :2]), "queries and keys of equal width"),
        (dict(edge_index=ARCS.int()), "edge_index to be an int64 tensor"),
        (dict(edge_index=torch.zeros(3, 2).long()), "edge_index to be an int64 tensor"),
        (dict(edge_index=ARCS + 1), r"targets in \[0, 3\), got numbers from 3 to 3"),
        (dict(edge_index=ARCS - 1), r"sources in \[0, 3\), got numbers from -1 to 0"),
        (dict(gate=torch.ones(1)), r"gate of shape \(2,\), got torch.float32 \(1,\)"),
        (dict(gate=torch.tensor([1.0, -1.0])), "positive gate, got a minimum of -1.0"),
        (dict(bias=[0.0, 0.0]), r"bias of shape \(2,\), got list"),
        (dict(sink=torch.zeros(2)), r"sink of shape \(3,\)"),
        (dict(weight_scale=torch.ones(2).int()), "weight_scale"),
    ],
)
@pytest.mark.parametrize("gate_rule", ["score", "weight"])
def test_edges_of_any_graph(gate_rule, arguments, words):
    with refused(words):
        EdgeAttention(gate_rule)(**dict(query=NODES, key=NODES, value=NODES, edge_index=ARCS) | arguments)

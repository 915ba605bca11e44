"""Tests public names, their arguments and their defaults."""

import inspect

import pytest

import sbmt
from sbmt import AttentionOutput, BlockModel, EdgeList, MultiHeadAttention, SBMAttention
from sbmt.layers.functional import MaskSettings
from sbmt.layers.registry import ATTENTIONS
from tests.processes import run_python

MASKS = "query_mask=None, key_mask=None"
SBM_SETTINGS = (
    "d_head, n_heads, n_clusters=128, *, sampler='exact', gate_rule='score', exploration=0.01, link='bilinear', "
    "membership='sigmoid', self_loops=False, window=None, dropout=0.0, backend='auto', learning='straight_through', "
    "edges_per_query=None, n_groups=1, reweight=False, sink=False, causal=False"
)
SIGNATURES = [
    (BlockModel, f"query_membership, block_matrix, key_membership, {MASKS}, link='bilinear', causal=False"),
    (BlockModel.expected_mask, "self, exploration=0.0"),
    (BlockModel.edge_probability, "self, edges, exploration=0.0"),
    (BlockModel.expected_density, "self, exploration=0.0"),
    (EdgeList.density, "self"),
    (EdgeList.to_dense, "self"),
    (EdgeList.to_edge_index, "self"),
    (EdgeList.from_dense, f"mask, {MASKS}, causal=False"),
    (EdgeList.union, "self, other"),
    (EdgeList.is_near, "self, window"),
    (
        sbmt.sample_edges,
        "block_model, sampler='exact', *, exploration=0.0, generator=None, first_example=0",
    ),
    (sbmt.straight_through_gate, "probability"),
    (
        sbmt.edge_attention,
        "query, key, value, edges, gate=None, *, gate_rule='score', bias=None, sink=None, backend='auto', dropout=0.0, "
        "generator=None, return_weights=False",
    ),
    (sbmt.available_backends, "device='cpu'"),
    (SBMAttention, SBM_SETTINGS),
    (
        SBMAttention.forward,
        f"self, query, key, value, *, {MASKS}, generator=None, return_edges=False, cache=None",
    ),
    (SBMAttention.block_model, f"self, query, key, {MASKS}"),
    (
        sbmt.sbm_attention,
        "query, key, value, block_model, *, generator=None, first_example=0, return_edges=False, **settings",
    ),
    (
        MaskSettings,
        "sampler='exact', exploration=0.0, gate_rule='score', window=None, dropout=0.0, backend='auto', "
        "learning='straight_through', edges_per_query=None, reweight=False, sink=None, is_dense=False",
    ),
    (sbmt.sparsify, "model, *, edges_per_query, **arguments"),
    (
        sbmt.fit_block_models,
        "model, batches, *, steps, learning_rate=0.03, n_queries=64, n_measured=4, on_step=None",
    ),
    (sbmt.build_attention, "name, *, preset=None, **arguments"),
    (
        MultiHeadAttention,
        "embed_dim, num_heads, dropout=0.0, bias=True, *, batch_first=True, device=None, dtype=None, attention='sbm', "
        "has_tied_start=False, transform_heads=None, **arguments",
    ),
    (  # in the order of torch.nn.MultiheadAttention
        MultiHeadAttention.forward,
        "self, query, key, value, key_padding_mask=None, need_weights=True, attn_mask=None, *, is_causal=False, "
        "query_padding_mask=None, generator=None, return_edges=False, cache=None",
    ),
    (sbmt.EdgeAttention, "gate_rule='score'"),
    (sbmt.TokenTagger, "encoder, n_labels"),
    (sbmt.SequenceClassifier, "encoder, n_labels, d_hidden, *, is_padded_mean=False"),
    (sbmt.DualEncoder, "encoder, n_labels, d_hidden, *, is_padded_mean=False"),
    (sbmt.MaskedLM, "encoder"),
    (sbmt.SentenceClassifier, "encoder, n_labels, *, dropout=0.0"),
    (AttentionOutput, "values, density, expected_density, edges=None, auxiliary_loss=None"),
    (sbmt.auxiliary_loss, "outputs"),
]


def rendered(function) -> str:
    """Returns the names, kinds and defaults of parameters, without annotations."""
    plain = [p.replace(annotation=p.empty) for p in inspect.signature(function).parameters.values()]
    return str(inspect.Signature(plain))[1:-1]


@pytest.mark.parametrize("function, expected", SIGNATURES, ids=lambda x: getattr(x, "__qualname__", ""))
def test_signature(function, expected):
    assert rendered(function) == expected


def test_every_public_name_exists_and_is_sorted():
    assert sorted(sbmt.__all__) == sbmt.__all__
    assert all(hasattr(sbmt, name) for name in sbmt.__all__)
    assert sbmt.__version__


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attentions_share_one_interface(name):
    by_position = {"n_positions": 3} if "n_positions" in inspect.signature(ATTENTIONS[name]).parameters else {}
    layer = sbmt.build_attention(name, d_head=2, n_heads=2, **by_position)
    assert rendered(type(layer).forward) == rendered(SBMAttention.forward)


def test_the_error_is_a_value_error_of_parts_or_a_sentence():
    error = sbmt.SbmtError("a square", "a circle", "draw again")
    assert isinstance(error, ValueError) and str(error) == "expected a square, got a circle: draw again"
    assert str(sbmt.SbmtError("draw a square,\nnot a circle")) == "draw a square,\\nnot a circle"


PARTS = ["cost", "experiments", "testing"]
HEAVY = ["matplotlib", "typer", "rich", "safetensors", "lightning", "pytorch_lightning"]
HEAVY += ["cffi", "torch_geometric", "torch._dynamo"]


def test_importing_the_library_is_fast_and_parts_load_on_demand():
    """Plots, the command line, storage, compilers and PyTorch Geometric are imported where they are used.

    Importing torch's compiler takes longer than importing torch, and a step of training does not need it either.
    """
    code = f"""
import sys, sbmt
order = list(sys.modules)
print(order.index("sbmt.interrupt") < min(map(order.index, ("sbmt.errors", "torch"))))
print([name for name in {HEAVY} if name in sys.modules])
import torch
attention = sbmt.build_attention("sbm", preset="fitted", d_head=8, n_heads=2, n_clusters=32)
output = attention(*torch.randn(3, 1, 2, 20, 8).requires_grad_())
(output.values.sum() + output.auxiliary_loss).backward()
with torch.no_grad():
    attention.eval()(*torch.randn(3, 1, 2, 20, 8))
print("torch._dynamo" in sys.modules)
print([name for name in {PARTS} if "sbmt." + name in sys.modules], sorted(set({PARTS}) - set(dir(sbmt))))
print(sbmt.testing.check_attention.__name__, [getattr(sbmt, name).__name__ for name in {PARTS}])
"""
    parts = [f"sbmt.{name}" for name in PARTS]
    assert run_python(code) == ["True", "[]", "False", "[] []", f"check_attention {parts}"]

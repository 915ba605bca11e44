"""The operations and memory of every attention, and their tables."""

import sys

import pytest
import torch
from torch import nn

from sbmt import AttentionOutput, SbmtError
from sbmt.experiments import costs
from sbmt.experiments.costs import (
    DENSITIES,
    METHODS,
    Column,
    build_model,
    cost_report,
    cost_tables,
    meet_density,
    paper_columns,
    peak_memory,
)
from sbmt.experiments.memory import MEBIBYTE
from sbmt.experiments.tables import LEFT_OUT
from sbmt.layers import SBMAttention, registry

SHORT = (Column("n = 64", 64, 0.25),)


@pytest.fixture(scope="module")
def counted():
    return cost_report(has_memory=False)


def test_ratios_by_hand(counted):
    """n = 2048, d = 32, k = 256 or 128: products over 4 n² d, of one head of one layer."""
    full = 4 * 2048**2 * 32
    by_hand = {
        "full": full,
        "linear": 4 * 2048 * 32**2,
        "linformer": 8 * 2048 * 256 * 32,
        "performer": 8 * 2048 * 256 * 32,
        "reformer": 2 * (2 * 2048 * 64 * 32 + 8 * 2048 * 32 * 32),
        "sbm-algorithm-1": 8 * 2048 * 32**2 + 4 * 2048 * 128 * 32 + 2 * 128**2 * 32 + 2 * 128**2 + 2 * 128,
    }
    edges = 4 * 32 * round(0.0115 * 2 * 2048**2) * 2
    for name, one in by_hand.items():
        whole = 4 * one + (edges if name == "sbm-algorithm-1" else 0)
        assert counted["operations"][name][0]["attention"]["n_flops"] == whole, name


def test_a_pair_of_documents_costs_twice_what_one_does(counted):
    pair = counted["operations"]["linear"][list(DENSITIES).index("retrieval")]["attention"]
    [one] = cost_report(["linear"], [Column("", 4096, 0.1)], has_memory=False)["operations"]["linear"]
    assert pair["n_flops"] == 2 * one["attention"]["n_flops"]


def test_tables_are_rectangular_and_relative(counted):
    assert [(c.task, c.n, c.density) for c in paper_columns()] == list(
        zip(DENSITIES, (2048, 3072, 4096, 1024, 1024), DENSITIES.values(), strict=True)
    )
    attention, model = cost_tables(counted)
    for table in (attention, model):
        assert {len(row) for row in table.rows} == {len(table.headings)} == {6}
        assert table.rows[0] == ("full attention", *["1.00"] * 5)
        assert len(table.rows) == len(METHODS) - 1  # a fused kernel does the same operations
    assert all(float(a[1]) <= float(m[1]) for a, m in zip(attention.rows, model.rows, strict=True) if a[1] < "1.00")


def test_what_cannot_be_measured_is_left_out_and_told(monkeypatch):
    monkeypatch.setattr(costs, "in_fresh_process", lambda *job: {"missing": "no room"})
    *_, table = cost_tables(cost_report(["linear"], SHORT))
    assert {row[1] for row in table.rows} == {LEFT_OUT}
    assert table.notes == (f"{METHODS['full'][0]}: no room", "linear: no room")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured on Linux only")
def test_peaks_are_those_of_what_is_kept():
    n, n_heads = 1024, 2
    column = Column("", n, 0.1)
    methods = ("full", "full-fused", "sbm", "performer", "performer")
    full, fused, sbm, performer, again = (peak_memory(method, [column])[0] for method in methods)
    scores, edges = (n_heads * n**2 * size / MEBIBYTE for size in (4, 0.1 * 8))
    assert 2 * scores < full["forward"] < 4 * scores  # before and after the softmax
    assert fused["forward"] < scores
    assert edges < sbm["forward"] < full["forward"]
    assert sbm["density"] == pytest.approx(0.1, rel=0.1)
    assert full["density"] is None
    assert performer["forward"] == pytest.approx(again["forward"], rel=0.1)


@pytest.mark.parametrize(("method", "density"), [("sbm", 0.01), ("sbm-algorithm-1", 0.3)])
def test_every_layer_and_head_meets_the_density_with_memberships_that_differ(method, density):
    model = build_model(method, Column("", 600, density), n_clusters=16)
    tokens, found = torch.arange(600)[None] % 256, []
    with torch.inference_mode():
        meet_density(model, tokens, density)
        assert not any(layer._forward_pre_hooks for layer in model.modules())
        for layer in model.modules():
            if isinstance(layer, SBMAttention):
                layer.register_forward_pre_hook(lambda layer, args: found.append(layer.block_model(*args[:2])))
        attended = model(tokens).attention
    for layer in attended:
        assert float(layer.expected_density.mean()) == pytest.approx(density, rel=0.1)
    assert all(one.query_membership.std() > 0.5 * one.query_membership.mean() for one in found)


class Mean(nn.Module):
    """An attention from outside: every token becomes the mean."""

    def __init__(self, d_head, n_heads, dropout=0.0):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_head

    def forward(self, query, key, value, *, query_mask=None, key_mask=None, generator=None, return_edges=False):
        density = torch.ones(value.shape[:2])
        return AttentionOutput(value.mean(2, keepdim=True).expand_as(value), density)


@pytest.fixture
def registered():
    yield registry.register_attention("mean", Mean)
    registry.ATTENTIONS.pop("mean", None)


@pytest.mark.usefixtures("registered")
def test_an_attention_from_outside_is_said_to_be_not_counted():
    for table in cost_tables(cost_report(["mean"], SHORT, has_memory=False)):
        assert table.rows[1] == ("mean", LEFT_OUT) and table.notes == ("mean: not counted",)


@pytest.mark.bad_input
@pytest.mark.parametrize(("column", "words"), [((64, 0.1, "chess"), "task among"), ((64, 0.0), "density in")])
def test_bad_columns_are_refused(column, words):
    with pytest.raises(SbmtError, match=words):
        Column("", *column)


@pytest.mark.bad_input
def test_unknown_methods_are_refused():
    with pytest.raises(SbmtError, match="attention among 'full'"):
        cost_report(["flash"], SHORT, has_memory=False)

"""The operations of every attention, and their tables."""

import pytest
import torch
from torch import nn

from sbmt import AttentionOutput, SbmtError
from sbmt.experiments.costs import DENSITIES, METHODS, Column, cost_report, cost_tables, paper_columns
from sbmt.experiments.tables import LEFT_OUT
from sbmt.layers import registry

SHORT = (Column("n = 64", 64, 0.25),)


@pytest.fixture(scope="module")
def counted():
    return cost_report()


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
    [one] = cost_report(["linear"], [Column("", 4096, 0.1)])["operations"]["linear"]
    assert pair["n_flops"] == 2 * one["attention"]["n_flops"]


def test_tables_are_rectangular_and_relative(counted):
    assert [(c.task, c.n, c.density) for c in paper_columns()] == list(
        zip(DENSITIES, (2048, 3072, 4096, 1024, 1024), DENSITIES.values(), strict=True)
    )
    attention, model = cost_tables(counted)
    for table in (attention, model):
        assert {len(row) for row in table.rows} == {len(table.headings)} == {6}
        assert table.rows[0] == ("full attention", *["1.00"] * 5)
        assert len(table.rows) == len(METHODS)
    assert all(float(a[1]) <= float(m[1]) for a, m in zip(attention.rows, model.rows, strict=True) if a[1] < "1.00")


class Mean(nn.Module):
    """An attention from outside: every token becomes the mean."""

    def __init__(self, d_head, n_heads, dropout=0.0):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_head

    def forward(self, query, key, value, *, query_mask=None, key_mask=None, generator=None, return_edges=False):
        density = torch.ones(value.shape[:2])
        return AttentionOutput(value.mean(2, keepdim=True).expand_as(value), density)


def test_an_attention_from_outside_is_said_to_be_not_counted():
    registry.register_attention("mean", Mean)
    try:
        for table in cost_tables(cost_report(["mean"], SHORT)):
            assert table.rows[1] == ("mean", LEFT_OUT) and table.notes == ("mean: not counted",)
    finally:
        registry.ATTENTIONS.pop("mean", None)


@pytest.mark.bad_input
@pytest.mark.parametrize(("column", "words"), [((64, 0.1, "chess"), "task to be one of"), ((64, 0.0), "density in")])
def test_bad_columns_are_refused(column, words):
    with pytest.raises(SbmtError, match=words):
        Column("", *column)


@pytest.mark.bad_input
def test_unknown_methods_are_refused():
    with pytest.raises(SbmtError, match="attention to be one of 'full'"):
        cost_report(["flash"], SHORT)

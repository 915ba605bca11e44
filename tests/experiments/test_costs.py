"""Tests the operations of every attention mechanism, and their tables."""

import pytest

from sbmt import SbmtError
from sbmt.experiments.costs import DENSITIES, METHODS, Column, cost_report, cost_tables, paper_columns


@pytest.fixture(scope="module")
def counted():
    return cost_report()


def test_ratios_by_hand(counted):
    """Products for n = 2048, d = 32 and k = 256 or 128, relative to 4 n² d, in one head of one layer."""
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
        assert len(table.columns) == 6 and table.row_count == len(METHODS)
        assert [next(column.cells) for column in table.columns] == ["full attention", *["1.00"] * 5]
    pairs = zip(attention.columns[1].cells, model.columns[1].cells, strict=True)
    assert all(float(a) <= float(m) for a, m in pairs if a < "1.00")


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("method", "column", "words"),
    [
        ("full", (64, 0.1, "chess"), "task to be one of"),
        ("full", (64, 0.0), "density in"),
        ("full", (0, 0.1), "length > 0"),
        ("flash", (64, 0.1), "attention to be one of 'full'"),
    ],
)
def test_bad_columns_and_unknown_methods_are_refused(method, column, words):
    with pytest.raises(SbmtError, match=words):
        cost_report([method], [Column("", *column)])

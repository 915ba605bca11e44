"""The operations and memory of every attention, and their tables."""

import pytest
import torch
from torch import nn

from sbmt import AttentionOutput, SbmtError
from sbmt.experiments.costs import report as report_module
from sbmt.experiments.costs.methods import METHODS, Case
from sbmt.experiments.costs.report import DENSITIES, TASKS, columns_of, cost_report, count_case, paper_columns
from sbmt.experiments.costs.tables import cost_tables, parts_table
from sbmt.experiments.tables import LEFT_OUT
from sbmt.layers import registry


@pytest.fixture(scope="module")
def counted():
    return cost_report(has_memory=False)


def test_columns_are_the_papers_tasks():
    columns = paper_columns()
    assert [column.task for column in columns] == list(TASKS)
    assert [column.n for column in columns] == [2048, 3072, 4096, 1024, 1024]
    assert [column.density for column in columns] == list(DENSITIES.values())


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
    pair = counted["operations"]["linear"][TASKS.index("retrieval")]["attention"]
    one = count_case(Case("linear", 4096, 0.1)).attention()
    assert pair["n_flops"] == 2 * one.n_flops


def test_tables_are_rectangular_and_relative(counted):
    attention, model = cost_tables(counted)
    for table in (attention, model):
        assert {len(row) for row in table.rows} == {len(table.headings)} == {6}
        assert table.rows[0] == ("full attention", *["1.00"] * 5)
        assert len(table.rows) == len(METHODS) - 1  # a fused kernel does the same operations
    shares = [float(row[1]) for row in attention.rows]
    assert shares[1:] != sorted(shares[1:])
    assert all(float(a[1]) <= float(m[1]) for a, m in zip(attention.rows, model.rows, strict=True) if a[1] < "1.00")


def test_memory_is_measured_once_for_alike_inputs(monkeypatch):
    asked, tracked = [], []

    def peaks(cases):
        asked.append(list(cases))
        return [{"forward": float(case.n), "before": 1.0, "density": None} for case in cases]

    monkeypatch.setattr(report_module, "peak_memory", peaks)
    found = cost_report(["sbm"], track=lambda names, description: tracked.append(names) or names)
    assert tracked == [["full", "sbm"]]
    assert [len(cases) for cases in asked] == [4, 5]  # Image and Pathfinder are alike where no mask is drawn
    assert [one["forward"] for one in found["memory"]["full"]] == [2048, 3072, 4096, 1024, 1024]
    *_, memory = cost_tables(found)
    assert memory.rows == (
        (METHODS["full"].title, *["1.00"] * 5),
        (METHODS["sbm"].title, *["1.00"] * 5),
    )


def test_what_cannot_be_measured_is_left_out_and_told(monkeypatch):
    monkeypatch.setattr(report_module, "peak_memory", lambda cases: [{"missing": "no room"}] * len(cases))
    *_, table = cost_tables(cost_report(["linear"], columns_of([64], 0.1)))
    assert {row[1] for row in table.rows} == {LEFT_OUT}
    assert table.notes == (f"{METHODS['full'].title}: no room", "linear: no room")


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


@pytest.mark.bad_input
@pytest.mark.usefixtures("registered")
def test_an_attention_from_outside_is_said_to_be_not_counted():
    found = cost_report(["mean"], columns_of([64], 0.25), has_memory=False)
    assert found["operations"]["mean"] == [{"missing": "not counted"}]
    for table in cost_tables(found):
        assert table.rows[1] == ("mean", LEFT_OUT) and table.notes == ("mean: not counted",)
    with pytest.raises(SbmtError, match="got Mean: not counted"):
        count_case(Case("mean", 64, 0.25))


@pytest.mark.bad_input
def test_bad_requests_are_refused():
    with pytest.raises(SbmtError, match="attention among"):
        cost_report(["flash"])
    with pytest.raises(SbmtError, match="at least one column"):
        cost_report(columns=[])


def test_parts_of_layers_are_gathered():
    count = count_case(Case("sbm", 64, 0.1))
    table = parts_table(count, "title")
    times = {row[0]: row[1] for row in table.rows}
    assert times["MLP, norms, residual sums"] == "2 ×"
    assert times["mean, head"] == "1 ×"
    *rows, last = table.rows
    assert sum(int(row[3].replace(",", "")) for row in rows) == count.n_flops == int(last[3].replace(",", ""))
    assert sum(int(row[6].replace(",", "")) for row in rows) == count.n_elementwise

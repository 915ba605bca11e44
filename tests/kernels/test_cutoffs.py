"""Where every pair is visited: from a file of this machine, or built in; and the choice changes no value."""

import json

import pytest
import torch

from sbmt.attention import dispatch
from sbmt.block_model import pair_products
from sbmt.block_model.pair_products import edge_dot, edge_gate
from sbmt.graph.edges import EdgeList
from sbmt.kernels import cutoffs as kept
from sbmt.kernels.cutoffs import BUILT_IN, Cutoff, cutoffs, this_machine

MEASURED = {"attention": [4096, 0.5], "edge_dot": [64, 0.25], "edge_gate": [0, 1.0]}


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A file of cut-offs, which need not exist."""
    monkeypatch.setattr(kept, "cutoffs_file", lambda: tmp_path / "cutoffs.json")
    cutoffs.cache_clear()
    yield tmp_path / "cutoffs.json"
    cutoffs.cache_clear()


def test_measured_ones_are_taken_on_their_machine_alone(file):
    assert cutoffs() is BUILT_IN
    for machine, expected in ((this_machine(), Cutoff(64, 0.25)), ("another", BUILT_IN["edge_dot"])):
        file.write_text(json.dumps({"machine": machine, "cutoffs": MEASURED}))
        cutoffs.cache_clear()
        assert cutoffs()["edge_dot"] == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"machine": "x", "cutoffs": {"attention": [1, 0.5]}}',
        json.dumps({"machine": "x", "cutoffs": MEASURED | {"edge_gate": [1, 2]}}),
        json.dumps({"machine": "x", "cutoffs": MEASURED | {"edge_gate": 7}}),
    ],
)
def test_a_damaged_file_is_told_of_and_left_aside(file, text):
    file.write_text(text)
    with pytest.warns(UserWarning, match="sbmt cutoffs --measure writes it anew"):
        assert cutoffs() is BUILT_IN


def test_processors_of_one_name_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "CPU_INFO", tmp_path / "cpuinfo")
    vectors = torch.backends.cpu.get_cpu_capability()
    names = set()
    for family in (25, 26):
        kept.CPU_INFO.write_text(f"cpu family\t: {family}\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n" * 2)
        names.add(kept.processor())
    assert names == {f"AMD EPYC (family {family}, model 2; {vectors})" for family in (25, 26)}
    kept.CPU_INFO.unlink()
    assert kept.processor().endswith(f" ({vectors})")


def test_without_a_cache_folder_the_built_in_ones_are_taken(monkeypatch):
    monkeypatch.setattr(kept, "cutoffs_file", lambda: None)
    cutoffs.cache_clear()
    assert cutoffs() is BUILT_IN


def test_attention_follows_them(monkeypatch):
    edges = EdgeList.from_dense(torch.ones(1, 1, 8, 8, dtype=torch.bool))
    for cells, expected in ((64, "dense"), (63, "cpu")):
        monkeypatch.setattr(dispatch, "cutoffs", lambda cells=cells: {"attention": Cutoff(cells, 1.0)})
        assert dispatch.pick_backend(edges) == expected


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("product", [edge_dot, edge_gate])
def test_both_ways_to_a_product_agree(product, dtype, monkeypatch):
    query, key = (torch.randn(2, 1, n, 5, dtype=dtype, requires_grad=True) for n in (6, 9))
    edges = EdgeList.from_dense(torch.rand(2, 1, 6, 9) < 0.4)
    cotangent = torch.randn(edges.n_edges, dtype=dtype)
    found = []
    for cells in (0, 1000):
        monkeypatch.setattr(pair_products, "cutoffs", lambda cells=cells: dict.fromkeys(BUILT_IN, Cutoff(cells, 0.0)))
        values = product(query, key, edges)
        assert values.dtype == dtype
        found.append((values, *torch.autograd.grad(values, (query, key), cotangent)))
    close = {"rtol": 0.0, "atol": 1e-12} if dtype == torch.float64 else {"rtol": 0.02, "atol": 0.02}
    for kernels, pairs in zip(*found, strict=True):
        torch.testing.assert_close(kernels, pairs, **close)

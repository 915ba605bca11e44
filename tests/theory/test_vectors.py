"""The published vectors, through the functions that answer them."""

import copy
import json
from pathlib import Path

import pytest

from tests.theory.vector_operations import OPERATIONS, agrees, is_close

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())["vectors"]
LAYERS = [["110", "010", "001"], ["100", "011", "101"]]
CYCLE = [[0, 1], [1, 2], [2, 0]]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['id']}-{vector['op']}")
def test_vector(vector):
    given = copy.deepcopy(vector["input"])
    got = OPERATIONS[vector["op"]](given)
    assert agrees(vector["op"], given, got, vector["expected"], vector["tol"]), got
    assert given == vector["input"], "an operation must leave its input alone"
    json.dumps(got)


def test_every_operation_has_a_vector_and_the_comparison_sees_differences():
    assert {vector["op"] for vector in VECTORS} == set(OPERATIONS) and len(VECTORS) == 56
    for got, expected in [
        (True, 1),
        (1, True),
        (None, 0),
        (0, None),
        ([1], [1, 2]),
        ({"a": 1}, {"a": 1, "b": 2}),
        (2.1, 2),
    ]:
        assert not is_close(got, expected, 0.01)


@pytest.mark.parametrize(
    "operation, given, expected",
    [
        ("min_layers", {"rows_per_layer": LAYERS, "order": "21"}, 3),
        ("paper_walk", {"n": 16, "k": 4, "relay": "new"}, {"repeats": {"12": 2, "13": 2, "14": 2}, "length": 19}),
        ("pattern_nnz", {"n": 16, "k": 4, "relays": [3, 7, 11, 15]}, {"A1": 64, "union": 148}),
        ("relay_ham_path", {"n": 4, "k": 4, "block_arcs": []}, {"path_cover": 0, "ham_path": True, "ham_cycle": True}),
        ("relay_ham_path", {"n": 3, "k": 1, "relays": [], "block_arcs": CYCLE}, {"limit": 1, "ham_cycle": True}),
        ("causal_conditions", {"pattern": "fixed", "n": 16, "l": 4, "c": 0}, {"condition2": False, "order": None}),
        ("min_layers_all_orders", {"n": 9, "k": 9}, {"123": 2, "132": 2, "213": 1, "231": 1, "312": 1, "321": 1}),
        ("min_block_size", {"k": 2, "cap": "1 - exp(-1/k)"}, {"m": 9, "n": 18}),
        ("support_edges_sum", {"n": [16, 16], "k": 4}, [216, 216]),
        ("expected_edges", {"n": 16, "k": [2, 4], "p": 0.5, "self_loops": False}, {"A1": [56, 24], "A2": [30, 60]}),
        ("fastrg_rates", {"Y": [[1.0, 2.0]], "B": [[1, 0], [0, 1]], "Z": [[3, 4]]}, {"edge_rate": [[11.0]]}),
    ],
)
def test_other_spellings_and_lists(operation, given, expected):
    got = OPERATIONS[operation](given)
    assert ({name: got[name] for name in expected} if isinstance(expected, dict) else got) == expected

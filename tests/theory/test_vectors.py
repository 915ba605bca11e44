"""Tests the functions on the published vectors."""

import copy
import json
from pathlib import Path

import pytest

from tests.theory.vector_operations import OPERATIONS, agrees

VECTORS = json.loads((Path(__file__).parent / "vectors.json").read_text())["vectors"]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: f"{vector['id']}-{vector['op']}")
def test_vector(vector):
    given = copy.deepcopy(vector["input"])
    got = OPERATIONS[vector["op"]](given)
    assert agrees(vector["op"], given, got, vector["expected"], vector["tol"]), got
    assert given == vector["input"], "an operation must leave its input alone"
    json.dumps(got)


def test_every_operation_has_a_vector():
    assert {vector["op"] for vector in VECTORS} == set(OPERATIONS)

"""Fitted masks in plain loops."""

import pytest
import torch

from results.measure import optimisers


@pytest.mark.parametrize("task", optimisers.EDGES)
def test_a_cell_is_a_share_of_right_answers_and_of_pairs(task):
    torch.manual_seed(0)
    found = optimisers.train(task, "Adam", 0, steps=2)
    assert 0 < found["accuracy"] < 0.8 and 0 < found["density"] < 0.9


def test_every_seed_of_every_cell_is_as_accurate_and_sparse_as_published():
    """What lets the page say that any ordinary optimiser will do."""
    most = {"recall": (0.99, 0.02), "fresh values": (0.95, 0.1), "repeated tokens": (0.985, 0.12)}
    result = optimisers.read_json(optimisers.RESULT)
    assert result.keys() == optimisers.EDGES.keys()
    for task, (accuracy, density) in most.items():
        cells = [at for of_optimiser in result[task].values() for at in of_optimiser.values()]
        assert len(cells) == 6 and all(at["accuracy"] > accuracy and at["density"] < density for at in cells)

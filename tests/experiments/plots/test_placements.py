import pytest
import torch

from sbmt import SbmtError
from sbmt.experiments.plots.placements import PLACEMENTS, place


def test_the_three_cases_are_dense_block_diagonal_and_sparse():
    masks = {name: place(name, 30).block_model.expected_mask()[0, 0] for name in PLACEMENTS}
    assert masks["collapsed"].min() > 0.95
    assert masks["distant"].max() < 0.2
    block = torch.block_diag(*[torch.ones(10, 10)] * 3).bool()
    assert masks["separated"][block].min() > 0.2
    assert masks["separated"][~block].max() < 0.02


def test_separated_groups_meet_the_block_budget():
    expected = place("separated", 30).block_model.expected_mask()[0, 0]
    block = torch.block_diag(*[torch.ones(10, 10)] * 3).bool()
    p_in, p_out = expected[block].mean(), expected[~block].mean()
    assert p_in <= 1 / 3 + p_out + 1e-6


def test_a_placement_is_seeded():
    assert torch.equal(place("distant", 5, 1).nodes, place("distant", 5, 1).nodes)
    assert not torch.equal(place("distant", 5, 1).nodes, place("distant", 5, 2).nodes)


@pytest.mark.bad_input
def test_unknown_cases_and_sizes_are_refused():
    with pytest.raises(SbmtError, match="case among"):
        place("square")
    with pytest.raises(SbmtError, match="n_tokens"):
        place("distant", 0)

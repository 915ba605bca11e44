import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from sbmt.experiments.plots.difficulty import ALL_HEADS, difficulty_measures, plot_density_over, rank_correlations


def ranks(values):
    return np.argsort(np.argsort(values)).astype(float)


def test_correlations_are_those_of_ranks():
    rng = np.random.default_rng(0)
    densities = torch.from_numpy(rng.random((40, 2, 3)))
    measure = rng.random(40) + densities[:, 1, 0].numpy()
    rows = rank_correlations(densities, {"depth": measure, "length": np.arange(40.0)})
    assert [row.part for row in rows[:3]] == [ALL_HEADS, "layer 0, head 0", "layer 0, head 1"]
    assert [row.measure for row in rows] == ["depth"] * 7 + ["length"] * 7
    parts = [densities.mean((1, 2)), *densities.flatten(1).T]
    for row, part in zip(rows, parts, strict=False):
        assert row.rho == pytest.approx(np.corrcoef(ranks(part.numpy()), ranks(measure))[0, 1])
        assert row.p_value == pytest.approx(spearmanr(part.numpy(), measure).pvalue)
        assert row.n == 40


def test_order_alone_counts():
    densities = torch.tensor([0.1, 0.2, 0.3, 0.9])[:, None, None]
    measures = {"up": np.array([1.0, 10.0, 11.0, 1000.0]), "down": np.array([4.0, 3.0, 2.0, -7.0])}
    assert [row.rho for row in rank_correlations(densities, measures)] == pytest.approx([1, 1, -1, -1])


def test_a_constant_density_has_no_correlation():
    densities = torch.ones(5, 1, 2)
    densities[:, 0, 1] = torch.arange(5.0) / 5
    everything, first, second = rank_correlations(densities, {"length": np.arange(5.0)})
    assert (first.rho, first.p_value, first.n) == (None, None, 5)
    assert everything.rho == second.rho == pytest.approx(1)


def test_unknown_measures_are_left_out_example_by_example():
    densities = torch.tensor([0.5, 0.1, 0.2, 0.3])[:, None, None]
    rows = rank_correlations(densities, {"turns": np.array([np.nan, 1.0, 2.0, 3.0])})
    assert [(row.n, row.rho) for row in rows] == [(3, pytest.approx(1))] * 2


def test_what_may_say_how_difficult_an_example_is():
    extras = {
        "digest": np.array([5, 6, 7], np.uint64),
        "side": np.array([0, 1, 0]),
        "is_long": np.array([True, False, True]),
        "name": np.array(["a", "b", "c"]),
        "place": np.zeros((3, 2)),
        "n_operators": np.array([3, 1, 2]),
        "depth": np.array([2.0, 3.0, 4.0]),
        "gaps": np.array([1.0, 2.0, np.nan]),
    }
    found = difficulty_measures(extras, np.array([7, 8, 9]))
    assert {name: x.tolist() for name, x in found.items()} == {
        "depth": [2, 3, 4],
        "n_operators": [3, 1, 2],
        "length": [7, 8, 9],
    }
    assert difficulty_measures({}, np.array([4, 4, 4])) == {}


def test_dots_stand_where_the_numbers_say():
    axes = Figure().subplots()
    plot_density_over(axes, np.array([0.1, 0.2]), np.array([3.0, 5.0]), "depth")
    assert axes.lines[0].get_xydata().tolist() == [[3, 0.1], [5, 0.2]]
    assert axes.get_xlabel() == "depth"

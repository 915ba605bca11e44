import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from sbmt.experiments.plots.densities import (
    ALL_HEADS,
    difficulty_measures,
    plot_density_bars,
    plot_density_over,
    plot_in_degrees,
    plot_input_image,
    rank_correlations,
)


@pytest.fixture
def axes():
    return Figure().subplots()


def test_bars_are_means_and_whiskers_deviations_over_inputs(axes):
    densities = torch.rand(7, 2, 3)
    plot_density_bars(axes, densities)
    numbers = densities.double().numpy()
    columns = np.concatenate([numbers.mean(2, keepdims=True), numbers], 2).reshape(7, -1)
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], columns.mean(0), rtol=1e-6)
    whiskers = [np.ptp(line[:, 1]) / 2 for layer in axes.collections for line in layer.get_segments()]
    np.testing.assert_allclose(whiskers, columns.std(0, ddof=1), rtol=1e-5)
    assert "over 7 test inputs" in axes.get_title("left") + axes.get_title()
    assert [label.get_text() for label in axes.get_xticklabels()][:4] == ["layer 0", "head 0", "head 1", "head 2"]


def test_a_single_head_is_its_layer_and_empty_masks_leave_a_scale(axes):
    plot_density_bars(axes, torch.zeros(4, 3, 1))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["layer 0", "layer 1", "layer 2"]
    assert len(axes.patches) == 3 and axes.get_ylim() == (0, 1)


def test_pixels_are_placed_row_by_row():
    first, second = Figure().subplots(1, 2)
    plot_input_image(first, torch.arange(9) + 1, 1)
    plot_in_degrees(second, torch.arange(9) / 9, 0.9)
    assert first.images[0].get_array().tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    np.testing.assert_allclose(second.images[0].get_array(), np.arange(9).reshape(3, 3) / 9, rtol=1e-6)
    assert second.images[0].get_clim() == (0, 0.9)


def ranks(values):
    return np.argsort(np.argsort(values)).astype(float)


def test_correlations_are_those_of_ranks():
    rng = np.random.default_rng(0)
    densities = torch.from_numpy(rng.random((40, 2, 3)))
    measure = np.exp(5 * (rng.random(40) + densities[:, 1, 0].numpy()))
    rows = rank_correlations(densities, {"depth": measure, "length": np.arange(40.0)})
    assert [row.part for row in rows[:3]] == [ALL_HEADS, "layer 0, head 0", "layer 0, head 1"]
    assert [row.measure for row in rows] == ["depth"] * 7 + ["length"] * 7
    parts = [densities.mean((1, 2)), *densities.flatten(1).T]
    for row, part in zip(rows, parts, strict=False):
        assert row.rho == pytest.approx(np.corrcoef(ranks(part.numpy()), ranks(measure))[0, 1])
        assert row.p_value == pytest.approx(spearmanr(part.numpy(), measure).pvalue)
        assert row.n == 40


def test_constant_densities_and_unknown_measures_are_left_out():
    densities = torch.ones(5, 1, 2)
    densities[:, 0, 1] = torch.arange(5.0) / 5
    everything, first, second = rank_correlations(densities, {"turns": np.array([np.nan, 1.0, 2.0, 3.0, 4.0])})
    assert (first.rho, first.p_value, first.n) == (None, None, 4)
    assert everything.rho == second.rho == pytest.approx(1)


@pytest.mark.parametrize(("n", "is_tested"), [(4, False), (19, False), (20, True)])
def test_few_examples_have_no_p_value(n, is_tested):
    """Four ranks that agree would have p = 0, where one order in 24 does."""
    densities = torch.rand(n, 1, 1, generator=torch.Generator().manual_seed(0))
    for row in rank_correlations(densities, {"length": np.arange(float(n))}):
        assert row.rho is not None and (row.p_value is not None) == is_tested


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


def test_dots_are_placed_by_the_numbers(axes):
    plot_density_over(axes, np.array([0.1, 0.2]), np.array([3.0, 5.0]), "depth")
    assert axes.lines[0].get_xydata().tolist() == [[3, 0.1], [5, 0.2]]
    assert axes.get_xlabel() == "depth"

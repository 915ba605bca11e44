import numpy as np
import torch
from matplotlib.figure import Figure

from sbmt.experiments.plots.density_bars import plot_density_bars


def test_bars_are_means_and_whiskers_deviations_over_inputs():
    densities = torch.rand(7, 2, 3)
    axes = Figure().subplots()
    plot_density_bars(axes, densities)
    numbers = densities.double().numpy()
    columns = np.concatenate([numbers.mean(2, keepdims=True), numbers], 2).reshape(7, -1)
    heights = [bar.get_height() for bar in axes.patches]
    np.testing.assert_allclose(heights, columns.mean(0), rtol=1e-6)
    whiskers = [np.ptp(line[:, 1]) / 2 for line in axes.collections[0].get_segments()]
    np.testing.assert_allclose(
        whiskers + [np.ptp(line[:, 1]) / 2 for line in axes.collections[1].get_segments()],
        columns.std(0, ddof=1),
        rtol=1e-5,
    )
    assert "over 7 test inputs" in axes.get_title("left") + axes.get_title()
    assert [label.get_text() for label in axes.get_xticklabels()][:4] == ["layer 0", "head 0", "head 1", "head 2"]


def test_a_single_head_is_its_layer():
    axes = Figure().subplots()
    plot_density_bars(axes, torch.rand(4, 3, 1))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["layer 0", "layer 1", "layer 2"]
    assert len(axes.patches) == 3


def test_empty_masks_leave_a_scale():
    axes = Figure().subplots()
    plot_density_bars(axes, torch.zeros(4, 1, 1))
    assert axes.get_ylim() == (0, 1)

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from sbmt.errors import SbmtError
from sbmt.experiments.plots.density_maps import as_image, plot_in_degrees, plot_input_image


def test_pixels_stand_row_by_row():
    figure = Figure()
    first, second = figure.subplots(1, 2)
    plot_input_image(first, torch.arange(9) + 1, 1)
    plot_in_degrees(second, torch.arange(9) / 9, 0.9)
    assert first.images[0].get_array().tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    np.testing.assert_allclose(second.images[0].get_array(), np.arange(9).reshape(3, 3) / 9, rtol=1e-6)
    assert second.images[0].get_clim() == (0, 0.9)


def test_what_is_no_square_is_refused():
    with pytest.raises(SbmtError, match="a square image"):
        as_image(torch.zeros(8))

import numpy as np
import pytest
import torch

from sbmt import EdgeList, SbmtError
from sbmt.experiments.plots import plot_bipartite, plot_mask, plot_scores


@pytest.fixture
def mask():
    return torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) < 0.4


def as_edges(mask):
    return EdgeList.from_dense(mask[None, None])


@pytest.mark.parametrize("convert", [lambda m: m, lambda m: m[None, None], as_edges, lambda m: m.numpy()])
def test_heatmap_shows_the_mask(mask, convert):
    ax = plot_mask(convert(mask))
    assert np.array_equal(ax.images[0].get_array(), mask.float())
    assert ax.images[0].get_clim() == (0.0, 1.0)  # regardless of the data, so that figures can be compared


@pytest.mark.bad_input
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: plot_mask(torch.zeros(2, 3, 3)),
        lambda: plot_mask(torch.zeros(2, 2), key_labels=["a"]),
        lambda: plot_scores(torch.zeros(2, 2), torch.zeros(2, 3).bool()),
        lambda: plot_bipartite(torch.ones(2, 2).bool(), weights=torch.ones(3)),
    ],
)
def test_what_does_not_fit_is_refused(wrong):
    with pytest.raises(SbmtError, match="expected"):
        wrong()


def test_scores_hide_what_the_mask_leaves_out(mask):
    scores = torch.randn(5, 7)
    shown = plot_scores(scores, mask).images[0]
    assert np.array_equal(~np.ma.getmaskarray(shown.get_array()), mask)
    low, high = shown.get_clim()
    assert low == -high == -float(scores[mask].abs().max())

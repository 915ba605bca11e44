"""Figures that the notebooks and the documentation share; needs matplotlib, which the extra ``plots`` brings."""

from sbmt.experiments.plots.masks import plot_bipartite, plot_mask, plot_scores
from sbmt.experiments.plots.style import MASK_COLOURS, PALETTE, use_style

__all__ = ["MASK_COLOURS", "PALETTE", "plot_bipartite", "plot_mask", "plot_scores", "use_style"]

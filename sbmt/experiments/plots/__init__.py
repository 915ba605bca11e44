"""Figures shared by the notebooks and the documentation; requires matplotlib, which the extra ``plots`` installs."""

from sbmt.experiments.plots.masks import plot_bipartite, plot_mask, plot_scores
from sbmt.experiments.plots.style import MASK_COLOURS, PALETTE, ROLES, use_style

__all__ = ["MASK_COLOURS", "PALETTE", "ROLES", "plot_bipartite", "plot_mask", "plot_scores", "use_style"]

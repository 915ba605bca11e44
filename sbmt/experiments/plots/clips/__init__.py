"""Two short films for the documentation: a mask being drawn, and a mask being fitted."""

from sbmt.experiments.plots.clips.draw import draw_clip
from sbmt.experiments.plots.clips.fit import Course, Snapshot, fit_clip, in_tenths

__all__ = ["Course", "Snapshot", "draw_clip", "fit_clip", "in_tenths"]

"""Two short films for the documentation: a mask being drawn, and a mask being fitted."""

from results.clips.draw import draw_clip
from results.clips.fit import Course, Snapshot, fit_clip, in_tenths

__all__ = ["Course", "Snapshot", "draw_clip", "fit_clip", "in_tenths"]

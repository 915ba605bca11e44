"""Masks of several kinds in a pretrained encoder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sbmt.experiments.plots.style import QUIET, ROLES, saved_figure


def draw_encoder_masks(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Left how close embeddings come to those of full attention, right how many keys each head attends to.

    ``rows`` are those of :func:`~sbmt.experiments.sparsification.pretrained.compare_encoder`, fitted masks first.
    """
    with saved_figure(path, 7.8, 2.9) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
        names = [f"{row['kind']}, {row['density']:.1%}" for row in rows]
        colours = [ROLES["sampled"] if row is rows[0] else QUIET for row in rows]
        bars = left.barh(names, [row["cosine"] for row in rows], color=colours)
        left.bar_label(bars, fmt="%.2f", padding=3)
        left.set(xlim=(0, 1.12), xlabel="cosine to full attention's embeddings", xticks=(0, 0.5, 1))
        left.invert_yaxis()
        keys = sorted(rows[0]["attended_keys"])
        right.plot(range(1, len(keys) + 1), keys, "o", markersize=3, color=ROLES["full attention"])
        right.set(yscale="log", xlabel="heads, in order", ylabel="keys attended to")

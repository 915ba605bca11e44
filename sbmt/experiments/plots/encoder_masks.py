"""Figure that compares different kinds of masks in a pretrained encoder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sbmt.experiments.plots.style import QUIET, ROLES, saved_figure


def draw_encoder_masks(panels: Mapping[str, Sequence[dict[str, Any]]], path: Path) -> None:
    """Plots the cosine between embeddings with each kind of mask and those with full attention, fitted masks first."""
    with saved_figure(path, 4.1 * len(panels) + 0.4, 2.6) as figure:
        axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        for ax, (title, rows) in zip(axes, panels.items(), strict=True):
            colours = [ROLES["sampled"] if row is rows[0] else QUIET for row in rows]
            bars = ax.barh([row["kind"] for row in rows], [row["cosine"] for row in rows], color=colours)
            ax.bar_label(bars, fmt="%.2f", padding=3)
            ax.set(title=f"{title}{rows[0]['density']:.0%} of the pairs", xlim=(0, 1.15), xticks=(0, 0.5, 1))
        axes[0].invert_yaxis()
        figure.supxlabel("cosine to full attention's embeddings")

"""Training curves and the lines to read them against."""

import numpy as np
from matplotlib.axes import Axes

from sbmt.experiments.data.repeated_tokens import majority_accuracy, random_mask_ceiling
from sbmt.experiments.plots.style import INK
from sbmt.experiments.training.run import Run

WINDOW = 25  # steps that a curve's point averages


def plot_curve(axes: Axes, run: Run, name: str, colour: str, label: str | None = None) -> None:
    """A running mean of ``loss``, ``accuracy`` or ``density`` of the training batches over steps."""
    values = np.asarray(run.history[name])
    width = min(WINDOW, len(values))
    smooth = np.convolve(values, np.ones(width) / width, mode="valid")
    axes.plot(np.arange(width, len(values) + 1), smooth, color=colour, label=label, alpha=0.9)
    bottom = 0.55 if name == "accuracy" else 0.0
    axes.set(xlabel="step", title=f"{name} of the training batch", xlim=(0, None), ylim=(bottom, None))
    if name != "loss":
        axes.set_ylim(bottom, 1.02)


def plot_majority(axes: Axes, length: int) -> None:
    """The accuracy of always guessing the commoner label."""
    axes.axhline(majority_accuracy(length), color=INK, linestyle=":", linewidth=1, label="majority guess")


def plot_ceiling(axes: Axes, length: int) -> None:
    """The best accuracy that a random mask allows, over its density."""
    density = np.linspace(0, 1, 101)
    ceiling = [random_mask_ceiling(length, p) for p in density]
    axes.plot(density, ceiling, color=INK, linestyle="--", linewidth=1, label="ceiling of a random mask")
    axes.set(xlabel="density", ylabel="accuracy", xlim=(-0.02, 1.04), ylim=(0.55, 1.02))

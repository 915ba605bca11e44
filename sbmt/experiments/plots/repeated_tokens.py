"""Figures of runs on repeated tokens: training curves, the lines to read them against, and the masks of one head."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from torch import Tensor

from sbmt.experiments.data.repeated_tokens import majority_accuracy, random_mask_ceiling, sample_repeated_tokens
from sbmt.experiments.plots.masks import plot_mask
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, GREEN, INK, PURPLE, VERMILLION
from sbmt.experiments.studies.study import Study
from sbmt.experiments.training.run import Run
from sbmt.graph.patterns import sliding_window
from sbmt.layers import SBMAttention
from sbmt.models import TokenTagger

WINDOW = 25  # steps that a curve's point averages
MEASURES = ("loss", "accuracy", "density")
COLOURS = {
    "full": BLUE,
    "sbm": VERMILLION,
    "fitted": GREEN,
    "random-equal": PURPLE,
}


def plot_curve(axes: Axes, run: Run, name: str, colour: str, label: str | None = None) -> None:
    """A running mean of ``loss``, ``accuracy`` or ``density`` of the training batches over steps."""
    values = np.asarray(run.history[name])
    width = min(WINDOW, len(values))
    smooth = np.convolve(values, np.ones(width) / width, mode="valid")
    axes.plot(np.arange(width, len(values) + 1), smooth, color=colour, label=label, alpha=0.9)
    limits = {"loss": (0, None), "accuracy": (0.55, 1.02), "density": (0, 1.02)}
    axes.set(xlabel="step", title=f"{name} of the training batch", xlim=(0, None), ylim=limits[name])


def plot_majority(axes: Axes, length: int) -> None:
    """The accuracy of always guessing the commoner label."""
    axes.axhline(majority_accuracy(length), color=INK, linestyle=":", linewidth=1, label="majority guess")


def plot_ceiling(axes: Axes, length: int) -> None:
    """The best accuracy that a random mask allows, over its density."""
    density = np.linspace(0, 1, 101)
    ceiling = [random_mask_ceiling(length, p) for p in density]
    axes.plot(density, ceiling, color=INK, linestyle="--", linewidth=1, label="ceiling of a random mask")
    axes.set(xlabel="density", ylabel="accuracy", xlim=(-0.02, 1.04), ylim=(0.55, 1.02))


@dataclass(frozen=True, eq=False)
class SeenMask:
    """Layer 0, head 0 on one sequence.

    Attributes:
        expected: Edge probabilities ``(n, n)``, 1 where a window or a self-loop makes an edge certain.
        drawn: One draw, bool ``(n, n)``.
        twins: Which tokens have the same value, bool ``(n, n)``: the pairs that the task is about.
        membership: Query memberships ``(n, k)``; None for attentions without clusters.
    """

    expected: Tensor
    drawn: Tensor
    twins: Tensor
    membership: Tensor | None


@torch.no_grad()
def see_mask(model: TokenTagger, seed: int = 0) -> SeenMask:
    """Runs a model once on an unseen sequence, sorted by value, and returns the mask of its first head."""
    generator = torch.Generator().manual_seed(seed)
    n_values = model.encoder.token_embedding.weight.shape[0]
    tokens = sample_repeated_tokens(1, n_values, generator=generator)[0].sort(1).values
    twins = tokens[0, :, None] == tokens[0]
    attention = model.get_submodule("encoder.blocks.0.attention.attention")
    inputs: list[tuple[Tensor, ...]] = []
    handle = attention.register_forward_pre_hook(lambda _, given: inputs.append(given))
    was_training = model.training
    try:
        attended = model.eval()(tokens, generator=generator, return_edges=True).attention[0]
        drawn = attended.edges.to_dense()[0, 0]
        if not isinstance(attention, SBMAttention):  # every pair has the same probability
            return SeenMask(attended.expected_density[0, 0].expand_as(drawn), drawn, twins, None)
        block_model = attention.block_model(*inputs[0][:2])
        expected = block_model.expected_mask()[0, 0]
        if attention.window is not None:
            certain = sliding_window(attended.edges.shape, attention.window).to_dense()[0, 0]
            expected = expected.masked_fill(certain, 1.0)
        return SeenMask(expected, drawn, twins, block_model.query_membership[0, 0])
    finally:
        handle.remove()
        model.train(was_training)


def draw_inspection(run: Run, path: Path, seed: int = 0) -> None:
    """Writes a figure: the run's curves above, the mask of one unseen sequence and its memberships below."""
    seen = see_mask(run.model, seed)
    with saved_figure(path, 11.0, 6.6) as figure:
        above, below = figure.subplots(2, 3)
        for ax, name in zip(above, MEASURES, strict=True):
            plot_curve(ax, run, name, VERMILLION)
        plot_majority(above[1], run.config.length)
        above[1].legend(loc="lower right", fontsize=8)
        mean, density = (float(mask.float().mean()) for mask in (seen.expected, seen.drawn))
        plot_mask(seen.expected, below[0], title=f"edge probability, mean {mean:.3f}")
        plot_mask(seen.drawn, below[1], title=f"one draw, density {density:.3f}")
        if seen.membership is None:
            below[2].axis("off")
        else:
            plot_mask(seen.membership, below[2], title="memberships of the queries")
            below[2].set(xlabel="cluster", ylabel="query", aspect="auto")
        figure.suptitle("Tokens of the masks are sorted by value", fontsize=9, fontweight="normal")


def draw_comparison(study: Study, runs: list[tuple[str, Run]], path: Path) -> None:
    """Writes the demo's figure: curves above; accuracy against density, and the trained masks, below.

    The runs are those that :func:`~sbmt.experiments.studies.study.run_study` returns.
    """
    length = runs[0][1].config.length
    titles = {trial.name: trial.title for trial in study.trials}
    firsts = {method: run for method, run in reversed(runs)}
    with saved_figure(path, 11.5, 6.8) as figure:
        top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.15, 1)).flat
        axes = top.subplots(1, 3)
        for ax, name in zip(axes, MEASURES, strict=True):
            for method, run in runs:
                label = titles[method] if run is firsts[method] else None
                plot_curve(ax, run, name, COLOURS[method], label)
        top.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        n_curves = len(axes[1].lines)
        plot_majority(axes[1], length)
        axes[1].legend(handles=axes[1].lines[n_curves:], loc="lower right", fontsize=8)

        axes = bottom.subplots(1, 4, width_ratios=(1.25, 1, 1, 1))
        plot_ceiling(axes[0], length)
        plot_majority(axes[0], length)
        for method, run in runs:
            point = (run.test.density, run.test.accuracy)
            axes[0].scatter(*point, color=COLOURS[method], s=45, zorder=3, edgecolors="white")
        axes[0].set_title("unseen sequences")
        axes[0].legend(loc="lower right", fontsize=8)
        published, fitted = (see_mask(firsts[trial].model) for trial in ("sbm", "fitted"))
        for ax, seen, name in zip(axes[1:], (published, fitted), ("as published", "fitted"), strict=False):
            plot_mask(seen.expected, ax, title=f"E[mask] {name}: {float(seen.expected.mean()):.3f}")
        plot_mask(fitted.twins, axes[3], title="the pairs that matter")

"""Figures of a study's results, drawn from its summary alone."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sbmt.plots.curves import plot_ceiling, plot_majority
from sbmt.plots.save import save_figure
from sbmt.plots.style import BLUE, GREEN, INK, ORANGE, PALETTE, PURPLE, SKY, VERMILLION, use_style

COLOURS = {
    "full": BLUE,
    "sbm": VERMILLION,
    "random-equal": PURPLE,
    "sbm-algorithm-1": ORANGE,
    "linear": GREEN,
    "performer": SKY,
}
_OTHERS = [(colour, line) for line in ("--", ":", "-.") for colour in PALETTE]
_FILLS = {"-": "full", "--": "none", ":": "left", "-.": "top"}


def trial_styles(result: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Colour and line style of each trial: a solid line for those in :data:`COLOURS`, a broken one for the rest."""
    rest = [name for name in result["titles"] if name not in COLOURS]
    broken = {name: _OTHERS[i % len(_OTHERS)] for i, name in enumerate(rest)}
    return {name: (COLOURS[name], "-") if name in COLOURS else broken[name] for name in result["titles"]}


def plot_curves(axes: Axes, result: dict[str, Any], name: str) -> None:
    """One thin line per run: ``loss``, ``accuracy`` or ``density`` of the training batches over steps."""
    styles, seen = trial_styles(result), set()
    for run in result["runs"]:
        trial, curve = run["trial"], run["curve"]
        label = None if trial in seen else result["titles"][trial]
        seen.add(trial)
        colour, line = styles[trial]
        axes.plot(curve["step"], curve[name], color=colour, linestyle=line, linewidth=1.3, alpha=0.85, label=label)
    axes.set(xlabel="step", title=f"{name} of the training batch", xlim=(0, None), ylim=(0, None))


def plot_accuracy_over_density(axes: Axes, result: dict[str, Any]) -> None:
    """One dot per run, with what guessing reaches; and with the ceiling of a random mask, or the 95 % interval."""
    styles = trial_styles(result)
    first = result["runs"][0]
    if "chance" in first:
        axes.axhline(first["chance"], color=INK, linestyle=":", linewidth=1, label="always the commonest label")
        axes.set(xlabel="density", ylabel="accuracy", xlim=(-0.02, 1.04))
    else:
        plot_ceiling(axes, first["config"]["length"])
        plot_majority(axes, first["config"]["length"])
    for run in result["runs"]:
        colour, line = styles[run["trial"]]
        place = [run["test"]["density"]], [run["test"]["accuracy"]]
        axes.plot(*place, "o", color=colour, fillstyle=_FILLS[line], markersize=6, alpha=0.9)
        if "interval" in run:
            axes.vlines(place[0], *run["interval"], color=colour, linewidth=1, alpha=0.5)


def draw_study(result: dict[str, Any], path: Path) -> None:
    """Writes the figure of a study: loss and density over training, accuracy against density after it.

    Args:
        result: What :func:`~sbmt.training.study.summary` made.
        path: Where the figure goes.
    """
    with use_style():
        figure = Figure(figsize=(11.5, 4.6), layout="constrained")
        axes = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
        plot_curves(axes[0], result, "loss")
        plot_curves(axes[1], result, "density")
        axes[1].set_ylim(0, 1.03)
        plot_accuracy_over_density(axes[2], result)
        is_test = "n_test" in result["runs"][0]
        axes[2].set_title("test examples, 95 % intervals" if is_test else "unseen sequences")
        axes[2].legend(loc="best" if is_test else "lower right", fontsize=8)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8)
        save_figure(figure, path)

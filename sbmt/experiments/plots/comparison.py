"""The demo's figure."""

from pathlib import Path

from matplotlib.figure import Figure

from sbmt.experiments.plots.curves import plot_ceiling, plot_curve, plot_majority
from sbmt.experiments.plots.inspection import see_mask
from sbmt.experiments.plots.masks import plot_mask
from sbmt.experiments.plots.save import save_figure
from sbmt.experiments.plots.style import BLUE, GREEN, ORANGE, PURPLE, VERMILLION, use_style
from sbmt.experiments.studies.study import Study
from sbmt.experiments.training.config import build_model
from sbmt.experiments.training.run import Run

COLOURS = {
    "full": BLUE,
    "sbm": VERMILLION,
    "sbm-algorithm-1": ORANGE,
    "random-equal": PURPLE,
    "random-quarter": GREEN,
}


def draw_comparison(study: Study, runs: list[tuple[str, Run]], path: Path) -> None:
    """Writes the demo's figure: curves above; accuracy against density, and the SBM's mask over training, below.

    Args:
        study: The demo's.
        runs: (trial's name, run) as :func:`~sbmt.experiments.studies.study.run_study` returns them.
        path: Where the figure goes.
    """
    length = runs[0][1].config.length
    titles = {trial.name: trial.title for trial in study.trials}
    firsts = {method: run for method, run in reversed(runs)}
    with use_style():
        figure = Figure(figsize=(11.5, 6.8), layout="constrained")
        top, bottom = figure.subfigures(2, 1, squeeze=False, height_ratios=(1.15, 1)).flat
        axes = top.subplots(1, 3)
        for ax, name in zip(axes, ("loss", "accuracy", "density"), strict=True):
            for method, run in runs:
                label = titles[method] if run is firsts[method] else None
                plot_curve(ax, run, name, COLOURS[method], label)
        top.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
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
        plot_mask(see_mask(build_model(firsts["sbm"].config)).expected, axes[1], title="SBM: E[mask] at the start")
        trained = see_mask(firsts["sbm"].model)
        plot_mask(trained.expected, axes[2], title="E[mask] after training")
        plot_mask(trained.drawn, axes[3], title=f"one draw, density {float(trained.drawn.float().mean()):.3f}")
        save_figure(figure, path)

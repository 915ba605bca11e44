"""What a training step with a fitted mask costs, relative to full attention; writes ``results/fitted_cost.json``.

``python results/measure/fitted_cost.py`` times steps from the trained weights of the studies ``fitted-64``,
``fitted-256`` and ``fitted-1024``, which must have run before (``sbmt study fitted-64``), and draws
``results/fitted.png`` from their results and its own. It takes a minute or two.
"""

from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes

from results.measure.landing import step_of
from sbmt.command import run_command
from sbmt.experiments.benchmarks.manifest import machine_manifest
from sbmt.experiments.benchmarks.timing import Pace, race
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION
from sbmt.experiments.training.run import load_run

HERE = Path(__file__).resolve().parents[1]
RUNS, RESULT, FIGURE = HERE.parent / "runs", HERE / "fitted_cost.json", HERE / "fitted.png"
LENGTHS = 64, 256, 1024
TRIALS = {
    "full": ("full attention", BLUE),
    "fitted": ("fitted", GREEN),
    "straight-through": ("straight-through", VERMILLION),
    "random": ("random, fitted density", PURPLE),
    "window": ("window", ORANGE),
    "reformer": ("Reformer", SKY),
}
TICKS = 2, 5, 10, 20, 50, 100, 1000
PACE = Pace(seconds=8.0, least=7, most=61)


def measure(length: int) -> dict[str, Any]:
    """Times of a step of full attention and of a fitted mask, each from its trained weights."""
    entries = {}
    for trial in ("full", "fitted"):
        run = load_run(RUNS / f"fitted-{length}" / f"{trial}-seed0")
        entries[trial] = step_of(run.config, run.model.train())
    return race(entries, PACE, reference="full", headline=("fitted",))


def plot_accuracy(axes: Axes, result: dict[str, Any], length: int) -> None:
    """Accuracy on unseen sequences against attended keys per query: a dot per run, a ring per median."""
    for trial, (title, colour) in TRIALS.items():
        tests = [run["test"] for run in result["runs"] if run["trial"] == trial]
        edges = [test["density"] * length for test in tests]
        accuracies = [test["accuracy"] for test in tests]
        axes.scatter(edges, accuracies, color=colour, s=26, edgecolors="white", zorder=3, label=title)
    twins = 1 + (length - 1) / length  # a token and, on average, almost one twin
    axes.axvline(twins, color=INK, linestyle=":", linewidth=1, label="the twins alone")
    axes.set(xscale="log", ylim=(0.55, 1.02), xlabel="keys per query", title=f"{length:,} tokens")
    axes.set_xticks(TICKS, [str(n) for n in TICKS])
    axes.set_xlim(1.5, 1.5 * length)
    axes.minorticks_off()


def draw(results: dict[int, dict[str, Any]], cost: dict[str, Any]) -> None:
    """Writes the figure: accuracy against edges for every length, and the price of a step against the length."""
    with saved_figure(FIGURE, 11.0, 3.4) as figure:
        *panels, last = figure.subplots(1, len(results) + 1)
        for ax, (length, result) in zip(panels, results.items(), strict=True):
            plot_accuracy(ax, result, length)
        panels[0].set_ylabel("accuracy")
        handles = {text: handle for ax in panels for handle, text in zip(*ax.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=7)
        lengths = [int(n) for n in cost["lengths"]]
        ratios = [found["fitted"]["ratio"] for found in cost["lengths"].values()]
        last.plot(lengths, ratios, color=GREEN, marker="o")
        last.axhline(1.0, color=BLUE, linewidth=1.2)
        last.set(xscale="log", yscale="log", xlabel="tokens", title="time of a step / full")
        last.set_xticks(lengths, [f"{n:,}" for n in lengths])
        last.set_yticks([1, 2, 5, 10], ["1", "2", "5", "10"])
        last.minorticks_off()


def main() -> None:
    """Measures, writes and draws."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    results = {n: read_json(HERE / f"fitted-{n}.json") for n in LENGTHS if (HERE / f"fitted-{n}.json").exists()}
    cost = {"lengths": {str(n): measure(n) for n in results}, "manifest": machine_manifest()}
    write_json(RESULT, cost)
    draw(results, cost)
    print({n: found["fitted"]["ratio"] for n, found in cost["lengths"].items()})


if __name__ == "__main__":
    run_command(main, "fitted_cost")

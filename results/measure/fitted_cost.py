"""What a training step with a fitted mask costs, relative to full attention; writes ``results/fitted_cost.json``.

``python results/measure/fitted_cost.py`` times steps from the trained weights of the studies ``fitted-64``,
``fitted-256`` and ``fitted-1024``, which must have run before (``sbmt study fitted-64``), and draws
``results/fitted.png`` from their results and its own. It takes a few minutes.

From 1,024 tokens on it times the attention alone, forward and backward: that of ``fitted-1024`` on the queries, keys
and values of one or several of its sequences, joined to a longer one. Rates are divided by how much longer it is, so
that those of a query sum to the same; they fall on more keys, of which fewer are drawn twice.
"""

from math import log
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from results.measure.landing import step_of
from sbmt.command import run_command
from sbmt.experiments.benchmarks.manifest import machine_manifest
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.data.repeated_tokens import sample_repeated_tokens
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY, VERMILLION
from sbmt.experiments.training.run import load_run
from sbmt.layers import SBMAttention

HERE = Path(__file__).resolve().parents[1]
RUNS, RESULT, FIGURE = HERE.parent / "runs", HERE / "fitted_cost.json", HERE / "fitted.png"
LENGTHS = 64, 256, 1024
TRAINED = LENGTHS[-1]
LONGER = 1024, 4096, 16384
TRIALS = {
    "full": ("full attention", BLUE),
    "fitted": ("fitted", GREEN),
    "straight-through": ("straight-through", VERMILLION),
    "random": ("random, fitted density", PURPLE),
    "window": ("window", ORANGE),
    "reformer": ("Reformer", SKY),
}
LINES = {"lengths": "-", "attention": "--"}
TICKS = 2, 5, 10, 20, 50, 100, 1000
PRICES = 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10
PACE = Pace(seconds=8.0, least=7, most=61)


def measure(length: int) -> dict[str, Any]:
    """Times of a step of full attention and of a fitted mask, each from its trained weights."""
    entries = {}
    for trial in ("full", "fitted"):
        run = load_run(RUNS / f"fitted-{length}" / f"{trial}-seed0")
        entries[trial] = step_of(run.config, run.model.train())
    return race(entries, PACE, reference="full", headline=("fitted",))


def measure_attention(length: int) -> dict[str, Any]:
    """Times of attention alone on a sequence of this length, with memberships as training left them."""
    run = load_run(RUNS / f"fitted-{TRAINED}" / "fitted-seed0")
    generator = torch.Generator().manual_seed(0)
    layer: SBMAttention = next(m for m in run.model.modules() if isinstance(m, SBMAttention))
    seen: list[Tensor] = []
    watch = layer.register_forward_pre_hook(lambda _, tokens: seen.extend(tokens))
    with torch.no_grad():
        run.model.eval()(sample_repeated_tokens(length // TRAINED, TRAINED, generator=generator)[0])
    watch.remove()
    tokens = [x.transpose(0, 1).flatten(1, 2)[None].requires_grad_() for x in seen]  # 1 heads length d
    layer.log_start.sub_(log(length / TRAINED))
    layer.train()
    drawn = layer(*tokens, generator=generator, return_edges=True).edges

    def full(_: Any) -> None:
        scaled_dot_product_attention(*tokens).sum().backward()

    def fitted(_: Any) -> None:
        out = layer(*tokens, generator=generator)
        (out.values.sum() + out.auxiliary_loss).backward()

    entries = {"full": Entry(full), "fitted": Entry(fitted)}
    keys = {"keys_per_query": drawn.n_edges / (length * layer.clusters.shape[0])}
    return race(entries, PACE, reference="full", headline=("fitted",)) | keys


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
        for part, marker, label in (("lengths", "o", "whole step"), ("attention", "s", "attention alone")):
            ratios = {int(n): found["fitted"]["ratio"] for n, found in cost[part].items()}
            last.plot(ratios.keys(), ratios.values(), color=GREEN, marker=marker, label=label, linestyle=LINES[part])
        lengths = sorted({int(n) for part in LINES for n in cost[part]})
        last.legend(fontsize="small")
        last.axhline(1.0, color=BLUE, linewidth=1.2)
        last.set(xscale="log", yscale="log", xlabel="tokens", title="time of a step / full")
        last.set_xticks(lengths, [f"{n:,}" for n in lengths])
        last.set_yticks(PRICES, [f"{price:g}" for price in PRICES])
        last.minorticks_off()


def main() -> None:
    """Measures, writes and draws."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    results = {n: read_json(HERE / f"fitted-{n}.json") for n in LENGTHS if (HERE / f"fitted-{n}.json").exists()}
    cost = {
        "lengths": {str(n): measure(n) for n in results},
        "attention": {str(n): measure_attention(n) for n in LONGER},
        "manifest": machine_manifest(),
    }
    write_json(RESULT, cost)
    draw(results, cost)
    for part in LINES:
        print(part, {n: found["fitted"]["ratio"] for n, found in cost[part].items()})


if __name__ == "__main__":
    run_command(main, "fitted_cost")

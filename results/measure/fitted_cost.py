"""The cost of a training step with a fitted mask, relative to full attention; writes ``results/fitted_cost.json``.

The steps start from the trained weights of the studies ``fitted-64``, ``fitted-256`` and ``fitted-1024``, which must
have run before. The script takes a few minutes and draws ``results/fitted.png`` from their results and its own.

From 1,024 tokens on, the attention alone is timed, forward and backward: that of ``fitted-1024`` on the queries, keys
and values of several sequences, joined to a longer one. Rates are divided by how many times longer it is, so that those
of a query have the same sum; they are spread over more keys, of which fewer are drawn twice.
"""

from math import log
from typing import Any

import torch
from matplotlib.ticker import NullFormatter
from torch.nn.functional import scaled_dot_product_attention

from results.lookup import load, reached
from results.measure.common import RESULTS, RUNS, run, write
from results.measure.landing import step_of
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.data.repeated_tokens import sample_repeated_tokens
from sbmt.experiments.manifest import machine_manifest
from sbmt.experiments.plots.style import saved_figure
from sbmt.experiments.training.run import load_run
from sbmt.sparsification.convert import fitted_layers
from sbmt.sparsification.fit import seen_heads

LENGTHS, LONGER = (64, 256, 1024), (1024, 4096, 16384)
MARKERS = {"full": "s", "reformer": "o", "fitted": "v", "straight-through": "D", "random": "^", "window": "P"}
PACE = Pace(seconds=8.0, least=7, most=61)


def measure(length: int) -> dict[str, Any]:
    """Times of a training step with full attention and with a fitted mask, each from its trained weights."""
    runs = {trial: load_run(RUNS / f"fitted-{length}" / f"{trial}-seed0") for trial in ("full", "fitted")}
    entries = {trial: step_of(one.config, one.model.train()) for trial, one in runs.items()}
    return race(entries, PACE, reference="full", headline=("fitted",))


def measure_attention(length: int) -> dict[str, Any]:
    """Times of attention alone on a sequence of this length, with memberships as training left them."""
    model = load_run(RUNS / "fitted-1024" / "fitted-seed0").model.eval()
    generator = torch.Generator().manual_seed(0)
    name, layer = next(iter(fitted_layers(model).items()))
    heads = seen_heads(model, sample_repeated_tokens(length // 1024, 1024, generator=generator)[0])[name]
    tokens = [x.transpose(0, 1).flatten(1, 2)[None].requires_grad_() for x in heads[:3]]  # 1 heads length d
    layer.log_start.sub_(log(length / 1024))
    layer.train()
    drawn = layer(*tokens, generator=generator, return_edges=True).edges

    def fitted(_: Any) -> None:
        out = layer(*tokens, generator=generator)
        (out.values.sum() + out.auxiliary_loss).backward()

    full = Entry(lambda _: scaled_dot_product_attention(*tokens).sum().backward())
    times = race({"full": full, "fitted": Entry(fitted)}, PACE, reference="full", headline=("fitted",))
    return times | {"keys_per_query": drawn.n_edges / (length * layer.clusters.shape[0])}


def draw(cost: dict[str, dict[str, Any]]) -> None:
    """Accuracy against keys per query for every length, a dot per run, and the cost of a step against the length."""
    with saved_figure(RESULTS / "fitted.png", 7.8, 6.4) as figure:
        *panels, last = figure.subplots(2, 2).ravel()
        for ax, length in zip(panels, LENGTHS, strict=True):
            titles = load(f"fitted-{length}")["titles"]
            for trial, marker in MARKERS.items():
                keys, accuracies = (reached(f"fitted-{length}", trial, metric) for metric in ("edges", "accuracy"))
                ax.plot(keys, accuracies, marker, markersize=9, alpha=0.8, label=titles.get(trial))
            ax.axvline(2 - 1 / length, color="0.4", linestyle=":", label="keys needed")  # a token and its equals
            ax.set(xscale="log", xlim=(0.7, 1500), ylim=(0.55, 1.03), title=f"{length:,} tokens")
            ax.set(xlabel="keys per query", ylabel="accuracy", xticks=(1, 10, 100, 1000))
            ax.xaxis.set_major_formatter("{x:,.0f}")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, fontsize="large")
        for part, style, title in (("lengths", "o-", "whole step"), ("attention", "s--", "attention alone")):
            ratios = {int(n): found["fitted"]["ratio"] for n, found in cost[part].items()}
            last.plot(ratios.keys(), ratios.values(), style, color="C2", markersize=8, label=title)
        last.axhline(1.0, color="C0")
        last.legend()
        last.set(xscale="log", yscale="log", xlabel="tokens", title="time of a step / full", xticks=(64, 1024, 16384))
        for axis, form in ((last.xaxis, "{x:,.0f}"), (last.yaxis, "{x:g}")):
            axis.set_major_formatter(form)
            axis.set_minor_formatter(NullFormatter())


def main() -> None:
    """Measures, writes and draws."""
    cost = {"lengths": {str(n): measure(n) for n in LENGTHS}}
    cost["attention"] = {str(n): measure_attention(n) for n in LONGER}
    write("fitted_cost", cost, machine_manifest())
    draw(cost)


if __name__ == "__main__":
    run(main, "fitted_cost")

"""Measures the attention mass covered by different masks in trained networks; writes ``results/attention_mass.json``.

The networks are trained with full attention by ``make long-range`` and ``make language``, which save them in ``runs/``.
Masks are fitted for each share of pairs, and all other kinds are tuned to equal density. The script takes an hour or
two on one core, and keeps the measurements of each network in ``runs/attention-mass``.

The published file was made by an older version (commit 91d52b8), where the rates of a single fit were scaled for all
shares, hashing and k-means were also compared, and three networks were trained further with each kind of mask.
"""

from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import torch
from matplotlib.ticker import NullFormatter, PercentFormatter
from rich.progress import track

from results.measure.common import RESULTS, RUNS, kept, run, write
from sbmt.experiments.plots.style import saved_figure
from sbmt.experiments.sparsification.compare import is_pair
from sbmt.experiments.sparsification.trained import sparsify_run, training_inputs
from sbmt.experiments.training.run import Run, load_run
from sbmt.sparsification import sparsify
from sbmt.sparsification.fit import seen_heads

NETWORKS = {
    "ListOps": "listops-edges/full-seed0",
    "Text": "text/full-seed0",
    "Retrieval, topics": "retrieval-topics/full-seed0",
    "Image": "image/full-seed0",
    "Pathfinder": "pathfinder/full-seed0",
    "masked language model": "glue/mlm/full-seed0",
}
SHARES = 0.01, 0.02, 0.05, 0.1
STEPS, EXAMPLES = 300, 1000


def mean_keys(trained: Run) -> float:
    """Returns the mean number of real keys per example, over a sample of the training examples."""
    model = sparsify(trained.model, edges_per_query=1.0)
    batches = islice(training_inputs(trained), 8)
    seen = [next(iter(seen_heads(model, batch).values())) for batch in batches]
    return float(torch.cat([is_pair(heads).sum(-1).amax((1, 2)) for heads in seen]).double().mean())


def measure(name: str) -> dict[str, Any]:
    """Compares masks in one network, for all shares of pairs with at least one key per query."""
    trained = load_run(RUNS / NETWORKS[name])
    keys = mean_keys(trained)
    shares = [share for share in SHARES if share * keys >= 1]
    found = [sparsify_run(trained, EXAMPLES, STEPS, {"edges_per_query": share * keys})[1] for share in shares]
    full = found[0]["full"]
    return {"shares": shares, "mean_keys": keys, "full": full, "levels": [level["kinds"] for level in found]}


def draw(networks: dict[str, dict[str, Any]], path: Path) -> None:
    """Plots the share of attention on edges against the share of pairs that are edges, with one panel per network."""
    with saved_figure(path, 7.8, ceil(len(networks) / 3) * 2.5 + 0.9) as figure:
        panels = figure.subplots(ceil(len(networks) / 3), 3, squeeze=False, sharey=True).ravel()
        for axes, (title, result) in zip(panels, networks.items(), strict=True):
            for i, kinds in enumerate(zip(*result["levels"], strict=True)):
                x, y = ([kind[name] for kind in kinds] for name in ("density", "attention_mass"))
                axes.plot(x, y, ("o-", "o--", "o:")[i // 6], color=f"C{i % 6}", markersize=3.5, label=kinds[0]["kind"])
            axes.set(title=title, xscale="log", ylim=(0, 1.02), xticks=result["shares"])
            axes.xaxis.set_major_formatter(PercentFormatter(1.0, 0))
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        figure.supxlabel("share of pairs that are edges")
        figure.supylabel("attention along edges")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)


def main() -> None:
    """Measures all networks, writes the result file and draws the figure."""
    names = track(NETWORKS, "networks")
    found = {name: kept(f"attention-mass/{name}.json", partial(measure, name)) for name in names}
    write("attention_mass", {"networks": found})
    draw(found, RESULTS / "attention_mass.png")


if __name__ == "__main__":
    run(main, "attention_mass")

"""How much attention masks of several kinds see in trained networks; writes ``results/attention_mass.json``.

Each network was trained with full attention: ``make long-range`` and ``make language`` leave them in ``runs/``. Fitted
masks are fitted to it once, for 5 % of the pairs; a common factor of all rates brings them to the other shares. Every
other kind is tuned for each share. Some networks are also trained further under each kind, and under full attention.
It takes an hour on one core; what was measured of a network is kept in ``runs/attention-mass``.
"""

from itertools import islice
from math import ceil
from pathlib import Path
from typing import Any

import torch
from matplotlib.ticker import NullFormatter, PercentFormatter
from rich.progress import track

from results.measure.common import RESULTS, RUNS, kept, run, write
from sbmt.experiments.plots.style import saved_figure
from sbmt.experiments.sparsification.compare import compare, examples, fit_run, report
from sbmt.experiments.sparsification.masks import n_keys
from sbmt.experiments.training.evaluate import inputs
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
SHARES, FITTED_FOR = (0.01, 0.02, 0.05, 0.1), 0.05
STEPS, EXAMPLES, FINE_TUNE_STEPS = 300, 1000, 300
FINE_TUNED = "ListOps", "Retrieval, topics", "Pathfinder"
"""Networks that score well above chance, and for which some masks lose more than others."""


def mean_keys(trained: Run) -> float:
    """The mean number of real keys per example, over some of the training examples."""
    model = sparsify(trained.model, edges_per_query=1.0)
    batches = map(inputs, islice(examples(trained, "train"), 8))
    seen = [next(iter(seen_heads(model, batch).values())) for batch in batches]
    return float(torch.cat([n_keys(heads).flatten() for heads in seen]).mean())


def measure(trained: Run, fine_tune_steps: int) -> dict[str, Any]:
    """The report of one network, for the shares of pairs that leave a query at least one key.

    With further training there is a single share.
    """
    keys = mean_keys(trained)
    sparse = fit_run(trained, FITTED_FOR * keys, STEPS)
    shares = [FITTED_FOR] if fine_tune_steps else [share for share in SHARES if share * keys >= 1]
    levels = [compare(trained, sparse, s, EXAMPLES, fine_tune_steps=fine_tune_steps) for s in shares]
    return {"shares": shares, "mean_keys": keys, **report(trained, levels, fine_tune_steps)}


def report_on(name: str, fine_tune_steps: int = 0) -> dict[str, Any]:
    """The measurements of one network."""
    place = f"attention-mass/{name}{' tuned' if fine_tune_steps else ''}.json"
    found: dict[str, Any] = kept(place, lambda: measure(load_run(RUNS / NETWORKS[name]), fine_tune_steps))
    del found["manifest"]
    return found


def draw(networks: dict[str, dict[str, Any]], path: Path) -> None:
    """A panel per network, a line per kind of mask: share of attention along edges over the share of pairs."""
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
        figure.supylabel("attention along them")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)


def main() -> None:
    """Measures, writes and draws."""
    found = {}
    for name in track(NETWORKS, "networks"):
        tuned = {"tuned": report_on(name, FINE_TUNE_STEPS)} if name in FINE_TUNED else {}
        found[name] = report_on(name) | tuned
    write("attention_mass", {"networks": found})
    draw(found, RESULTS / "attention_mass.png")


if __name__ == "__main__":
    run(main, "attention_mass")

"""How much attention masks of several kinds see in trained networks; writes ``results/attention_mass.json``.

Each network was trained with full attention: ``make long-range`` and ``make language`` leave them in ``runs/``. Fitted
masks are fitted to it once, for 5 % of the pairs; a common factor of all rates brings them to the other shares. Every
other kind is tuned for each share. ``python results/measure/attention_mass.py`` takes half an hour on one core, and is
resumable; names of networks may be given to measure these alone.
"""

import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from sbmt.command import run_command
from sbmt.errors import choose
from sbmt.experiments.cli.progress import progress_bars
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.plots.sparsification import draw_recall
from sbmt.experiments.sparsification.compare import Inputs, compare, fit_run, report
from sbmt.experiments.sparsification.masked import n_keys
from sbmt.experiments.training.run import Run, load_run, manifest
from sbmt.sparsification import sparsify
from sbmt.sparsification.watch import seen_heads

RESULT = Path(__file__).resolve().parents[1] / "attention_mass.json"
RUNS = RESULT.parents[1] / "runs"
NETWORKS = {
    "ListOps": "listops/full-seed0",
    "Text": "text/full-seed0",
    "Retrieval, topics": "retrieval-topics/full-seed0",
    "Image": "image/full-seed0",
    "Pathfinder": "pathfinder/full-seed0",
    "masked language model": "glue/mlm/full-seed0",
}
SHARES = 0.01, 0.02, 0.05, 0.1
FITTED_FOR = 0.05
STEPS, EXAMPLES = 300, 1000


def mean_keys(run: Run) -> float:
    """Real keys of an example, on average over some of the training examples."""
    model = sparsify(run.model, edges_per_query=1.0)
    seen = [next(iter(seen_heads(model, batch).values())) for batch in Inputs(run, "train", 8)]
    return float(torch.cat([n_keys(heads).flatten() for heads in seen]).mean())


def measure(run: Run) -> dict[str, Any]:
    """The report of one network, with the shares of pairs that leave a query at least one key."""
    keys = mean_keys(run)
    sparse = fit_run(run, FITTED_FOR * keys, STEPS)
    shares = [share for share in SHARES if share * keys >= 1]
    found = report(run, [compare(run, sparse, share, EXAMPLES) for share in shares])
    return {"shares": shares, "mean_keys": keys, "seconds_of_fit": round(sparse.seconds), **found}


def main() -> None:
    """Measures, writes and draws."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    names = sys.argv[1:] or list(NETWORKS)
    for name in names:
        choose("network", name, NETWORKS)
    found = {}
    with progress_bars(Console()) as progress:
        for name in progress.track(names, description="networks"):
            kept = RUNS / "attention-mass" / f"{name}.json"
            if not kept.exists():
                write_json(kept, measure(load_run(RUNS / NETWORKS[name])))
            found[name] = read_json(kept)
            del found[name]["manifest"]
    if names == list(NETWORKS):
        write_json(RESULT, {"networks": found, "manifest": manifest()})
        draw_recall(list(found.values()), RESULT.with_suffix(".png"), list(found))


if __name__ == "__main__":
    run_command(main, "attention_mass")

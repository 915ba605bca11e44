"""How much attention masks of several kinds see in trained networks; writes ``results/attention_mass.json``.

Each network was trained with full attention: ``make long-range`` and ``make language`` leave them in ``runs/``. Fitted
masks are fitted to it once, for 5 % of the pairs; a common factor of all rates brings them to the other shares. Every
other kind is tuned for each share. Some networks are also trained further under each kind, and under full attention.
``python results/measure/attention_mass.py`` takes an hour on one core, and is resumable; names of networks may be given
to measure these alone.
"""

import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from sbmt.command import run_command
from sbmt.errors import choose
from sbmt.experiments.cli.progress import progress_bars
from sbmt.experiments.files import read_json, write_json
from sbmt.experiments.plots.sparsification import draw_attention_mass
from sbmt.experiments.sparsification.compare import compare, examples, fit_run, report
from sbmt.experiments.sparsification.masks import n_keys
from sbmt.experiments.training.evaluate import inputs
from sbmt.experiments.training.run import Run, load_run, manifest
from sbmt.sparsification import sparsify
from sbmt.sparsification.fit import seen_heads

RESULT = Path(__file__).resolve().parents[1] / "attention_mass.json"
RUNS = RESULT.parents[1] / "runs"
NETWORKS = {
    "ListOps": "listops-edges/full-seed0",
    "Text": "text/full-seed0",
    "Retrieval, topics": "retrieval-topics/full-seed0",
    "Image": "image/full-seed0",
    "Pathfinder": "pathfinder/full-seed0",
    "masked language model": "glue/mlm/full-seed0",
}
SHARES = 0.01, 0.02, 0.05, 0.1
FITTED_FOR = 0.05
STEPS, EXAMPLES = 300, 1000
FINE_TUNED = "ListOps", "Retrieval, topics", "Pathfinder"
"""The networks that answer well above chance, and where some masks lose more than others."""
FINE_TUNE_STEPS = 300


def mean_keys(run: Run) -> float:
    """Real keys of an example, on average over some of the training examples."""
    model = sparsify(run.model, edges_per_query=1.0)
    batches = map(inputs, islice(examples(run, "train"), 8))
    seen = [next(iter(seen_heads(model, batch).values())) for batch in batches]
    return float(torch.cat([n_keys(heads).flatten() for heads in seen]).mean())


def measure(run: Run) -> dict[str, Any]:
    """The report of one network, with the shares of pairs that leave a query at least one key."""
    keys = mean_keys(run)
    sparse = fit_run(run, FITTED_FOR * keys, STEPS)
    shares = [share for share in SHARES if share * keys >= 1]
    found = report(run, [compare(run, sparse, share, EXAMPLES) for share in shares])
    return {"shares": shares, "mean_keys": keys, "seconds_of_fit": round(sparse.seconds), **found}


def measure_tuned(run: Run) -> dict[str, Any]:
    """The report of a network that is trained further under masks that hold 5 % of the pairs."""
    keys = mean_keys(run)
    sparse = fit_run(run, FITTED_FOR * keys, STEPS)
    found = compare(run, sparse, FITTED_FOR, EXAMPLES, fine_tune_steps=FINE_TUNE_STEPS)
    return {"shares": [FITTED_FOR], "mean_keys": keys, **report(run, [found], FINE_TUNE_STEPS)}


def kept(name: str, measure: Callable[[Run], dict[str, Any]]) -> dict[str, Any]:
    """What is measured of a network, or was in an earlier run of this script."""
    path = RUNS / "attention-mass" / f"{name}{' tuned' if measure is measure_tuned else ''}.json"
    if not path.exists():
        write_json(path, measure(load_run(RUNS / NETWORKS[name])))
    found = read_json(path)
    del found["manifest"]
    return found


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
            found[name] = kept(name, measure)
            if name in FINE_TUNED:
                found[name]["tuned"] = kept(name, measure_tuned)
    if names == list(NETWORKS):
        write_json(RESULT, {"networks": found, "manifest": manifest()})
        draw_attention_mass(list(found.values()), RESULT.with_suffix(".png"), list(found))


if __name__ == "__main__":
    run_command(main, "attention_mass")

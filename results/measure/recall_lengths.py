"""Measures recall on sequences far longer than those of training; writes ``results/recall_lengths.json``.

``python results/measure/recall_lengths.py`` evaluates the runs of ``sbmt study recall``, which were trained on 64
tokens, with additional distractors. The script also times full attention and the fitted mask, and draws
``results/recall.png``. It takes a quarter of an hour.
"""

from dataclasses import replace
from typing import Any

import torch
from rich.progress import track

from results.measure.common import RESULTS, RUNS, run, write
from sbmt.experiments.benchmarks.machine import machine_manifest
from sbmt.experiments.benchmarks.timing import Entry, race
from sbmt.experiments.plots.style import saved_figure
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.training.evaluate import evaluate, inputs
from sbmt.experiments.training.run import Run, load_run

LENGTHS = 64, 512, 2048, 8192, 16_384
QUERIES = 1024  # number of queries at each length up to 2,048 tokens; a quarter of this number for longer sequences


def at_length(trained: Run, length: int) -> Run:
    """Returns the run with the number of distractors for which sequences have the given length."""
    config: Any = trained.config
    return replace(trained, config=replace(config, n_distractors=length - config.n_pairs - config.n_queries))


def scores(trained: Run, length: int) -> dict[str, float]:
    """Returns a run's accuracy and density on unseen sequences of a given length."""
    n_queries = QUERIES if length <= 2048 else QUERIES // 4
    found = evaluate(at_length(trained, length), n_queries // trained.config.n_queries, seed=1)
    return {"accuracy": found.accuracy, "density": found.density}


def answering(trained: Run, length: int) -> Entry:
    """Prepares the timing of a forward pass that answers all queries of one sequence."""
    batch = at_length(trained, length).config.sample(1, torch.Generator().manual_seed(0))
    model, masks = trained.model.eval(), torch.Generator().manual_seed(1)
    return Entry(torch.no_grad()(lambda _: model(**inputs(batch), generator=masks)))


def draw(runs: list[dict[str, Any]], times: dict[str, Any]) -> None:
    """Plots accuracy, density and time per sequence against length, with a line style for each trial."""
    with saved_figure(RESULTS / "recall.png", 10.0, 3.8) as figure:
        *panels, seconds = figure.subplots(1, 3)
        titles = {trial.name: trial.title for trial in STUDIES["recall"].trials}
        names = list(dict.fromkeys(one["trial"] for one in runs))
        looks = {name: {"color": f"C{i % 6}", "linestyle": ("-", "--", ":")[i // 6]} for i, name in enumerate(names)}
        for ax, metric in zip(panels, ("accuracy", "density"), strict=True):
            for one in runs:
                title = titles.get(one["trial"], one["trial"]) if one["seed"] == 0 else None
                values = [at[metric] for at in one["lengths"].values()]
                ax.plot(LENGTHS, values, **looks[one["trial"]], marker="o", markersize=3, label=title)
        for trial in ("full", "fitted"):
            medians = [times[str(n)][trial]["median"] for n in LENGTHS]
            seconds.plot(LENGTHS, medians, **looks[trial], marker="o", label=trial)
        for ax, title in zip((*panels, seconds), ("accuracy", "density", "milliseconds per sequence"), strict=True):
            ax.set(xscale="log", yscale="linear" if title == "accuracy" else "log", xlabel="tokens", title=title)
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)


def main() -> None:
    """Evaluates and times all runs, writes the result file and draws the figure."""
    runs, first = [], {}
    for trial, seed in track(list(STUDIES["recall"].plan()), "networks"):
        trained = load_run(RUNS / "recall" / f"{trial.name}-seed{seed}")
        first.setdefault(trial.name, trained)
        runs.append({"trial": trial.name, "seed": seed, "lengths": {str(n): scores(trained, n) for n in LENGTHS}})
    times = {}
    for n in LENGTHS:
        entries = {trial: answering(first[trial], n) for trial in ("full", "fitted")}
        times[str(n)] = race(entries, reference="full", seconds=20.0, least=3, most=21)
    write("recall_lengths", {"evaluated": runs, "times": times}, machine_manifest())
    draw(runs, times)


if __name__ == "__main__":
    run(main, "recall_lengths")

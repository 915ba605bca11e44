"""Associative recall on sequences far longer than those of training; writes ``results/recall_lengths.json``.

``python results/measure/recall_lengths.py`` evaluates the runs of the study ``recall`` (``sbmt study recall``), all of
which train on 64 tokens, with more distractors, and times full attention against the fitted mask. It draws
``results/recall.png`` and takes a quarter of an hour.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from sbmt.command import run_command
from sbmt.experiments.benchmarks.manifest import machine_manifest
from sbmt.experiments.benchmarks.timing import Entry, Pace, race
from sbmt.experiments.files import write_json
from sbmt.experiments.plots.save import saved_figure
from sbmt.experiments.plots.style import BLUE, GREEN, INK, ORANGE, PURPLE, SKY
from sbmt.experiments.studies.named import STUDIES
from sbmt.experiments.training.evaluate import call_model, evaluate
from sbmt.experiments.training.run import Run, load_run

HERE = Path(__file__).resolve().parents[1]
RUNS, RESULT, FIGURE = HERE.parent / "runs" / "recall", HERE / "recall_lengths.json", HERE / "recall.png"
LENGTHS = 64, 512, 2048, 8192, 16_384
QUERIES = 1024  # asked at each length up to 2,048 tokens, and a quarter of that beyond
LOOKS = {
    "fitted": (GREEN, "-"),
    "full": (BLUE, "-"),
    "random": (PURPLE, "-"),
    "window": (ORANGE, "-"),
    "window-random": (INK, "-"),
    "reformer": (SKY, "-"),
    "full-scaled": (BLUE, "--"),
    "routing": (SKY, "--"),
    "oracle": (INK, "--"),
    "fitted-permuted": (GREEN, ":"),
    "full-permuted": (BLUE, ":"),
    "reformer-permuted": (SKY, ":"),
    "routing-permuted": (SKY, "-."),
}
"""Colour and style of each trial's lines; those of permuted keys are dotted."""
PACE = Pace(seconds=20.0, least=3, most=21)


def at_length(run: Run, length: int) -> Run:
    """The run with so many distractors that sequences have this length."""
    config: Any = run.config
    return replace(run, config=replace(config, n_distractors=length - config.n_pairs - config.n_queries))


def scores(run: Run, length: int) -> dict[str, float]:
    """Accuracy and density on unseen sequences of a length."""
    n_queries = QUERIES if length <= 2048 else QUERIES // 4
    found = evaluate(at_length(run, length), n_queries // run.config.n_queries, seed=1)
    return {"accuracy": found.accuracy, "density": found.density}


def answering(run: Run, length: int) -> Entry:
    """Answers the queries of one sequence."""
    batch = at_length(run, length).config.sample(1, torch.Generator().manual_seed(0))
    model, masks = run.model.eval(), torch.Generator().manual_seed(1)

    @torch.no_grad()
    def answer(_: object) -> None:
        call_model(model, batch, masks)

    return Entry(answer)


def draw(runs: list[dict[str, Any]], times: dict[str, Any]) -> None:
    """Writes the figure: accuracy, density and time of an answer against the length."""
    with saved_figure(FIGURE, 10.0, 3.8) as figure:
        accuracy, density, seconds = figure.subplots(1, 3)
        for trial in STUDIES["recall"].trials:
            for number, run in enumerate(run for run in runs if run["trial"] == trial.name):
                colour, style = LOOKS[trial.name]
                look: dict[str, Any] = {"color": colour, "linestyle": style, "marker": "o", "markersize": 3}
                look["label"] = trial.title if number == 0 else None
                for ax, name in ((accuracy, "accuracy"), (density, "density")):
                    ax.plot([int(n) for n in run["lengths"]], [at[name] for at in run["lengths"].values()], **look)
        for trial, title in (("full", "full attention"), ("fitted", "fitted")):
            medians = [times[str(n)][trial]["median"] for n in LENGTHS]
            seconds.plot(LENGTHS, medians, color=LOOKS[trial][0], marker="o", markersize=3, label=title)
        for ax, title in ((accuracy, "accuracy"), (density, "density"), (seconds, "milliseconds a sequence")):
            ax.set(xscale="log", xlabel="tokens", title=title)
        density.set_yscale("log")
        seconds.set_yscale("log")
        figure.legend(*accuracy.get_legend_handles_labels(), loc="outside upper center", ncols=4)


def main() -> None:
    """Evaluates, times, writes and draws."""
    torch.set_num_threads(1)
    runs, first = [], {}
    for trial, seed in STUDIES["recall"].plan():
        run = load_run(RUNS / f"{trial.name}-seed{seed}")
        first.setdefault(trial.name, run)
        lengths = {str(n): scores(run, n) for n in LENGTHS}
        runs.append({"trial": trial.name, "seed": seed, "lengths": lengths})
        print(trial.name, seed, lengths, flush=True)
    times = {}
    for n in LENGTHS:
        entries = {trial: answering(first[trial], n) for trial in ("full", "fitted")}
        times[str(n)] = race(entries, PACE, reference="full", headline=("fitted",))
        print(n, times[str(n)]["fitted"]["ratio"], flush=True)
    write_json(RESULT, {"evaluated": runs, "times": times, "manifest": machine_manifest()})
    draw(runs, times)


if __name__ == "__main__":
    run_command(main, "recall_lengths")

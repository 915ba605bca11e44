"""The tables of the page on long-range tasks, from the results of their studies."""

from collections.abc import Iterable
from statistics import mean, stdev
from typing import Any

from results.tables.files import Files
from results.tables.grid import grid, points
from results.tables.longer_inputs import longer_table, same_share_table
from sbmt.experiments.tables import LEFT_OUT
from sbmt.experiments.training.tasks import PAPER

TASKS = {
    "listops": "ListOps",
    "text": "Text",
    "retrieval-topics": "Retrieval, topics",
    "retrieval": "Retrieval, films",
    "image": "Image",
    "pathfinder": "Pathfinder",
}


def accuracy_table(results: dict[str, dict[str, Any]]) -> str:
    """Mean ± deviation over seeds, and density unless it is 100, in percent; laid out as the paper's Tables 1 and 2."""
    titles = {trial: title for result in results.values() for trial, title in result["titles"].items()}
    rows = []
    for trial, title in titles.items():
        cells = [_accuracy([run for run in result["runs"] if run["trial"] == trial]) for result in results.values()]
        rows.append((title, *cells))
    chances = [f"{100 * result['runs'][0]['chance']:.1f}" for result in results.values()]
    rows.append(("always the commonest label", *chances))
    return grid(("", *(TASKS[task].replace(", ", ",<br>") for task in results)), rows)


def _accuracy(runs: list[dict[str, Any]]) -> str:
    if not runs:
        return LEFT_OUT
    accuracies = [100 * run["test"]["accuracy"] for run in runs]
    spread = f" ± {stdev(accuracies):.1f}" if len(runs) > 1 else ""
    density = 100 * mean(run["test"]["density"] for run in runs)
    return f"{mean(accuracies):.1f}{spread}" + (f" ({density:.1f})" if density < 100 else "")


def interval_table(results: dict[str, dict[str, Any]]) -> str:
    """Every run with the 95 % interval that its test examples allow, beside the accuracy of guessing."""
    rows = []
    for task, result in results.items():
        for trial, title in result["titles"].items():
            for run in (r for r in result["runs"] if r["trial"] == trial):
                low, high = run["interval"]
                cells = [TASKS[task], title, str(run["config"]["seed"]), f"{run['test']['accuracy']:.3f}"]
                cells += [f"{low:.3f} to {high:.3f}", f"{run['chance']:.3f}", f"{run['seconds']:.0f}"]
                rows.append(cells)
    return grid(("task", "attention", "seed", "accuracy", "95 % interval", "guessing", "seconds"), rows)


def paired_table(studies: dict[str, dict[str, Any]], titles: dict[str, str]) -> str:
    """Points that masks of equal edges lose to full attention answer by answer, and those by which fitted ones lead."""
    names = [name for task in TASKS if (name := f"{task}-edges") in studies]
    rows = []
    labels = {"lost": "{}", "ahead": "*{}: ahead of random ones by*", "ahead_of_window": "*{}: ahead of the window by*"}
    for kind, label in labels.items():
        trials = dict.fromkeys(trial for trial in titles for name in names if trial in studies[name][kind])
        rows += [
            (label.format(titles[trial]), *(_points(studies[name][kind].get(trial)) for name in names))
            for trial in trials
        ]
    return grid(("", *(TASKS[name.removesuffix("-edges")].replace(", ", ",<br>") for name in names)), rows)


def _points(difference: dict[str, float] | None) -> str:
    if difference is None:
        return LEFT_OUT
    return points(difference["mean"], difference["error"])


def settings_table(results: dict[str, dict[str, Any]]) -> str:
    """How each task was reduced."""
    rows = []
    for task, result in results.items():
        run = result["runs"][0]
        config, data = run["config"], run["data"]
        sizes = f"{data['n_train']:,}, {run['n_test']:,}"
        numbers = (config["length"], f"{config['batch_size']}, {config['steps']}", sizes, data["origin"])
        rows.append((TASKS[task], f"`{data['name']}`", *numbers))
    return grid(("", "examples", "tokens", "batch, steps", "train, test examples", "origin"), rows)


def layers_table(results: dict[str, dict[str, Any]]) -> str:
    """Density of SBM's masks by layer and head, in percent: means over seeds."""
    rows = []
    for task, result in results.items():
        mine = [run["test"]["densities"] for run in result["runs"] if run["trial"] == "sbm"]
        cells = [f"{100 * mean(d[a][b] for d in mine):.1f}" for a in range(2) for b in range(2)]
        rows.append((TASKS[task], *cells))
    return grid(("", *(f"layer {a}, head {b}" for a in (1, 2) for b in (1, 2))), rows)


def retrieval_ceiling_table(result: dict[str, Any]) -> str:
    """What counting the words that two documents share achieves, by how much of them is read."""
    rows = [(f"{int(length):,}", f"{value:.3f}") for length, value in result["accuracy"].items()]
    return grid(("first bytes of each document", "accuracy of counting shared words"), rows)


def full_size_table(result: dict[str, Any], tasks: Iterable[str]) -> str:
    """One optimiser step at the paper's length, for those of the tasks that were tried."""
    heads = ("", "tokens", "density", "seconds per example", "peak memory, MiB", "paper's batch", "minutes for it")
    names = ("length", "density", "seconds_per_example", "peak_mib", "batch_size", "minutes_per_batch")
    found = {task: result["tasks"][task] for task in tasks if task in result["tasks"]}
    return grid(heads, [(task, *(f"{one[name]:,}" for name in names)) for task, one in found.items()])


def long_range_page(files: Files) -> dict[str, str]:
    """The page's tables by name."""
    found = {task: files.load(task) for task in TASKS if files.has(task)}
    if not found:
        return {}
    tables = {
        "long-range-accuracy": accuracy_table(found),
        "long-range-interval": interval_table(found),
        "long-range-settings": settings_table(found),
        "long-range-layers": layers_table(found),
    }
    edges = {task: files.load(f"{task}-edges") for task in TASKS if files.has(f"{task}-edges")}
    if edges:
        tables["long-range-edges"] = accuracy_table(edges)
    titles = {trial: title for result in edges.values() for trial, title in result["titles"].items()}
    if files.has("paired"):
        tables["long-range-paired"] = paired_table(files.load("paired")["studies"], titles)
    if files.has("longer_inputs"):
        longer = files.load("longer_inputs")["tasks"]
        tables |= {"longer-inputs": longer_table(longer), "longer-shares": same_share_table(longer)}
    if files.has("retrieval_ceiling"):
        tables["retrieval-ceiling"] = retrieval_ceiling_table(files.load("retrieval_ceiling"))
    if files.has("full_size"):
        tables["full-size"] = full_size_table(files.load("full_size"), PAPER)
    return tables

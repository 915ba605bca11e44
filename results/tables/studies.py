"""The tables of the synthetic task, from the results of its studies."""

from collections.abc import Iterable
from math import exp
from statistics import median
from typing import Any

from results.tables.files import Files, find
from results.tables.grid import grid, spread

STUDIES = ("figure4", "figure4-64", "collapse", "decides", "sparse")
FITTED_LENGTHS = 64, 256, 1024
UNSEEN = ("fresh-64", "fresh-256", "twins")
ESTIMATORS = {
    "score": "straight-through, `score` (equation 9)",
    "weight": "straight-through, `weight`",
    "removal": "straight-through, `removal`",
    "score/q": "`score` / q",
    "weight/q": "`weight` / q",
    "removal/q": "`removal` / q",
    "reinforce": "REINFORCE",
}


def study_table(result: dict[str, Any]) -> str:
    """A row per trial: parameters, seeds, and medians with ranges over the seeds."""
    rows = []
    for trial, title in result["titles"].items():
        mine = [run for run in result["runs"] if run["trial"] == trial]
        cells = [f"{mine[0]['n_parameters']:,}", f"{len(mine)}"]
        for name in ("accuracy", "density", "loss"):
            values = [run["test"][name] for run in mine]
            cells.append(spread(values) if len(mine) > 1 else f"{values[0]:.3f}")
        rows.append((title, *cells))
    return grid(("", "parameters", "seeds", "accuracy", "density", "loss"), rows)


def seeds_table(result: dict[str, Any]) -> str:
    """A row per trial, a column per seed: accuracy / density."""
    seeds = sorted({run["config"]["seed"] for run in result["runs"]})
    rows = []
    by_run = {(run["trial"], run["config"]["seed"]): run["test"] for run in result["runs"]}
    for trial, title in result["titles"].items():
        tests = [by_run.get((trial, seed)) for seed in seeds]
        cells = [f"{test['accuracy']:.3f} / {test['density']:.2f}" if test else "" for test in tests]
        rows.append((title, *cells))
    return grid(("seed", *seeds), rows)


def algorithm_1_table(result: dict[str, Any]) -> str:
    """Where the density of Algorithm 1 ends up, with and without exploration, beside its limits."""
    run = find(result["runs"], trial="sbm-algorithm-1")
    found = (
        ("while training, δ = .01", 1.01, run["curve"]["density"][-1]),
        ("in eval mode", 1.0, run["test"]["density"]),
    )
    rows = [(title, f"1 − exp(−{rate:g}) = {1 - exp(-rate):.3f}", f"{density:.3f}") for title, rate, density in found]
    return grid(("Algorithm 1", "limit", "density reached"), rows)


def pushes_table(result: dict[str, Any]) -> str:
    """How each kind of edge pushes its probability, at a few moments of training."""
    heads = ("", "step", "loss", "density", "p of twins", "push of self", "of twins", "of others")
    rows = []
    for title, found in result["cases"].items():
        for step in (100, 200, 300, 500, 700, 900):
            i = found["step"].index(step)
            columns = ("loss", "density", "p_twin", "push_self", "push_twin", "push_other")
            digits = (2, 2, 2, 3, 3, 3)
            cells = [f"{found[name][i]:.{n}f}" for name, n in zip(columns, digits, strict=True)]
            rows.append((title, step, *cells))
    return grid(heads, rows)


def ste_bias_table(result: dict[str, Any], scores: str = "scores blind to use", exploration: float = 0.0) -> str:
    """Relative bias · relative variance · cosine: a row per estimator, a column per p."""
    rows = find(result["parts"], scores=scores, exploration=exploration)["rows"]
    columns = [p for p in result["settings"]["probabilities"] if p in (0.05, 0.25, 0.5, 0.75, 0.95)]
    lines = []
    for name, title in ESTIMATORS.items():
        cells = []
        for p in columns:
            row = find(rows, estimator=name, probability=p)
            variance = row["relative_variance"]
            shown = f"{variance:.2g}" if variance < 10 else f"{variance:.0f}"
            cells.append(f"{row['relative_bias']:.2f} · {shown} · {row['cosine']:.2f}")
        lines.append((title, *cells))
    return grid(("bias · variance · cosine", *(f"p = {p:g}" for p in columns)), lines)


def fitted_table(results: dict[int, dict[str, Any]], cost: dict[str, Any] | None) -> str:
    """A row per length and trial: seeds, accuracy, keys per query, density, and the time of a step where measured."""
    rows = []
    for length, result in results.items():
        times = cost["lengths"].get(str(length), {}) if cost else {}
        for trial, title in result["titles"].items():
            ratio = f"{times[trial]['ratio']:.1f} ×" if trial in times else ""
            rows.append((f"{length:,}", title, *_reached(result, trial), ratio))
    return grid(("tokens", "", *REACHED, "step"), rows)


def attention_cost_table(cost: dict[str, dict[str, Any]]) -> str:
    """A row per length: keys per query, density, and the time of attention, forward and backward, over full's."""
    rows = []
    for n, found in cost.items():
        keys, time = found["keys_per_query"], found["fitted"]
        ratio = f"{time['ratio']:.2f} × ({time['ratio_low']:.2f} to {time['ratio_high']:.2f})"
        rows.append((f"{int(n):,}", f"{keys:.1f}", f"{keys / int(n):.4f}", ratio))
    return grid(("tokens", "keys per query", "density", "time over full attention's"), rows)


def unseen_table(results: Iterable[dict[str, Any]]) -> str:
    """A row per study and trial: seeds, accuracy, keys per query and density."""
    rows = [
        (result["title"], title, *_reached(result, trial))
        for result in results
        for trial, title in result["titles"].items()
    ]
    return grid(("", "", *REACHED), rows)


REACHED = "seeds", "accuracy", "keys per query", "density"


def _reached(result: dict[str, Any], trial: str) -> tuple[object, ...]:
    """Seeds, accuracy with its range, keys per query and density of a trial, medians over its seeds."""
    mine = [run for run in result["runs"] if run["trial"] == trial]
    density, length = median(run["test"]["density"] for run in mine), mine[0]["config"]["length"]
    accuracy = spread([run["test"]["accuracy"] for run in mine])
    return len(mine), accuracy, f"{density * length:.1f}", f"{density:.3f}"


def recall_table(result: dict[str, Any], titles: dict[str, str]) -> str:
    """A row per trial, a column per length: accuracy / density, medians over seeds; below, the time of an answer."""
    lengths = list(result["times"])
    rows = []
    for trial, title in titles.items():
        mine = [run["lengths"] for run in result["evaluated"] if run["trial"] == trial]
        cells = []
        for n in lengths:
            found = [at[n] for at in mine if n in at]
            accuracy, density = (median(one[name] for one in found) if found else 0 for name in ("accuracy", "density"))
            cells.append(f"{accuracy:.3f} / {density:.3f}" if found else "")
        rows.append((f"{title} ({len(mine)})", *cells))
    ratios = [f"{result['times'][n]['fitted']['ratio']:.2f} ×" for n in lengths]
    rows.append(("time of an answer, fitted over full", *ratios))
    return grid(("trained on 64 tokens (seeds)", *(f"{int(n):,}" for n in lengths)), rows)


def optimiser_table(tasks: dict[str, Any]) -> str:
    """Accuracy and density of fitted masks by task, optimiser and seed."""
    rows = [
        (task, name, *(f"{100 * at['accuracy']:.1f} % / {100 * at['density']:.1f} %" for at in seeds.values()))
        for task, optimisers in tasks.items()
        for name, seeds in optimisers.items()
    ]
    return grid(("task", "optimiser", *(f"seed {seed}" for seed in next(iter(tasks.values()))["Adam"])), rows)


def fitted_page(files: Files) -> dict[str, str]:
    """The tables of the page on fitted masks by name."""
    results = {n: files.load(f"fitted-{n}") for n in FITTED_LENGTHS if files.has(f"fitted-{n}")}
    cost = files.load("fitted_cost") if files.has("fitted_cost") else None
    tables = {"fitted": fitted_table(results, cost)} if results else {}
    if unseen := [files.load(name) for name in UNSEEN if files.has(name)]:
        tables["unseen"] = unseen_table(unseen)
    if cost:
        tables["fitted-cost"] = attention_cost_table(cost["attention"])
    for name in filter(files.has, ("shared-graph", "fitted-parts", "fitted_variants")):
        tables[name.replace("_", "-")] = study_table(files.load(name))
    if files.has("optimisers"):
        tables["optimisers"] = optimiser_table(files.load("optimisers"))
    if files.has("recall_lengths"):
        tables["recall"] = recall_table(files.load("recall_lengths"), files.load("recall")["titles"])
    return tables


def study_page(files: Files) -> dict[str, str]:
    """The tables of the synthetic task's page by name."""
    tables = {}
    for name in filter(files.has, STUDIES):
        result = files.load(name)
        tables[name] = study_table(result)
        tables[f"{name}-seeds"] = seeds_table(result)
        if "sbm-algorithm-1" in result["titles"]:
            tables["algorithm-1"] = algorithm_1_table(result)
    if files.has("gate_gradients"):
        tables["gate-gradients"] = pushes_table(files.load("gate_gradients"))
    if files.has("ste_bias"):
        tables["ste-bias"] = ste_bias_table(files.load("ste_bias"))
        tables["ste-bias-aligned"] = ste_bias_table(files.load("ste_bias"), scores="scores aligned with use")
    return tables

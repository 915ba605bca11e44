"""The tables of the synthetic task, from the results of its studies."""

from math import exp
from statistics import median
from typing import Any

from results.tables.references import Results

STUDIES = ("figure4", "figure4-64", "collapse", "decides", "sparse")


def study_table(result: dict[str, Any]) -> str:
    """A row per trial: parameters, seeds, and medians with ranges over the seeds."""
    rows = ["| | parameters | seeds | accuracy | density | loss |", "|---|---|---|---|---|---|"]
    for trial, title in result["titles"].items():
        mine = [run for run in result["runs"] if run["trial"] == trial]
        cells = [f"{mine[0]['n_parameters']:,}", f"{len(mine)}"]
        for name in ("accuracy", "density", "loss"):
            values = [run["test"][name] for run in mine]
            spread = f" ({min(values):.3f} to {max(values):.3f})" if len(mine) > 1 else ""
            cells.append(f"{median(values):.3f}{spread}")
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def seeds_table(result: dict[str, Any]) -> str:
    """A row per trial, a column per seed: accuracy / density."""
    seeds = sorted({run["config"]["seed"] for run in result["runs"]})
    rows = [f"| seed | {' | '.join(map(str, seeds))} |", "|---" * (len(seeds) + 1) + "|"]
    by_run = {(run["trial"], run["config"]["seed"]): run["test"] for run in result["runs"]}
    for trial, title in result["titles"].items():
        tests = [by_run.get((trial, seed)) for seed in seeds]
        cells = [f"{test['accuracy']:.3f} / {test['density']:.2f}" if test else "" for test in tests]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def algorithm_1_table(result: dict[str, Any]) -> str:
    """Where the density of Algorithm 1 ends, with exploration and without, beside its limits."""
    rows = ["| Algorithm 1 | limit | density reached |", "|---|---|---|"]
    run = next(run for run in result["runs"] if run["trial"] == "sbm-algorithm-1")
    for title, rate, density in (
        ("while training, δ = .01", 1.01, run["curve"]["density"][-1]),
        ("in eval mode", 1.0, run["test"]["density"]),
    ):
        rows.append(f"| {title} | 1 − exp(−{rate:g}) = {1 - exp(-rate):.3f} | {density:.3f} |")
    return "\n".join(rows)


def pushes_table(result: dict[str, Any]) -> str:
    """What each kind of edge asks for, at a few moments of training."""
    rows = ["| | step | loss | density | p of twins | push of self | of twins | of others |", "|---" * 8 + "|"]
    for title, found in result["cases"].items():
        for step in (100, 200, 300, 500, 700, 900):
            i = found["step"].index(step)
            columns = ("loss", "density", "p_twin", "push_self", "push_twin", "push_other")
            digits = (2, 2, 2, 3, 3, 3)
            cells = [f"{found[name][i]:.{n}f}" for name, n in zip(columns, digits, strict=True)]
            rows.append(f"| {title} | {step} | {' | '.join(cells)} |")
    return "\n".join(rows)


def study_blocks(results: Results) -> dict[str, str]:
    """The tables of the synthetic task's page by the names that the markers call them."""
    from results.measure_ste_bias import ste_bias_table

    blocks = {}
    for name in filter(results.has, STUDIES):
        result = results.load(name)
        blocks[name] = study_table(result)
        blocks[f"{name}-seeds"] = seeds_table(result)
        if "sbm-algorithm-1" in result["titles"]:
            blocks["algorithm-1"] = algorithm_1_table(result)
    if results.has("gate_gradients"):
        blocks["gate-gradients"] = pushes_table(results.load("gate_gradients"))
    if results.has("ste_bias"):
        blocks["ste-bias"] = ste_bias_table(results.load("ste_bias"))
        blocks["ste-bias-aligned"] = ste_bias_table(results.load("ste_bias"), scores="scores aligned with use")
    return blocks

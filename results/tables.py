"""Cells of tables that take more than a look-up in the result files; ``tables.jinja`` has the tables."""

import re
from collections.abc import Callable, Sequence
from statistics import mean, median, stdev
from typing import Any

import numpy as np

from results.lookup import cases, load, reached
from sbmt.experiments.benchmarks.tables import milliseconds, percent
from sbmt.experiments.costs import cost_tables
from sbmt.experiments.tables import LEFT_OUT

# --- what the networks of a trial reached, or a dash where there are none ---


def spread(values: Sequence[float], form: str = ".3f") -> str:
    """Median and range, or the median alone where the range is no wider."""
    if not values:
        return LEFT_OUT
    middle, low, high = (f"{of(values):{form}}" for of in (median, min, max))
    return middle if low == high else f"{middle} ({low} to {high})"


def pairs(study: str, trial: str) -> str:
    """Mean density in percent."""
    found = reached(study, trial, "density")
    return f"{100 * mean(found):.1f}" if found else LEFT_OUT


def points(study: str, trial: str) -> str:
    """Mean accuracy in percent ± its standard deviation over the seeds."""
    found = [100 * x for x in reached(study, trial)]
    middle = f"{mean(found):.1f}" if found else LEFT_OUT
    return middle + (f" ± {stdev(found):.1f}" if len(found) > 1 else "")


def with_zeros(title: str) -> str:
    """A title that writes .5 as 0.5."""
    return re.sub(r"(?<!\d)\.(?=\d)", "0.", title)


def recall_scores(trial: str, n: str) -> str:
    """Accuracy / density on sequences of a length, medians over seeds; the accuracy alone at density 1."""
    evaluated = (run["lengths"] for run in load("recall_lengths")["evaluated"] if run["trial"] == trial)
    found = [lengths[n] for lengths in evaluated if n in lengths]
    accuracy, density = (median(scores[name] for scores in found) for name in ("accuracy", "density"))
    return f"{accuracy:.3f}" if density == 1 else f"{accuracy:.3f} / {density:.3f}"


# --- times of the benchmarks, relative to full attention ---

KINDS = ("near-constant", "structured")
N_CLUSTERS, D_HEAD = 128, 32
DENSEST = 0.16  # beyond this a mask is drawn densely, and time is no longer a straight line


def step_ratios(n: int, density: float) -> str:
    """Time of a step for the cheaper and the more expensive kind of memberships."""
    wanted = {"n": n, "density": density, "n_clusters": N_CLUSTERS, "is_training": True}
    mine = [case["results"] for case in cases("bench", "attention") if wanted.items() <= case.items()]
    found = [results["sbm"]["ratio"] for results in mine if "ratio" in results["sbm"]]
    return f"{min(found):.2f} to {max(found):.2f}" if found else LEFT_OUT


FIELDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "tokens": lambda case: f"{case['n']:,}",
    "pairs": lambda case: percent(case["density"]),
    "memberships": lambda case: case["kind"],
    "keys": lambda case: f"{case['n'] * case['density']:.0f} keys",
}
"""Properties by which the cases of a sweep differ."""


def sweep_cells(file: str, suite: str, sweep: str, row: str, column: str) -> dict[str, dict[str, str]]:
    """Times in the cases of a sweep, or our milliseconds where full attention did not run, by row and by heading.

    ``row`` and ``column`` are names of :data:`FIELDS`; there are as many columns for inference as for training.
    """
    cells: dict[str, dict[str, str]] = {}
    order = "n", "density", "n_clusters"
    for case in sorted(cases(file, suite), key=lambda case: (not case["is_training"], *(case[x] for x in order))):
        if sweep in case["sweeps"]:
            ours = case["results"]["sbm"]
            head = f"{'training' if case['is_training'] else 'inference'},<br>{FIELDS[column](case)}"
            if "ratio" in ours:
                shown = f"{ours['ratio']:.2f}" if ours["ratio"] > 0.1 else f"{ours['ratio']:.3f}"
            else:
                shown = f"{milliseconds(ours['median'])} ms"
            cells.setdefault(FIELDS[row](case), {})[head] = shown
    return cells


# --- densities below which SBM is cheaper ---


def operations_limit(n: int) -> float:
    """The density below which SBM needs fewer operations than full attention."""
    choosing = 2 * D_HEAD + N_CLUSTERS + N_CLUSTERS**2 / (2 * D_HEAD)
    return 1 - choosing / n - N_CLUSTERS**2 / (2 * n**2)


def time_limits(n: int, *, is_training: bool) -> str:
    """The densities below which SBM takes less time, for the more and the less expensive kind of memberships."""
    lines = (fit_line(kind, is_training=is_training) for kind in KINDS)
    low, high = sorted((1 - a / n) / b for a, b, _ in lines)
    if high <= 0:
        return "never"
    rounds_to_nothing = low < 0.0005
    return f"{100 * high:.1f} %, or never" if rounds_to_nothing else f"{100 * low:.1f} to {100 * high:.1f} %"


def worst_fit() -> float:
    """The largest factor by which one of the lines is off."""
    return max(fit_line(kind, is_training=way)[2] for kind in KINDS for way in (False, True))


def fit_line(kind: str, *, is_training: bool) -> tuple[float, float, float]:
    """Fits the time relative to full attention by a / n + b · density, with relative errors.

    Returns:
        a, b, and the largest factor by which the line is off.
    """
    rows = [
        (case["n"], case["density"], case["results"]["sbm"]["ratio"])
        for case in cases("bench", "attention")
        if (case["kind"], case["n_clusters"], case["is_training"]) == (kind, N_CLUSTERS, is_training)
        and case["density"] <= DENSEST
        and "ratio" in case["results"]["sbm"]
    ]
    n, density, ratio = np.array(rows).T
    relative = np.stack([1 / n, density], 1) / ratio[:, None]
    (a, b), *_ = np.linalg.lstsq(relative, np.ones(len(rows)), rcond=None)
    return float(a), float(b), float(np.exp(np.abs(np.log(relative @ (a, b))).max()))


def cost_table(name: str) -> str:
    """A table of counted operations, relative to full attention."""
    return next(table.markdown() for table in cost_tables(load("costs")) if table.name == name)

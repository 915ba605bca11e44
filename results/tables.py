"""Cells of tables that need more than a look-up in the result files. The tables themselves are in ``tables.jinja``."""

from collections.abc import Callable, Sequence
from statistics import mean, median, stdev
from typing import Any

from results.lookup import cases, load, reached
from sbmt.experiments.benchmarks.tables import LEFT_OUT, milliseconds, percent
from sbmt.experiments.costs import cost_tables

# --- scores of the networks of a trial, or a dash if there are none ---


def spread(values: Sequence[float], form: str = ".3f") -> str:
    """Formats the median and the range of the values, or only the median if all values coincide."""
    if not values:
        return LEFT_OUT
    middle, low, high = (f"{of(values):{form}}" for of in (median, min, max))
    return middle if low == high else f"{middle} ({low} to {high})"


def pairs(study: str, trial: str) -> str:
    """Formats a trial's mean density in percent."""
    found = reached(study, trial, "density")
    return f"{100 * mean(found):.1f}" if found else LEFT_OUT


def points(study: str, trial: str) -> str:
    """Formats a trial's mean accuracy in percent ± its standard deviation over seeds."""
    found = [100 * x for x in reached(study, trial)]
    middle = f"{mean(found):.1f}" if found else LEFT_OUT
    return middle + (f" ± {stdev(found):.1f}" if len(found) > 1 else "")


def recall_scores(trial: str, n: str) -> str:
    """Formats the medians over seeds of accuracy / density at a sequence length, or only accuracy if density is 1."""
    evaluated = (run["lengths"] for run in load("recall_lengths")["evaluated"] if run["trial"] == trial)
    found = [lengths[n] for lengths in evaluated if n in lengths]
    accuracy, density = (median(scores[name] for scores in found) for name in ("accuracy", "density"))
    return f"{accuracy:.3f}" if density == 1 else f"{accuracy:.3f} / {density:.3f}"


# --- times of the benchmarks, relative to full attention ---


def step_ratios(n: int, density: float) -> str:
    """Formats the time of a training step with the less and with the more expensive kind of memberships."""
    wanted = {"n": n, "density": density, "n_clusters": 128, "is_training": True}
    mine = [case["results"] for case in cases("bench", "attention") if wanted.items() <= case.items()]
    found = [results["sbm"]["ratio"] for results in mine if "ratio" in results["sbm"]]
    return f"{min(found):.2f} to {max(found):.2f}" if found else LEFT_OUT


FIELDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "tokens": lambda case: f"{case['n']:,}",
    "pairs": lambda case: percent(case["density"]),
    "memberships": lambda case: case["kind"],
    "keys": lambda case: f"{case['n'] * case['density']:.0f} keys",
}
"""Maps the properties in which the cases of a sweep differ to functions that format them."""


def sweep_cells(file: str, suite: str, sweep: str, row: str, column: str) -> dict[str, dict[str, str]]:
    """Returns relative times in a sweep by row and heading, or our milliseconds where full attention did not run.

    ``row`` and ``column`` are keys of :data:`FIELDS`. Training and inference have separate columns.
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


def cost_table() -> str:
    """Returns a table, with its title, of the operations of attention alone relative to full attention."""
    table, _ = cost_tables(load("costs"))
    columns = [[column.header, "---:", *column.cells] for column in table.columns]
    columns[0][1] = "---"
    rows = (f"| {' | '.join(map(str, cells))} |" for cells in zip(*columns, strict=True))
    return "\n".join([f"*{table.title}.*\n", *rows])

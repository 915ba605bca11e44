"""Tables of the pages, in Markdown, from the result files; templates call these functions."""

import re
from collections.abc import Callable, Iterable, Sequence
from statistics import mean, median, stdev
from typing import Any

import numpy as np

from results.lookup import cases, load, reached
from sbmt.experiments.benchmarks.tables import milliseconds, percent
from sbmt.experiments.costs import cost_tables
from sbmt.experiments.tables import LEFT_OUT


def grid(headings: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown.

    Example:
        >>> print(grid(("n", "time"), [(1, "2 s")]))
        | n | time |
        |---|---|
        | 1 | 2 s |
    """
    first = "".join(f" {heading} |" if heading != "" else " |" for heading in headings)
    lines = [f"| {' | '.join(map(str, cells))} |" for cells in rows]
    return "\n".join([f"|{first}", "|---" * len(headings) + "|", *lines])


# --- cells of the macros: what the networks of a trial reached, or a dash where there are none ---


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


# --- tables that take more than a loop over rows ---


def recall_table(*trials: str) -> str:
    """A row per trial, a column per length: accuracy / density, medians over seeds; last, the time of an answer."""
    evaluated, times = load("recall_lengths")["evaluated"], load("recall_lengths")["times"]
    titles, rows = load("recall")["titles"], []
    for trial in trials:
        mine = [run["lengths"] for run in evaluated if run["trial"] == trial]
        cells = []
        for n in times:
            found = [at[n] for at in mine if n in at]
            accuracy, density = (median(one[name] for one in found) for name in ("accuracy", "density"))
            cells.append(f"{accuracy:.3f}" if density == 1 else f"{accuracy:.3f} / {density:.3f}")
        rows.append((titles[trial], *cells))
    rows.append(("time of an answer, fitted over full", *(f"{at['fitted']['ratio']:.2f} ×" for at in times.values())))
    return grid(("", *(f"{int(n):,} tokens" for n in times)), rows)


# --- time and memory ---

LENGTHS = (1024, 2048, 4096, 8192, 16384)
KINDS = ("near-constant", "structured")
N_CLUSTERS, D_HEAD = 128, 32
DENSEST = 0.16  # beyond this a mask is drawn densely, and time is no longer a straight line


def step_ratios(n: int, density: float) -> str:
    """Time of a step relative to full attention, for the cheaper and the more expensive kind of memberships."""
    wanted = {"n": n, "density": density, "n_clusters": N_CLUSTERS, "is_training": True}
    mine = [case["results"] for case in cases("bench", "attention") if wanted.items() <= case.items()]
    found = [results["sbm"]["ratio"] for results in mine if "ratio" in results["sbm"]]
    return f"{min(found):.2f} to {max(found):.2f}" if found else LEFT_OUT


def _two_digits(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio > 0.1 else f"{ratio:.3f}"


FIELDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "tokens": lambda case: f"{case['n']:,}",
    "pairs": lambda case: percent(case["density"]),
    "memberships": lambda case: case["kind"],
    "keys": lambda case: f"{case['n'] * case['density']:.0f} keys",
}
"""Properties by which the cases of a sweep differ."""


def sweep_table(file: str, suite: str, sweep: str, row: str, column: str) -> str:
    """Time relative to full attention in the cases of a sweep, or our milliseconds where full attention did not run.

    ``row`` and ``column`` are names of :data:`FIELDS`; there are as many columns for inference as for training.
    """
    cells: dict[str, dict[str, str]] = {}
    order = "n", "density", "n_clusters"
    for case in sorted(cases(file, suite), key=lambda case: (not case["is_training"], *(case[x] for x in order))):
        if sweep in case["sweeps"]:
            ours = case["results"]["sbm"]
            head = f"{'training' if case['is_training'] else 'inference'},<br>{FIELDS[column](case)}"
            shown = _two_digits(ours["ratio"]) if "ratio" in ours else f"{milliseconds(ours['median'])} ms"
            cells.setdefault(FIELDS[row](case), {})[head] = shown
    heads = list(next(iter(cells.values())))
    return grid((row, *heads), [(name, *(mine[head] for head in heads)) for name, mine in cells.items()])


# --- when to use it, and costs ---


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


def limits_table() -> str:
    """Per length, the density below which SBM needs fewer operations, and less time."""
    lines = {way: [fit_line(kind, is_training=way) for kind in KINDS] for way in (False, True)}
    rows = []
    for n in LENGTHS:
        choosing = 2 * D_HEAD + N_CLUSTERS + N_CLUSTERS**2 / (2 * D_HEAD)
        operations = 1 - choosing / n - N_CLUSTERS**2 / (2 * n**2)
        cells = [_percents([(1 - a / n) / b for a, b, _ in line]) for line in lines.values()]
        rows.append((f"{n:,}", f"{100 * operations:.0f} %", *cells))
    worst = max(off for line in lines.values() for *_, off in line)
    table = grid(("tokens", "operations", "seconds, inference", "seconds, training"), rows)
    return table + f"\n\n*Computed from fitted straight lines, whose errors are at most a factor of {worst:.2f}.*"


def _percents(limits: list[float]) -> str:
    low, high = min(limits), max(limits)
    if high <= 0:
        return "never"
    rounds_to_nothing = low < 0.0005
    return f"{100 * high:.1f} %, or never" if rounds_to_nothing else f"{100 * low:.1f} to {100 * high:.1f} %"


def cost_table(name: str) -> str:
    """A table of counted operations, relative to full attention."""
    return next(table.markdown() for table in cost_tables(load("costs")) if table.name == name)

"""The tables of the page on when to use SBM attention: its costs, and the alternatives."""

from statistics import mean, median
from typing import Any

import numpy as np

from results.tables.files import Files
from results.tables.grid import grid
from results.tables.landing import CASES, step_ratios
from results.tables.numbers import fitted_ratio
from sbmt.experiments.tables import LEFT_OUT

LENGTHS = (1024, 2048, 4096, 8192, 16384)
FITTED_LENGTHS, FITTED_KEYS = (512, *LENGTHS), 16.0
KINDS = ("near-constant", "structured")
N_CLUSTERS, D_HEAD = 128, 32
DENSEST = 0.16  # beyond this a mask is drawn densely, and time is no longer a straight line
# Names in costs.json, figure4.json, listops.json and glue.json.
ROWS = (
    ("full attention, fused kernel", "full-fused", "full", "full", "full"),
    ("SBM", "sbm", "sbm", "sbm", "sbm"),
    ("random mask", "random-mask", None, "random-equal", "random-equal"),
    ("window", None, None, None, "window"),
    ("linear", "linear", "linear", "linear", "linear"),
    ("Reformer", "reformer", "reformer", "reformer", None),
    ("Performer", "performer", "performer", None, None),
    ("Linformer", "linformer", "linformer", None, None),
    ("Nyströmformer", "nystromformer", "nystromformer", None, "nystromformer"),
)


def when_to_use_page(files: Files) -> dict[str, str]:
    """The tables by name, without those whose results are missing."""
    tables: dict[str, str] = {}
    if files.has("bench"):
        bench = files.load("bench")
        if "attention" in bench["suites"]:
            tables |= {"when-limits": limits_table(bench), "when-seconds": seconds_table(bench)}
        if "memory" in bench["suites"]:
            tables["when-bytes"] = bytes_table(bench)
    if files.has("bench_fitted"):
        tables["when-fitted"] = fitted_table(files)
    if all(files.has(name) for name in ("costs", "figure4", "listops", "glue")):
        tables["when-others"] = others_table(files)
    return tables


def fit_line(bench: dict[str, Any], kind: str, *, is_training: bool) -> tuple[float, float, float]:
    """Fits the time over that of full attention by a / n + b · density, with relative errors.

    Returns:
        a, b, and the factor by which the line is off at most.

    Example:
        >>> case = {"kind": "structured", "n_clusters": 128, "is_training": True}
        >>> points = [(1000, 0.01, 1.1), (2000, 0.01, 0.6), (1000, 0.05, 1.5)]
        >>> cases = [case | {"n": n, "density": p, "results": {"sbm": {"ratio": r}}} for n, p, r in points]
        >>> bench = {"suites": {"attention": {"found": {"cases": cases}}}}
        >>> [round(x, 6) for x in fit_line(bench, "structured", is_training=True)]
        [1000.0, 10.0, 1.0]
    """
    rows = [
        (case["n"], case["density"], case["results"]["sbm"]["ratio"])
        for case in bench["suites"]["attention"]["found"]["cases"]
        if (case["kind"], case["n_clusters"], case["is_training"]) == (kind, N_CLUSTERS, is_training)
        and case["density"] <= DENSEST
        and "ratio" in case["results"]["sbm"]
    ]
    n, density, ratio = np.array(rows).T
    relative = np.stack([1 / n, density], 1) / ratio[:, None]
    (a, b), *_ = np.linalg.lstsq(relative, np.ones(len(rows)), rcond=None)
    return float(a), float(b), float(np.exp(np.abs(np.log(relative @ (a, b))).max()))


def limits_table(bench: dict[str, Any]) -> str:
    """Per length, the density below which SBM takes fewer operations, and less time."""
    lines = {
        is_training: [fit_line(bench, kind, is_training=is_training) for kind in KINDS] for is_training in (False, True)
    }
    rows = []
    for n in LENGTHS:
        choosing = 2 * D_HEAD + N_CLUSTERS + N_CLUSTERS**2 / (2 * D_HEAD)
        operations = 1 - choosing / n - N_CLUSTERS**2 / (2 * n**2)
        cells = [f"{operations:.0%}".replace("%", " %")]
        cells += [_percents([(1 - a / n) / b for a, b, _ in lines[is_training]]) for is_training in (False, True)]
        rows.append((f"{n:,}", *cells))
    worst = max(off for line in lines.values() for *_, off in line)
    table = grid(("tokens", "operations", "seconds, inference", "seconds, training"), rows)
    return table + f"\n\n*Read off straight lines that are off by a factor of {worst:.2f} at most.*"


def _percents(limits: list[float]) -> str:
    low, high = min(limits), max(limits)
    if high <= 0:
        return "never"
    rounds_to_nothing = low < 0.0005
    return f"{100 * high:.1f} %, or never" if rounds_to_nothing else f"{100 * low:.1f} to {100 * high:.1f} %"


def seconds_table(bench: dict[str, Any]) -> str:
    """Time over that of full attention in a few cases, for both kinds of memberships."""
    rows = []
    for n, density in CASES:
        cells = [step_ratios(bench, n, density, is_training=is_training) for is_training in (False, True)]
        rows.append((f"{n:,}", f"{100 * density:g} %", *cells))
    return grid(("tokens", "density", "inference", "training step"), rows)


def fitted_table(files: Files) -> str:
    """Time of a fitted mask over that of full attention, per length, for a mask of each head and one that all share."""

    def ratio(n: int, mode: str, kind: str) -> str:
        try:
            return f"{fitted_ratio(files, n, FITTED_KEYS, mode, kind):.2f}"
        except LookupError:
            return "–"

    columns = [(mode, kind) for mode in ("forward", "training") for kind in ("fitted", "shared")]
    rows = [(f"{n:,}", *(ratio(n, *column) for column in columns)) for n in FITTED_LENGTHS]
    return grid(("tokens", "inference", "one graph", "training step", "one graph"), rows)


def bytes_table(bench: dict[str, Any]) -> str:
    """What a training step adds to the memory of a process."""
    rows = []
    for case in bench["suites"]["memory"]["found"]["cases"]:
        steps = [case["results"][name].get("step") for name in ("sdpa", "sbm")]
        if None not in steps:
            rows.append((f"{case['n']:,}", f"{100 * case['density']:g} %", *(f"{step:,.0f}" for step in steps)))
    return grid(("tokens", "density", "full attention, MiB", "SBM, MiB"), rows)


def others_table(files: Files) -> str:
    """All attentions side by side: their costs on ListOps, and what they reached here."""
    costs, lm = files.load("costs"), files.load("glue")["mlm"]
    heads = ("attention", "operations", "memory", "repeated tokens", "ListOps", "hidden words")
    rows = []
    for title, cost, tokens, listops, words in ROWS:
        cells = [LEFT_OUT] * 5
        if cost is not None:
            counted, used = (
                [costs[what][name][0] for name in (cost, "full-fused")] for what in ("operations", "memory")
            )
            cells[0] = f"{counted[0]['attention']['n_flops'] / counted[1]['attention']['n_flops']:.2f}"
            cells[1] = f"{used[0]['forward'] / used[1]['forward']:.1f}"
        cells[2] = _reached(files.load("figure4"), tokens, median)
        cells[3] = _reached(files.load("listops"), listops, mean)
        perplexities = [run["test"]["metrics"]["perplexity"] for run in lm["runs"] if run["trial"] == words]
        cells[4] = f"{mean(perplexities):.0f}" if perplexities else LEFT_OUT
        rows.append((title, *cells))
    return grid(heads, rows)


def _reached(study: dict[str, Any], trial: str | None, over_seeds: Any) -> str:
    found = [run["test"]["accuracy"] for run in study["runs"] if run["trial"] == trial]
    return f"{over_seeds(found):.3f}" if found else LEFT_OUT

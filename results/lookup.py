"""Looks up, counts and compares numbers in the result files.

Templates call these functions, as in ``{{ show(median("demo", "sbm", "accuracy"), ".1%") }}``. A missing result
raises ``LookupError``.
"""

import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import pairwise
from math import exp, hypot, inf, log, sqrt
from pathlib import Path
from statistics import mean as mean_of
from statistics import median as median_of
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sbmt.experiments.benchmarks.cases import MADE_UP

ROOT = Path(__file__).parents[1]
LONG_RANGE = ("listops", "text", "retrieval", "image", "pathfinder")  # the benchmark's tasks, without generated topics
GLUE = ("sst2", "qqp", "mnli", "qnli")
OURS_ON_GPU = ("sparse", "tiled", "dense", "auto", "sbm")
EXTREMES = {"least": min, "greatest": max}


def load(name: str) -> Any:
    """Returns the content of a result file; ``glue/mlm`` names one of the studies in ``glue.json``."""
    path, (file, _, part) = ROOT / "results" / f"{name}.json", name.partition("/")
    if part and not path.exists():
        return load(file)[part]
    if not path.exists():
        raise LookupError(f"no file {path}")
    return _read(path)


@cache
def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def find(rows: Iterable[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    """Returns the first row with the given values."""
    for row in rows:
        if wanted.items() <= row.items():
            return row
    raise LookupError(wanted)


def show(value: Any, form: str = "") -> str:
    """Formats a number for a page, by default with three decimals, and returns text unchanged.

    Example:
        >>> show(-0.25), show(0.7, ".1%"), show(16384), show("so")
        ('−0.250', '70.0 %', '16,384', 'so')
    """
    if isinstance(value, str):
        return value
    form = form or (".3f" if isinstance(value, float) else "," if isinstance(value, int) else "")
    return format(value, form).replace("%", " %").replace("-", "−")


def runs_of(study: str, trial: str) -> list[dict[str, Any]]:
    """Returns the runs of one trial in a study."""
    runs = [run for run in load(study)["runs"] if run["trial"] == trial]
    if not runs:
        raise LookupError(f"{study} has no trial {trial}")
    return runs


def same_seeds(study: str, trial: str, other: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Pairs each run of a trial with the run of another trial that has the same seed."""
    theirs = {run["config"]["seed"]: run for run in runs_of(study, other)}
    return [(run, theirs[run["config"]["seed"]]) for run in runs_of(study, trial)]


def reached(study: str, trial: str, metric: str = "accuracy") -> list[float]:
    """Returns the test scores of all runs of a trial, if any. The metric ``edges`` is the number of edges per query."""
    runs = [run for run in load(study)["runs"] if run["trial"] == trial]
    if metric == "edges":
        return [run["test"]["density"] * run["config"]["length"] for run in runs]
    return [(run["test"] | run["test"].get("metrics", {}))[metric] for run in runs]


def _over_seeds(summary: Callable[[list[float]], Any], study: str, trial: str, metric: str) -> Any:
    """Summarises the test scores of a trial."""
    if not (found := reached(study, trial, metric)):
        raise LookupError(f"{study} has no trial {trial}")
    return summary(found)


median, mean = partial(_over_seeds, median_of), partial(_over_seeds, mean_of)
least, n_seeds = partial(_over_seeds, min), partial(_over_seeds, len)


def value(file: str, *keys: str | int) -> Any:
    """Returns the entry of a result file under the given keys, from the outermost to the innermost."""
    found = load(file)
    for key in keys:
        found = found[key]
    return found


def seen(network: str, kind: str, name: str, share: float = 0.05, part: str = "") -> float:
    """Returns a measure, such as ``lost``, for a trained network with one kind of mask and the given share of pairs.

    With ``part="tuned"``, the network was trained further with that mask.
    """
    found = load("attention_mass")["networks"][network]
    found = found[part] if part else found
    return find(found["levels"][found["shares"].index(share)], kind=kind)[name]


def lost(network: str, kind: str, part: str = "") -> str:
    """Returns the percentage points of accuracy that a network loses with one kind of mask and 5 % of the pairs."""
    return show(100 * seen(network, kind, "lost", part=part), ".1f")


def statement(name: str) -> str:
    """Returns the finding of a statement, as ``python -m theory`` prints it."""
    return find(load("theory"), name=name)["shown"].replace("%", " %")


def n_statements(grade: str) -> int:
    """Returns the number of statements of a grade, or of ``"all"`` grades, that were found to be as stated."""
    return len([row for row in load("theory") if row["outcome"] == "as stated" and grade in ("all", row["grade"])])


def n_comparisons(tasks: str, other: str, verdict: str) -> int:
    """Returns how many runs of SBM have the given verdict, compared with another trial on the same task and seed.

    Args:
        tasks: ``"lra"`` or ``"glue"``.
        other: The trial to compare SBM with.
        verdict: ``"ahead"``, ``"behind"``, ``"undecided"`` or ``"all"``. A comparison is decided if the difference of
            the accuracies exceeds its 95 % interval.
    """
    studies = [f"glue/{task}" for task in GLUE] if tasks == "glue" else LONG_RANGE
    found = []
    for pair in (pair for study in studies for pair in same_seeds(study, "sbm", other)):
        p, q = (one["test"]["accuracy"] for one in pair)
        width = hypot(*(1.96 * sqrt(x * (1 - x) / one["n_test"]) for x, one in zip((p, q), pair, strict=True)))
        found.append("ahead" if p - q > width else "behind" if q - p > width else "undecided")
    return len(found) if verdict == "all" else found.count(verdict)


def points_lost(study: str, other: str, trial: str, which: str) -> float:
    """Returns the ``least`` or ``greatest`` lead of ``other`` over a trial among all seeds, in percentage points."""
    pairs = same_seeds(study, trial, other)
    return EXTREMES[which](100 * (theirs["test"]["accuracy"] - mine["test"]["accuracy"]) for mine, theirs in pairs)


def loses(study: str, other: str, trial: str) -> str:
    """Formats the range over seeds of the percentage points by which a trial trails another."""
    return " to ".join(show(points_lost(study, other, trial, which), ".1f") for which in EXTREMES)


def layer_density(study: str, number: int) -> float:
    """Returns the density of SBM's masks in a layer, counted from 1, averaged over heads and seeds."""
    return mean_of(density for run in runs_of(study, "sbm") for density in run["test"]["densities"][number - 1])


def cases(file: str, suite: str) -> list[dict[str, Any]]:
    """Returns the cases of a benchmark suite."""
    return load(file)["suites"][suite]["found"]["cases"]


def time_ratio(kind: str, n: int, density: float, mode: str, contestant: str) -> float:
    """Returns a contestant's time relative to full attention; ``mode`` is ``"training"`` or ``"forward"``."""
    wanted = {"kind": kind, "n": n, "density": density, "is_training": mode == "training", "n_clusters": 128}
    return find(cases("bench", "attention"), **wanted)["results"][contestant]["ratio"]


def fitted_ratio(n: int, keys_per_query: float, mode: str) -> float:
    """Returns the time of a fitted mask relative to full attention; ``mode`` is ``"training"`` or ``"forward"``."""
    wanted = {"n": n, "density": keys_per_query / n, "is_training": mode == "training"}
    return find(cases("bench_fitted", "fitted"), kind="fitted", **wanted)["results"]["sbm"]["ratio"]


def on_gpu() -> list[dict[str, Any]]:
    """Returns the GPU benchmark's cases with the paper's memberships, adding our fastest ratio to each as ``ours``."""
    found = [case for suite in load("gpu/bench")["suites"].values() for case in suite["found"]["cases"]]
    found = [case for case in found if case["kind"] in MADE_UP and "ratio" in case["results"]["sdpa"]]
    ratios = ([case["results"].get(name, {}).get("ratio", inf) for name in OURS_ON_GPU] for case in found)
    return [case | {"ours": min(ours)} for case, ours in zip(found, ratios, strict=True)]


def gpu_ratio(most_tokens: int, mode: str, which: str) -> float:
    """Returns the time of our fastest implementation on a GPU, relative to full attention.

    ``which`` is ``"least"`` or ``"greatest"``, over cases with the paper's memberships and at most ``most_tokens``.
    """
    mine = [case for case in on_gpu() if case["n"] <= most_tokens and case["is_training"] == (mode == "training")]
    return EXTREMES[which](case["ours"] for case in mine)


def fitted_break_even(mode: str) -> float:
    """Returns the number of tokens above which a fitted mask with 16 keys per query is faster than full attention."""
    found = [case for case in cases("bench_fitted", "fitted") if "n" in case["sweeps"]]
    ours = {case["n"]: case["results"]["sbm"] for case in found if case["is_training"] == (mode == "training")}
    points = pairwise((log(n), log(times["ratio"])) for n, times in ours.items() if "ratio" in times)
    for (x, y), (z, w) in points:
        if y > 0 >= w:
            return round(exp(x - y * (z - x) / (w - y)), -2)
    raise LookupError(f"a length at which a fitted mask is faster in {mode}")


def memory_ratio(method: str, other: str, which: str) -> float:
    """Returns the ``least`` or ``greatest`` ratio, over five tasks, of one method's peak memory to another's."""
    peaks = load("costs")["memory"]
    return EXTREMES[which](x["forward"] / y["forward"] for x, y in zip(peaks[method], peaks[other], strict=True))


def operations_ratio(method: str, which: str) -> float:
    """Returns the ``least`` or ``greatest`` ratio, over five tasks, of a method's operations to full attention's."""
    both = [[one["attention"]["n_flops"] for one in load("costs")["operations"][name]] for name in (method, "full")]
    return EXTREMES[which](x / y for x, y in zip(*both, strict=True))


def gradient_estimate(scores: str, probability: float, estimator: str) -> dict[str, float]:
    """Returns the quality measures of a gradient estimator for masks drawn without exploration."""
    part = find(load("ste_bias")["parts"], scores=scores, exploration=0)
    return find(part["rows"], probability=probability, estimator=estimator)


def recalled(n: int, trial: str, name: str = "accuracy") -> list[float]:
    """Returns the accuracy, or ``keys`` per query, of the networks of one trial in causal recall among n tokens."""
    rows = load("causal")["recall" if n == 64 else f"recall-{n}"]
    return [seed[name] for row in rows if row["trial"] == trial for seed in row["seeds"]]


# --- templates ---

NOT_YET = "*not measured yet*"
ENVIRONMENT = Environment(finalize=show, undefined=StrictUndefined, loader=FileSystemLoader(ROOT / "results"))
"""The environment of all templates, to which :mod:`results.write_tables` adds the functions for tables."""
ENVIRONMENT.globals |= globals()


def render(template: str) -> str:
    """Renders a template to text, or returns :data:`NOT_YET` if it needs a missing result."""
    try:
        return ENVIRONMENT.from_string(template).render()
    except LookupError:
        return NOT_YET

"""Numbers from the result files: looked up, counted, compared.

Each function takes the files first and raises ``LookupError`` if they do not hold what it needs. The templates of
:mod:`results.tables.results` call them without that first argument.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import exp, hypot, sqrt
from statistics import mean, median
from typing import Any

from results.tables.claims import read_claims
from results.tables.files import Files, find
from sbmt.experiments.benchmarks.cases import MADE_UP
from sbmt.experiments.plots.benchmarks import crossing

LONG_RANGE = ("listops", "text", "retrieval", "image", "pathfinder")  # the benchmark's tasks, without made-up topics
GLUE = ("sst2", "qqp", "mnli", "qnli")
EXTREMES: Mapping[str, Callable[[list[float]], float]] = {"least": min, "greatest": max}
SIGNS = {"ahead": 1, "behind": -1}


def over_seeds(summary: Callable[[list[float]], Any], files: Files, study: str, trial: str, metric: str) -> Any:
    """A summary, over seeds, of what a trial of a study reaches on the test examples; ``edges`` are those per query."""
    runs = [run for run in files.study(study)["runs"] if run["trial"] == trial]
    if not runs:
        raise KeyError(trial)
    if metric == "edges":
        return summary([run["test"]["density"] * run["config"]["length"] for run in runs])
    tests = [run["test"] for run in runs]
    return summary([(test | test.get("metrics", {}))[metric] for test in tests])


def value(files: Files, file: str, *keys: str | int) -> Any:
    """What a result file holds under these keys, from the outermost inwards."""
    found = files.load(file)
    for key in keys:
        found = found[key]
    return found


def seen(files: Files, network: str, kind: str, name: str, share: float = 0.05) -> float:
    """A measure, such as ``lost``, of a kind of mask that holds this share of the pairs, in a trained network."""
    found = files.load("attention_mass")["networks"][network]
    return find(found["levels"][found["shares"].index(share)], kind=kind)[name]


def blocks_visited(files: Files, n: int, kind: str, block_size: int) -> float:
    """The share of FlexAttention's blocks that hold an edge, with tokens in the order of their clusters."""
    return find(files.load("block_masks")["rows"], n=n, kind=kind, block_size=block_size)["sorted"]


def statement(files: Files, name: str) -> str:
    """What a statement of ``python -m theory`` found, in its own words."""
    return find(files.load("theory"), name=name)["shown"].replace("%", " %")


def n_statements(files: Files, grade: str) -> int:
    """How many statements of a grade (or of ``"all"``) came out as stated."""
    rows = [row for row in files.load("theory") if row["outcome"] == "as stated"]
    return len([row for row in rows if grade in ("all", row["grade"])])


def n_claims(files: Files, group: str) -> int:
    """How many claims of the paper came out so: a group of the errata page, or ``"all"`` of them but the slips."""
    groups = [claim.group for claim in read_claims(files.root)]
    return len(groups) - groups.count("slip") if group == "all" else groups.count(group)


def n_comparisons(files: Files, tasks: str, other: str, verdict: str) -> int:
    """In how many runs SBM is ahead of another trial of the same task and seed.

    Args:
        files: The result files.
        tasks: ``"lra"`` or ``"glue"``.
        other: The other trial.
        verdict: ``"ahead"``, ``"behind"``, ``"undecided"`` or ``"all"``. A difference of two accuracies is decided if
            it exceeds its 95 % interval.
    """
    studies = [files.study(f"glue/{task}") for task in GLUE] if tasks == "glue" else map(files.load, LONG_RANGE)
    found = [decided for study in studies for decided in _differences(study["runs"], "sbm", other)]
    return len(found) if verdict == "all" else found.count(SIGNS.get(verdict, 0))


def _differences(runs: list[dict[str, Any]], trial: str, other: str) -> list[int]:
    by_run = {(run["trial"], run["config"]["seed"]): run for run in runs}
    pairs = [(run, by_run[other, seed]) for (name, seed), run in by_run.items() if name == trial]
    found = []
    for pair in pairs:
        p, q = (run["test"]["accuracy"] for run in pair)
        width = hypot(*(1.96 * sqrt(x * (1 - x) / run["n_test"]) for x, run in zip((p, q), pair, strict=True)))
        found.append((p - q > width) - (q - p > width))
    return found


def points_ahead(files: Files, study: str, trial: str, other: str) -> float:
    """By how many points the mean accuracy of a trial exceeds that of another."""
    of = {
        name: mean(run["test"]["accuracy"] for run in files.study(study)["runs"] if run["trial"] == name)
        for name in (trial, other)
    }
    return 100 * (of[trial] - of[other])


def points_lost(files: Files, study: str, other: str, trial: str, which: str) -> float:
    """The ``least`` or ``greatest`` number of points by which a trial trails another of the same seed."""
    of = {(run["trial"], run["config"]["seed"]): run["test"]["accuracy"] for run in files.study(study)["runs"]}
    found = [100 * (of[other, seed] - accuracy) for (name, seed), accuracy in of.items() if name == trial]
    return EXTREMES[which](found)


def layer_density(files: Files, study: str, number: int) -> float:
    """Density of SBM's masks in a layer, counted from 1: the mean over heads and seeds."""
    runs = [run for run in files.study(study)["runs"] if run["trial"] == "sbm"]
    return mean(density for run in runs for density in run["test"]["densities"][number - 1])


def time_ratio(files: Files, kind: str, n: int, density: float, mode: str, contestant: str) -> float:
    """Time over that of full attention; ``mode`` is ``"training"`` or ``"forward"``."""
    cases = files.load("bench")["suites"]["attention"]["found"]["cases"]
    wanted = {"kind": kind, "n": n, "density": density, "is_training": mode == "training", "n_clusters": 128}
    return find(cases, **wanted)["results"][contestant]["ratio"]


def fitted_ratio(files: Files, n: int, keys_per_query: float, mode: str, kind: str = "fitted") -> float:
    """Time of a fitted or shared mask over full attention's; ``mode`` is ``"training"`` or ``"forward"``."""
    cases = files.load("bench_fitted")["suites"]["fitted"]["found"]["cases"]
    wanted = {"kind": kind, "n": n, "density": keys_per_query / n, "dtype": "float32"}
    return find(cases, **wanted, is_training=mode == "training")["results"]["sbm"]["ratio"]


def gpu_ratio(files: Files, most_tokens: int, mode: str, which: str) -> float:
    """Time of the fastest of our ways on a GPU over full attention's there.

    ``which`` is ``"least"`` or ``"greatest"``, over the paper's memberships and so many tokens or fewer.
    """
    ratios = [
        min(case["results"][name]["ratio"] for name in ("sparse", "tiled", "dense", "auto") if name in case["results"])
        for case in files.load("gpu/bench")["suites"]["gpu"]["found"]["cases"]
        if case["kind"] in MADE_UP and case["n"] <= most_tokens and case["is_training"] == (mode == "training")
    ]
    return EXTREMES[which](ratios)


def fitted_break_even(files: Files, mode: str, which: str, sweep: str = "n") -> float:
    """From how many tokens on a fitted mask of 16 keys per query takes less time than full attention.

    ``which`` is ``"least"`` or ``"greatest"``, over the processors that were measured; the sweep ``"n"`` is in float32.
    """
    places = []
    for one in files.machines("bench_fitted"):
        found = one["suites"]["fitted"]["found"]["cases"]
        mine = [case for case in found if sweep in case["sweeps"] and case["is_training"] == (mode == "training")]
        if not mine:
            continue
        times = {case["n"]: case["results"]["sbm"]["ratio"] for case in mine if "ratio" in case["results"]["sbm"]}
        where = crossing(list(times), list(times.values()), [1.0] * len(times))
        if where is None:
            raise LookupError(f"no {mode} with a fitted mask that is faster, on {one['manifest']['processor']}")
        places.append(round(where[0], -2))
    if not places:
        raise LookupError(f"no processor on which the sweep {sweep!r} was measured")
    return EXTREMES[which](places)


def memory_ratio(files: Files, method: str, other: str, which: str) -> float:
    """The ``least`` or ``greatest`` ratio, over the five tasks, of a method's peak memory to another's."""
    peaks = files.load("costs")["memory"]
    ratios = [x["forward"] / y["forward"] for x, y in zip(peaks[method], peaks[other], strict=True)]
    return EXTREMES[which](ratios)


def operations_ratio(files: Files, method: str, which: str) -> float:
    """The ``least`` or ``greatest`` ratio, over the five tasks, of a method's operations to full attention's."""
    both = [files.load("costs")["operations"][name] for name in (method, "full")]
    ratios = [x["attention"]["n_flops"] / y["attention"]["n_flops"] for x, y in zip(*both, strict=True)]
    return EXTREMES[which](ratios)


def gradient_estimate(files: Files, scores: str, probability: float, estimator: str, measure: str) -> float:
    """A measure of the quality of a gradient estimator, without exploration."""
    part = find(files.load("ste_bias")["parts"], scores=scores, exploration=0)
    return find(part["rows"], probability=probability, estimator=estimator)[measure]


def step_time(files: Files, trial: str) -> float:
    """Time of a training step of the demo relative to full attention's, the median over seeds."""
    return median(found[trial]["ratio"] for found in files.load("landing")["seeds"].values())


def algorithm_1_limit(_: Files, rate: float) -> float:
    """The greatest density that Algorithm 1 can draw if no rate exceeds this one."""
    return 1 - exp(-rate)


SUMMARIES: Mapping[str, Callable[[list[float]], Any]] = {
    "median": median,
    "mean": mean,
    "least": min,
    "greatest": max,
    "n_seeds": len,
}
NUMBERS: Mapping[str, Callable[..., Any]] = {name: partial(over_seeds, one) for name, one in SUMMARIES.items()} | {
    function.__name__: function
    for function in (
        value,
        seen,
        blocks_visited,
        statement,
        n_statements,
        n_claims,
        n_comparisons,
        points_ahead,
        points_lost,
        layer_density,
        time_ratio,
        gpu_ratio,
        fitted_ratio,
        fitted_break_even,
        memory_ratio,
        operations_ratio,
        gradient_estimate,
        step_time,
        algorithm_1_limit,
    )
}
"""All functions that templates may call. ``median("demo", "sbm", "accuracy")``, ``mean``, ``least`` and ``greatest``
summarise what a trial of a study reaches over its seeds, and ``n_seeds`` counts these."""

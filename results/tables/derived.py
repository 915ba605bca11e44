"""Numbers that take more than looking them up: counts, comparisons, ratios. See ``references.py`` for their names."""

from collections.abc import Callable, Mapping
from math import exp, hypot, sqrt
from statistics import mean, median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from results.tables.references import Results

LONG_RANGE = ("listops", "text", "retrieval", "image", "pathfinder")  # the benchmark's tasks; made-up topics are not
GLUE = ("sst2", "qqp", "mnli", "qnli")
EXTREMES: Mapping[str, Callable[[list[float]], float]] = {"least": min, "greatest": max}
SIGNS = {"ahead": 1, "behind": -1}


def count(results: "Results", rest: str) -> int:
    """``theory/GRADE``: statements of a grade that came out as stated; ``theory/all``: of any grade."""
    grade = rest.partition("/")[2]
    rows = [row for row in results.load("theory") if row["outcome"] == "as stated"]
    return len([row for row in rows if grade in ("all", row["grade"])])


def twins(results: "Results", rest: str) -> int:
    """``lra/OTHER/VERDICT`` or ``glue/OTHER/VERDICT``: SBM against another trial of the same task and seed.

    Verdicts are ``ahead``, ``behind`` and ``undecided``, where a difference of two accuracies is decided if it exceeds
    its 95 % interval, and ``all``.
    """
    where, other, verdict = rest.split("/")
    studies = [results.load("glue")[task] for task in GLUE] if where == "glue" else map(results.load, LONG_RANGE)
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


def points(results: "Results", rest: str) -> float:
    """``STUDY/TRIAL/OTHER``: difference of their mean accuracies, in points."""
    study, trial, other = rest.split("/")
    of = {
        name: mean(run["test"]["accuracy"] for run in results.load(study)["runs"] if run["trial"] == name)
        for name in (trial, other)
    }
    return 100 * (of[trial] - of[other])


def lost(results: "Results", rest: str) -> float:
    """``STUDY/OTHER/TRIAL/least`` or ``…/greatest``: points that a trial is behind another of the same seed."""
    study, other, trial, how = rest.split("/")
    of = {(run["trial"], run["config"]["seed"]): run["test"]["accuracy"] for run in results.load(study)["runs"]}
    found = [100 * (of[other, seed] - accuracy) for (name, seed), accuracy in of.items() if name == trial]
    return EXTREMES[how](found)


def layer(results: "Results", rest: str) -> float:
    """``STUDY/NUMBER``: density of SBM's masks in a layer, counted from 1: the mean over heads and seeds."""
    study, number = rest.split("/")
    runs = [run for run in results.load(study)["runs"] if run["trial"] == "sbm"]
    return mean(density for run in runs for density in run["test"]["densities"][int(number) - 1])


def bench(results: "Results", rest: str) -> float:
    """``KIND/N/DENSITY/MODE/CONTESTANT``: time over that of full attention; MODE is ``training`` or ``forward``."""
    kind, n, density, mode, contestant = rest.split("/")
    wanted = (kind, int(n), float(density), mode == "training", 128)
    for case in results.load("bench")["suites"]["attention"]["found"]["cases"]:
        if wanted == tuple(case[name] for name in ("kind", "n", "density", "is_training", "n_clusters")):
            return case["results"][contestant]["ratio"]
    raise KeyError(rest)


def relative(results: "Results", rest: str) -> float:
    """``memory/METHOD/OTHER/least`` or ``…/greatest``: peak memory over another method's, over the five tasks."""
    _, method, other, how = rest.split("/")
    peaks = results.load("costs")["memory"]
    ratios = [x["forward"] / y["forward"] for x, y in zip(peaks[method], peaks[other], strict=True)]
    return EXTREMES[how](ratios)


def flops(results: "Results", rest: str) -> float:
    """``METHOD/least`` or ``…/greatest``: operations over those of full attention, over the five tasks."""
    method, how = rest.split("/")
    both = [results.load("costs")["operations"][name] for name in (method, "full")]
    ratios = [x["attention"]["n_flops"] / y["attention"]["n_flops"] for x, y in zip(*both, strict=True)]
    return EXTREMES[how](ratios)


def gate(results: "Results", rest: str) -> float:
    """``SCORES/PROBABILITY/ESTIMATOR/MEASURE``: of the bias of estimators, without exploration."""
    scores, probability, estimator, measure = rest.split("/")
    for part in results.load("ste_bias")["parts"]:
        if part["scores"] == scores and part["exploration"] == 0:
            for row in part["rows"]:
                if (row["probability"], row["estimator"]) == (float(probability), estimator):
                    return row[measure]
    raise KeyError(rest)


def step(results: "Results", rest: str) -> float:
    """``TRIAL``: time of a training step of the demo over full attention's, median over seeds."""
    return median(found[rest]["ratio"] for found in results.load("landing")["seeds"].values())


def gibibytes(results: "Results", rest: str) -> float:
    """``HEADS/tiled`` or ``HEADS/sparse/DENSITY``: memory of a training step of GPU kernels, each head alike."""
    heads, way, *density = rest.split("/")
    most = results.load("gpu_needs")["memory"][way]
    return int(heads) * (most[density[0]] if density else most) / 2**30


def bound(results: "Results", rest: str) -> float:
    """``K/least`` or ``…/greatest``: least clocks of tiles over those of full attention, forward and training."""
    from results.tables.gpu_needs import bounds

    n_clusters, how = rest.split("/")
    return EXTREMES[how]([pair / full for _, full, pair, _ in bounds(results.load("gpu_needs"), int(n_clusters))])


def limit(results: "Results", rest: str) -> float:
    """``RATE``: the greatest density that Algorithm 1 can draw where no rate exceeds this one."""
    return 1 - exp(-float(rest))


DERIVED: Mapping[str, Callable[["Results", str], float]] = {
    function.__name__: function
    for function in (count, twins, points, lost, layer, relative, flops, gate, step, gibibytes, bound, limit)
} | {"ratio": bench}

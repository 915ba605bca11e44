"""From which density on one way to attend is faster than another, read off what was measured."""

from collections.abc import Sequence
from math import exp, inf, log
from typing import Any

from sbmt.experiments.benchmarks.contestants import REFERENCE
from sbmt.experiments.benchmarks.gpu_contestants import SPARSE, TILED

PAIRS = {"tiled_beats_sparse": (TILED, SPARSE), "sdpa_beats_sparse": (REFERENCE, SPARSE)}
"""Who overtakes whom as masks get denser."""


def cut_offs(cases: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For every kind of input and n, forward alone or a training step: where tiles win, and up to where edges do.

    Args:
        cases: The suite's, see :func:`sbmt.experiments.benchmarks.gpu.run`.

    Returns:
        One per (kind, n, is_training), with what :func:`wins_from` says of each of :data:`PAIRS`.
    """
    groups: dict[tuple[str, int, bool], list[dict[str, Any]]] = {}
    for case in sorted(cases, key=lambda case: case["density"]):
        groups.setdefault((case["kind"], case["n"], case["is_training"]), []).append(case)
    found = []
    for (kind, n, is_training), mine in sorted(groups.items()):
        one: dict[str, Any] = {"kind": kind, "n": n, "is_training": is_training}
        for name, (denser, sparser) in PAIRS.items():
            known = [(case["density"], quotient(case["results"], denser, sparser)) for case in mine]
            one[name] = wins_from([(density, x) for density, x in known if x is not None])
        found.append(one)
    return found


def wins_from(quotients: Sequence[tuple[float, float]]) -> dict[str, float | None]:
    """From which density on a time is less than another one.

    Args:
        quotients: (density, time over the other one's), by ascending density; 0 where only the former could run.

    Returns:
        ``first``: the least density such that the quotient is below 1 there and at all that are denser; ``before``: the
        density measured before it, or the densest one where there is no ``first``; ``at``: the density between the two
        where a line in logarithms passes 1. None stands for what there is not.

    Example:
        >>> wins_from([(0.01, 4.0), (0.04, 2.0), (0.16, 0.5)])
        {'before': 0.04, 'first': 0.16, 'at': 0.08}
        >>> wins_from([(0.01, 4.0), (0.04, 2.0)])
        {'before': 0.04, 'first': None, 'at': None}
    """
    n_won = 0
    while n_won < len(quotients) and quotients[-1 - n_won][1] < 1:
        n_won += 1
    lost, won = quotients[: len(quotients) - n_won], quotients[len(quotients) - n_won :]
    return {
        "before": lost[-1][0] if lost else None,
        "first": won[0][0] if won else None,
        "at": _between(lost[-1], won[0]) if lost and won else None,
    }


def quotient(results: dict[str, Any], name: str, other: str) -> float | None:
    """One contestant's time over another's.

    Where both have ratios to the reference these are divided, since they were taken round by round. 0 where the other
    one alone is too large to run, infinity the other way round, None where nothing is known.
    """
    mine, theirs = results.get(name, {}), results.get(other, {})
    key = "ratio" if "ratio" in mine and "ratio" in theirs else "median"
    if key in mine and key in theirs:
        return mine[key] / theirs[key]
    if "median" in mine and "missing" in theirs:
        return 0.0
    return inf if "median" in theirs and "missing" in mine else None


def _between(lost: tuple[float, float], won: tuple[float, float]) -> float | None:
    (before, slower), (first, faster) = lost, won
    if faster == 0 or slower == inf:
        return None
    share = log(slower) / (log(slower) - log(faster))
    return float(f"{exp(log(before) + share * log(first / before)):.3g}")

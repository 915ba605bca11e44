"""Do our counts grow as the paper's Tables 5 and 6 say? Answered by log-log slopes, and term by term."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from results.paper_costs.claims import TABLE_5, TABLE_6, Claim
from results.paper_costs.formula import Formula
from sbmt.cost import count_operations
from sbmt.experiments.costs import METHODS, Case, build_case

CONSTANTS = ("b", "h", "i", "w")  # sequences and heads, steps and width: the paper's tables leave them out
SYMBOLS = ("n", "m", "k", "d")
BASE = {"n": 2048, "m": 40_000, "k": 128, "d": 32, "c": 32, "r": 2} | dict.fromkeys(CONSTANTS, 1)
FAR = (2**30, 2**32, 2**34)  # sizes at which only the highest power counts
PARTS_OF_TABLE_5 = {
    "memberships": ("memberships",),
    "block matrix": ("block matrix",),
    "sampling": ("sampling",),
    "edges": ("scores", "softmax", "weights"),
}
"""For each row of Table 5, how the names of our corresponding parts begin."""


def log_log_slope(sizes: Sequence[float | int], costs: Sequence[float | int]) -> float:
    """Least-squares slope of log cost over log size: the exponent e of a cost that grows like the e-th power of size.

    Example:
        >>> round(log_log_slope([1, 2, 4], [3, 12, 48]), 6)
        2.0
    """
    x, y = (np.log(np.array([float(value) for value in values])) for values in (sizes, costs))
    return float(np.polyfit(x, y, 1)[0])


@dataclass(frozen=True)
class Verdict:
    """A row of Table 5 or 6 beside our count.

    Attributes:
        title: Title of the row.
        claimed: The paper's time.
        exponents: For each of n, m, k and d that occurs in the claim or in the count: the claimed exponent, and the
            log-log slope of our count (products and elementwise operations together) where that symbol is large.
        beyond: Terms of our count that exceed the claim.
        unused: Terms of the claim that our count does not need.
    """

    title: str
    claimed: str
    exponents: dict[str, tuple[int, float]]
    beyond: tuple[str, ...]
    unused: tuple[str, ...]


def compare_with_claims() -> dict[str, Verdict]:
    """Our counts beside Table 5, part by part for Algorithm 1, and beside Table 6; ``sbm`` there is the exact law."""
    verdicts = {}
    for name, starts in PARTS_OF_TABLE_5.items():
        verdicts[name] = judge(TABLE_5[name], counted_formula("sbm-algorithm-1", starts))
    for name in (*TABLE_6, "sbm"):
        claim = TABLE_6["sbm-algorithm-1" if name == "sbm" else name]
        verdicts[name] = judge(Claim(METHODS[name].title, claim.time, claim.memory), counted_formula(name))
    return verdicts


RANKS = ("n_features", "n_landmarks", "n_projected")
"""The options that the paper's tables call the rank of an attention."""


def counted_formula(method: str, starts: tuple[str, ...] = ("",)) -> Formula:
    """Products and elementwise operations of an attention, restricted to parts whose names begin with ``starts``."""
    case = Case(method, 64, 0.5, settings={"n_layers": 1, "n_clusters": 8, **dict.fromkeys(RANKS, 8)})
    rows = count_operations(build_case(case), case.n, density=case.density).attention().rows
    texts = [text for row in rows if row.part.startswith(starts) for text in (row.flops, row.elementwise)]
    return Formula(" + ".join(texts).replace("N", "n"))  # N is n rounded up to whole chunks


def judge(claim: Claim, counted: Formula) -> Verdict:
    """Compares a counted formula with a claim."""
    symbols = [symbol for symbol in SYMBOLS if claim.time.degree(symbol) or counted.degree(symbol)]
    exponents = {symbol: (claim.time.degree(symbol), counted_slope(counted, symbol)) for symbol in symbols}
    beyond = dict.fromkeys(counted.beyond(claim.time, CONSTANTS))
    return Verdict(claim.title, claim.time.text, exponents, tuple(beyond), claim.time.beyond(counted))


def counted_slope(formula: Formula, symbol: str) -> float:
    """The log-log slope of a formula in one symbol where it is large, the other sizes being those of :data:`BASE`."""
    costs = []
    for size in FAR:
        sizes = BASE | {symbol: size}
        costs.append(formula.at(sizes | {"s": max(1, sizes["n"] // sizes["c"])}))
    return round(log_log_slope(FAR, costs), 3)

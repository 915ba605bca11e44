"""What a statement is, and how a check becomes one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Grade = Literal["conclusion", "proof", "slip", "repair"]
"""``conclusion``: a claim falls. ``proof``: the claim may stand, its argument does not. ``slip``: a misprint.
``repair``: ours, what holds instead."""

Evidence = Literal["theorem", "exhaustive", "instance", "simulated", "heuristic"]
"""What a check rests on. ``heuristic`` is reported and never counted as passed."""


@dataclass(frozen=True)
class Finding:
    """What a check found.

    Attributes:
        holds: Whether the number came out as stated.
        shown: The number, in a sentence.
    """

    holds: bool
    shown: str


@dataclass(frozen=True)
class Statement:
    """One statement about the paper, with the check that prints its number.

    Attributes:
        name: Short and unique.
        claim: What the paper (or a text about it) says; for repairs, what is needed.
        verdict: What is true.
        grade: How serious it is.
        evidence: What the check rests on.
        reach: Where the check looked, e.g. ``"n ≤ 12"``.
        function: The function that does the work.
        check: Runs it.
    """

    name: str
    claim: str
    verdict: str
    grade: Grade
    evidence: Evidence
    reach: str
    function: str
    check: Callable[[], Finding]


def statement(
    name: str, *, claim: str, verdict: str, grade: Grade, evidence: Evidence, reach: str, function: str
) -> Callable[[Callable[[], Finding]], Statement]:
    """Turns the check below it into a statement."""

    def make(check: Callable[[], Finding]) -> Statement:
        return Statement(name, claim, verdict, grade, evidence, reach, function, check)

    return make

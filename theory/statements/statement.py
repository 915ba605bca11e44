"""What a statement is, and how a check becomes one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from theory.hamiltonian import Evidence

Grade = Literal["conclusion", "proof", "slip", "repair"]
Found = tuple[bool, str]
"""Whether the number came out as stated, and the number in a sentence."""


@dataclass(frozen=True)
class Statement:
    """One statement about the paper, with the check that finds its number.

    Attributes:
        name: Short and unique.
        claim: What the paper (or a text about it) says; for repairs, what is needed.
        verdict: What is true.
        grade: How serious it is, a key of ``theory.report.GRADES``.
        evidence: What the check rests on; heuristics are reported and never count as passed.
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
    check: Callable[[], Found]


STATEMENTS: list[Statement] = []
"""All statements, in the order of the report."""


def statement(
    name: str, grade: Grade, evidence: Evidence, reach: str, function: Callable[..., Any]
) -> Callable[[Callable[[], Found]], Callable[[], Found]]:
    """Adds a statement to :data:`STATEMENTS`: the decorated function checks it, its docstring has claim and verdict."""

    def add(check: Callable[[], Found]) -> Callable[[], Found]:
        claim, _, verdict = " ".join((check.__doc__ or "").split()).removeprefix("Claim: ").partition(". Verdict: ")
        does = f"{function.__module__}.{function.__qualname__}"
        STATEMENTS.append(Statement(name, claim, verdict.removesuffix("."), grade, evidence, reach, does, check))
        return check

    return add

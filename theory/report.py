"""Checks all statements and shows the outcome."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbmt.experiments.files import write_bytes
from theory.certificate import certify
from theory.patterns import three_patterns
from theory.pictures import draw_certificate, draw_expectation
from theory.statements import STATEMENTS, Statement

if TYPE_CHECKING:
    from rich.table import Table

GRADES = {
    "conclusion": "a claim falls",
    "proof": "the claim may stand, its argument does not",
    "slip": "a misprint",
    "repair": "what holds instead",
}


@dataclass(frozen=True)
class Result:
    """A statement with what its check found: whether the number came out as stated, and the number in a sentence."""

    statement: Statement
    holds: bool
    shown: str

    @property
    def outcome(self) -> str:
        """``"as stated"``, ``"NOT as stated"``, or ``"reported"`` for heuristics, since they prove nothing."""
        if self.statement.evidence == "heuristic":
            return "reported"
        return "as stated" if self.holds else "NOT as stated"

    def to_dict(self) -> dict[str, Any]:
        """All fields but the check itself, ready for JSON."""
        fields = {name: value for name, value in vars(self.statement).items() if name != "check"}
        return fields | {"holds": bool(self.holds), "shown": self.shown, "outcome": self.outcome}


def run(
    statements: Sequence[Statement] = STATEMENTS, on_start: Callable[[Statement], None] | None = None
) -> list[Result]:
    """Checks the statements one after the other; a check that raises counts as not holding."""
    results = []
    for statement in statements:
        if on_start is not None:
            on_start(statement)
        try:
            results.append(Result(statement, *statement.check()))
        except Exception as error:  # one broken check must not hide the rest
            results.append(Result(statement, False, f"{type(error).__name__}: {error}"))
    return results


def is_as_stated(results: Sequence[Result]) -> bool:
    """Whether every statement that can be checked came out as stated."""
    return all(result.outcome != "NOT as stated" for result in results)


def table(results: Sequence[Result]) -> "Table":
    """The report for a terminal, grouped by grade."""
    from rich.table import Table

    shown = Table(title="Statements about SBM-Transformer's universality", show_lines=True)
    for heading in ("statement", "what is true", "found"):
        shown.add_column(heading, overflow="fold")
    for grade, meaning in GRADES.items():
        chosen = [result for result in results if result.statement.grade == grade]
        shown.add_row(f"[bold]{grade}[/bold] ({len(chosen)})", f"[bold]{meaning}[/bold]", "")
        for result in chosen:
            colour = {"as stated": "green", "reported": "yellow"}.get(result.outcome, "red")
            found = f"{result.shown}\n[{colour}]{result.outcome}[/{colour}], {result.statement.evidence}: "
            shown.add_row(result.statement.name, result.statement.verdict, found + result.statement.reach)
    return shown


def draw_pictures(folder: Path) -> list[Path]:
    """Writes the report's pictures: the three patterns' certificates, and expectation against existence."""
    patterns = three_patterns(16, 4)
    figures = {
        "three_patterns_123.png": draw_certificate(certify(patterns), patterns),
        "three_patterns_321.png": draw_certificate(certify(patterns, (3, 2, 1)), patterns),
        "expectation_against_existence.png": draw_expectation(),
    }
    for name, figure in figures.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", metadata={"Software": None})
        write_bytes(folder / name, buffer.getvalue())
    return [folder / name for name in figures]

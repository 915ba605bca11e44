"""Checks all statements and shows the outcome."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbmt.experiments.files import write_bytes
from theory.statements import STATEMENTS, Finding, Statement

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

GRADES = {
    "conclusion": "a claim falls",
    "proof": "the claim may stand, its argument does not",
    "slip": "a misprint",
    "repair": "what holds instead",
}


@dataclass(frozen=True)
class Result:
    """A statement with what its check found."""

    statement: Statement
    finding: Finding

    @property
    def outcome(self) -> str:
        """``"as stated"``, ``"NOT as stated"``, or ``"reported"`` for heuristics, since they prove nothing."""
        if self.statement.evidence == "heuristic":
            return "reported"
        return "as stated" if self.finding.holds else "NOT as stated"

    def to_dict(self) -> dict[str, Any]:
        """All fields but the check itself, ready for JSON."""
        fields = {name: value for name, value in vars(self.statement).items() if name != "check"}
        return fields | {"holds": bool(self.finding.holds), "shown": self.finding.shown, "outcome": self.outcome}


def run(
    statements: Sequence[Statement] = STATEMENTS, on_start: Callable[[Statement], None] | None = None
) -> list[Result]:
    """Checks the statements one after the other; a check that raises counts as not holding."""
    results = []
    for statement in statements:
        if on_start is not None:
            on_start(statement)
        try:
            finding = statement.check()
        except Exception as error:  # one broken check must not hide the rest
            finding = Finding(False, f"{type(error).__name__}: {error}")
        results.append(Result(statement, finding))
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
            found = f"{result.finding.shown}\n[{colour}]{result.outcome}[/{colour}], {result.statement.evidence}: "
            shown.add_row(result.statement.name, result.statement.verdict, found + result.statement.reach)
    return shown


def draw_pictures(folder: Path) -> list[Path]:
    """Writes the report's pictures: the three patterns' certificates, and expectation against existence."""
    from theory.certificate import certify
    from theory.patterns import three_patterns
    from theory.pictures import draw_certificate

    paths = []
    for order in ((1, 2, 3), (3, 2, 1)):
        patterns = three_patterns(16, 4)
        figure = draw_certificate(certify(patterns, order), patterns)
        paths.append(folder / f"three_patterns_{''.join(map(str, order))}.png")
        _save(figure, paths[-1])
    figure = _draw_expectation()
    paths.append(folder / "expectation_against_existence.png")
    _save(figure, paths[-1])
    return paths


def _save(figure: "Figure", path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    write_bytes(path, buffer.getvalue())


def _draw_expectation() -> "Figure":
    """Expected Hamiltonian cycles at p_L, and the probability that no token lacks an arc in or out."""
    from matplotlib.figure import Figure

    from theory.random_graphs import expected_hamiltonian_cycles, prob_all_degrees

    sizes = [4, 6, 8, 12, 16, 24, 32, 48, 64]
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    left = figure.subplots()
    right = left.twinx()
    left.plot(sizes, [expected_hamiltonian_cycles(n, "lemma1") for n in sizes], "o-", color="#D55E00")
    right.plot(sizes, [prob_all_degrees(n, "lemma1") for n in sizes], "s--", color="#0072B2")
    left.set(xlabel="tokens n, at p = (e/n) n^(1/n)", ylim=(0, None), xscale="log")
    left.set_xticks(sizes, [str(n) for n in sizes])
    left.minorticks_off()
    left.set_ylabel("expected Hamiltonian cycles", color="#D55E00")
    right.set(ylim=(0, 1.02))
    right.set_ylabel("P(every token has an arc in and out)", color="#0072B2")
    left.set_title("expectation rises, existence falls: no cycle without such arcs", fontsize=9)
    return figure

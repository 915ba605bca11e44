"""Checks statements, tabulates the results, and draws certificates."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.certificate import NAMES, Certificate
from theory.conditions import receptive_sizes, union
from theory.statements import STATEMENTS, Statement

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

GRADES = {
    "conclusion": "a claim is wrong",
    "proof": "the argument is wrong, but the claim may hold",
    "slip": "a misprint",
    "repair": "what holds instead",
}


@dataclass(frozen=True)
class Result:
    """The result of checking a statement: whether its numbers are as stated, and a sentence with the numbers found."""

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
        """Returns the statement, the result, and whether they agree, ready for JSON."""
        said = {name: part for name, part in vars(self.statement).items() if name not in ("shown", "numbers", "within")}
        return said | {"holds": self.holds, "shown": self.shown, "outcome": self.outcome}


def run(statements: Iterable[Statement] = STATEMENTS) -> list[Result]:
    """Checks the statements one after the other. A check that raises an exception counts as failed."""
    results = []
    for statement in statements:
        try:
            results.append(Result(statement, *statement.check()))
        except Exception as error:  # one broken check must not hide the rest
            results.append(Result(statement, False, f"{type(error).__name__}: {error}"))
    return results


def table(results: Sequence[Result]) -> "Table":
    """Builds the report for a terminal, grouped by grade."""
    from rich.table import Table

    shown = Table(title="Statements about SBM-Transformer's universality", show_lines=True)
    for heading in ("statement", "what is true", "found"):
        shown.add_column(heading, overflow="fold")
    for grade, meaning in GRADES.items():
        chosen = [result for result in results if result.statement.grade == grade]
        if chosen:
            shown.add_row(f"[bold]{grade}[/bold] ({len(chosen)})", f"[bold]{meaning}[/bold]", "")
        for result in chosen:
            colour = {"as stated": "green", "reported": "yellow"}.get(result.outcome, "red")
            found = f"{result.shown}\n[{colour}]{result.outcome}[/{colour}], {result.statement.evidence}: "
            shown.add_row(result.statement.name, result.statement.verdict, found + result.statement.reach)
    return shown


def draw_certificate(certificate: Certificate, patterns: Sequence[Any]) -> "Figure":
    """Draws a certificate as a figure with two panels.

    Left: the entries of the union, with queries as rows and the Hamiltonian path highlighted. Right: the minimum, mean
    and maximum number of tokens that have reached a token after each layer, until condition 3 holds. If it does not
    hold, the panel shows two cycles through the patterns, or a single pass if they are applied once.
    """
    import matplotlib.figure

    from sbmt.experiments.plots.style import BLUE, FAINT, GREEN, INK, QUIET, STYLE, VERMILLION

    _, path, reach = certificate.findings
    n_layers = reach.witness.get("n_layers", (2 if certificate.repeat else 1) * len(certificate.n_entries))
    sizes = np.array(receptive_sizes(patterns, n_layers, certificate.order))
    steps = np.array(list(pairwise(path.witness.get("order", []))) or np.zeros((0, 2)))
    queries, keys = union(patterns).nonzero()
    n, area = certificate.n_tokens, max(0.5, 200.0 / certificate.n_tokens)
    with matplotlib.rc_context(STYLE):
        figure = matplotlib.figure.Figure(figsize=(8.0, 3.8))
        left, right = figure.subplots(1, 2)
        left.scatter(keys, queries, s=area, marker="s", color=FAINT, label="entry")
        left.scatter(steps[:, 0], steps[:, 1], s=area, marker="s", color=BLUE, label="on the path")
        left.set(xlim=(-0.5, n - 0.5), ylim=(n - 0.5, -0.5), aspect="equal", xlabel="key", ylabel="query")
        lines = {"most": (sizes.max(1), ":"), "mean": (sizes.mean(1), "-"), "least": (sizes.min(1), "--")}
        for label, (values, style) in lines.items():
            right.plot(np.arange(1, n_layers + 1), values, style, marker="o", markersize=3, color=INK, label=label)
        right.axhline(n, color=QUIET, linewidth=0.8)
        right.set(ylim=(0, 1.05 * n), xlabel="layer", ylabel="tokens that have arrived")
        right.legend()
        for axis in (left.xaxis, left.yaxis, right.xaxis):
            axis.get_major_locator().set_params(integer=True)
        colours = {"proved": GREEN, "refuted": VERMILLION, "unknown": QUIET}
        for axes, finding in ((left, path), (right, reach)):
            name = NAMES[finding.condition]
            axes.set_title(f"{name[0].upper()}{name[1:]}: {finding.outcome}", color=colours[finding.outcome])
    return figure

"""Conditions 1 to 3 of universality for given patterns: proved, refuted or unknown, each with a witness."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Literal

from scipy.sparse import csr_array

from sbmt.errors import SbmtError
from theory.conditions import (
    as_csrs,
    is_strongly_connected,
    layer_by_layer,
    min_layers,
    missing_pairs,
    missing_self_loops,
    union,
    unreachable_pair,
)
from theory.exact_search import TIME_LIMIT, Undecided
from theory.hamiltonian import Evidence, search

Outcome = Literal["proved", "refuted", "unknown"]
NAMES = {1: "self-loops", 2: "Hamiltonian path", 3: "every token reaches every token"}
_SHOWN = 10  # witnesses listed


@dataclass(frozen=True)
class Finding:
    """What is known about one condition.

    Attributes:
        condition: 1, 2 or 3.
        outcome: ``"proved"``, ``"refuted"`` or ``"unknown"``.
        evidence: What it rests on.
        reason: One sentence.
        witness: JSON-ready. Proved: ``order`` (condition 2) or ``n_layers`` (condition 3). Refuted: ``missing``, a list
            of [layer from 1, token] (condition 1) or of [query, key] (condition 3), if there are any to show.
    """

    condition: int
    outcome: Outcome
    evidence: Evidence
    reason: str
    witness: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The condition in words."""
        return NAMES[self.condition]


@dataclass(frozen=True)
class Certificate:
    """The three conditions for one sequence of patterns.

    Attributes:
        n_tokens: Number of real tokens.
        n_entries: Entries of each pattern, in the order given.
        order: 1-based order in which the patterns act.
        repeat: Whether they repeat for ever or act only once.
        findings: One per condition.
    """

    n_tokens: int
    n_entries: tuple[int, ...]
    order: tuple[int, ...]
    repeat: bool
    findings: tuple[Finding, Finding, Finding]

    @property
    def n_patterns(self) -> int:
        """The number of patterns."""
        return len(self.n_entries)

    @property
    def outcome(self) -> Outcome:
        """The three conditions together: refuted if any is, proved if all are, otherwise unknown."""
        outcomes = {finding.outcome for finding in self.findings}
        return "refuted" if "refuted" in outcomes else "unknown" if "unknown" in outcomes else "proved"

    def condition(self, number: int) -> Finding:
        """The finding on condition 1, 2 or 3.

        Raises:
            SbmtError: For any other number.
        """
        if number not in NAMES:
            raise SbmtError("condition 1, 2 or 3", number, "pick one of the three")
        return self.findings[number - 1]

    def text(self) -> str:
        """A few readable lines."""
        act = "repeated for ever" if self.repeat else "acting once"
        layers = ", ".join(map(str, self.order))
        on = f"{count_of(self.n_patterns, 'pattern', 'patterns')} on {count_of(self.n_tokens, 'token', 'tokens')}"
        size = f"{on}, {count_of(sum(self.n_entries), 'entry', 'entries')}"
        lines = [f"{size}; order {layers}, {act}"]
        for finding in self.findings:
            head = f"condition {finding.condition} ({finding.name}): {finding.outcome} [{finding.evidence}]"
            lines.append(f"{head}: {finding.reason}{_shown(finding.witness)}")
        return "\n".join([*lines, f"all three: {self.outcome}"])

    def to_json(self) -> str:
        """All fields, the names of the conditions and the overall outcome as a JSON document."""
        findings = [{"name": finding.name, **asdict(finding)} for finding in self.findings]
        fields = {**asdict(self), "n_patterns": self.n_patterns, "outcome": self.outcome, "findings": findings}
        return json.dumps(fields, indent=2)


def certify(
    patterns: Sequence[Any],
    order: Sequence[int] | None = None,
    *,
    repeat: bool = True,
    time_limit: float | int = TIME_LIMIT,
) -> Certificate:
    """Decides the three conditions for a sequence of patterns, one per layer.

    1. Every pattern has a full diagonal.
    2. The union of the patterns has a Hamiltonian path.
    3. After some number of layers every token has read every token.

    Args:
        patterns: Boolean arrays, scipy sparse arrays or EdgeLists of one example, whose heads are united. Self-loops
            are not added: a model without them fails condition 1.
        order: 1-based order of the layers; None keeps them as listed. Only condition 3 depends on it.
        repeat: True repeats the patterns cyclically, as the theorem does; False applies condition 3 to a single pass,
            as through a trained network of finitely many layers.
        time_limit: Seconds for exact search; if that is not enough, condition 2 is unknown.

    Raises:
        SbmtError: If the patterns or the order are invalid.

    Paper: theorem on universal approximation, conditions 1 to 3. They are sufficient conditions for fixed patterns; for
    a model that samples its masks, a certificate only covers the draw it was given.

    Example:
        >>> from theory.patterns import three_patterns
        >>> certify(three_patterns(16, 4)).condition(3).witness
        {'n_layers': 5}
    """
    listed = as_csrs(patterns)
    layers = as_csrs(listed, order)
    return Certificate(
        n_tokens=layers[0].shape[0],
        n_entries=tuple(int(matrix.nnz) for matrix in listed),
        order=tuple(range(1, len(layers) + 1)) if order is None else tuple(int(layer) for layer in order),
        repeat=repeat,
        findings=(_self_loops(listed), _path(listed, time_limit), _reach(layers) if repeat else _reach_once(layers)),
    )


def count_of(number: int, one: str, many: str) -> str:
    """A number with its noun, as in "1 token" and "2 tokens"."""
    return f"{number} {one if number == 1 else many}"


def _self_loops(layers: list[csr_array]) -> Finding:
    missing = missing_self_loops(layers)
    if not missing:
        return Finding(1, "proved", "instance", "every pattern has a full diagonal")
    reason = f"diagonal entries are missing, {len(missing)} in all, as (layer, token)"
    return Finding(1, "refuted", "instance", reason, {"missing": [list(pair) for pair in missing[:_SHOWN]]})


def _path(layers: list[csr_array], time_limit: float | int) -> Finding:
    try:
        found = search(union(layers), time_limit)
    except Undecided as undecided:
        return Finding(2, "unknown", "heuristic", f"no path found and none excluded: {undecided}")
    if found.order is None:
        return Finding(2, "refuted", found.evidence, found.reason)
    return Finding(2, "proved", found.evidence, found.reason, {"order": found.order})


def _reach(layers: list[csr_array]) -> Finding:
    pair = unreachable_pair(layers)
    if pair is not None:
        reason = f"no walk in the union leads from token {pair[1]} to token {pair[0]}"
        return Finding(3, "refuted", "theorem", reason, {"missing": [list(pair)]})
    n_layers = min_layers(layers)
    if n_layers is None:
        reason = "without self-loops walks of one length never join all tokens at once"
        return Finding(3, "refuted", "theorem", reason)
    return Finding(3, "proved", "instance", _after(n_layers), {"n_layers": n_layers})


def _reach_once(layers: list[csr_array]) -> Finding:
    n_full = [t for t, reached in enumerate(islice(layer_by_layer(layers), len(layers)), start=1) if reached.all()]
    if n_full and n_full[-1] == len(layers):
        return Finding(3, "proved", "instance", _after(n_full[0]), {"n_layers": n_full[0]})
    missing = [list(pair) for pair in missing_pairs(layers, len(layers), most=_SHOWN)]
    hint = "; more cycles would help" if is_strongly_connected(layers) else ""
    reason = f"after the last layer, number {len(layers)}, some tokens have not read others{hint}, as (query, key)"
    return Finding(3, "refuted", "instance", reason, {"missing": missing})


def _after(n_layers: int) -> str:
    return f"after {count_of(n_layers, 'layer', 'layers')}"


def _shown(witness: dict[str, Any]) -> str:
    if "missing" in witness:
        return ": " + ", ".join(str(tuple(pair)) for pair in witness["missing"])
    if "order" in witness:
        order = witness["order"]
        return ": " + " ".join(map(str, order[:_SHOWN])) + (" …" if len(order) > _SHOWN else "")
    return ""

"""Certificates, which state with witnesses whether given patterns satisfy conditions 1 to 3 of universality."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
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
from theory.hamiltonian import Evidence, search
from theory.path_cover import TIME_LIMIT, Undecided

Outcome = Literal["proved", "refuted", "unknown"]
NAMES = {1: "self-loops", 2: "Hamiltonian path", 3: "every token reaches every token"}
_SHOWN = 10  # number of witnesses listed


@dataclass(frozen=True)
class Finding:
    """The outcome for condition 1, 2 or 3, with the kind of evidence and a one-sentence reason.

    The witness can be stored as JSON. For a proof, it contains ``order`` (condition 2) or ``n_layers`` (condition 3).
    For a refutation, it may contain ``missing``, pairs [layer from 1, token] (condition 1) or [query, key] (3).
    """

    condition: int
    outcome: Outcome
    evidence: Evidence
    reason: str
    witness: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """Returns the finding as one line of text, with the first entries of the witness."""
        line = f"condition {self.condition} ({NAMES[self.condition]}): {self.outcome} [{self.evidence}]: {self.reason}"
        if "missing" in self.witness:
            return f"{line}: " + ", ".join(str(tuple(pair)) for pair in self.witness["missing"])
        order = self.witness.get("order", [])
        shown = " ".join(map(str, order[:_SHOWN])) + (" …" if len(order) > _SHOWN else "")
        return f"{line}: {shown}" if order else line


@dataclass(frozen=True)
class Certificate:
    """The outcomes of the three conditions for one sequence of patterns."""

    n_tokens: int  # number of real tokens, without padding
    n_entries: tuple[int, ...]  # number of entries of each pattern, in the order in which they were passed
    order: tuple[int, ...]  # the order in which the patterns are applied, counted from 1
    repeat: bool  # whether the patterns are repeated or applied only once
    findings: tuple[Finding, Finding, Finding]

    @property
    def outcome(self) -> Outcome:
        """The overall outcome: refuted if any condition is refuted, proved if all are proved, and otherwise unknown."""
        outcomes = {finding.outcome for finding in self.findings}
        return "refuted" if "refuted" in outcomes else "unknown" if "unknown" in outcomes else "proved"

    def condition(self, number: int) -> Finding:
        """Returns the finding on condition 1, 2 or 3. Any other number raises SbmtError."""
        if number not in NAMES:
            raise SbmtError("condition 1, 2 or 3", number, "choose one of these")
        return self.findings[number - 1]

    def text(self) -> str:
        """Returns a summary of a few lines."""
        patterns = count_of(len(self.n_entries), "pattern", "patterns")
        size = f"{count_of(self.n_tokens, 'token', 'tokens')}, {count_of(sum(self.n_entries), 'entry', 'entries')}"
        act = "repeated forever" if self.repeat else "acting once"
        lines = [f"{patterns} on {size}; order {', '.join(map(str, self.order))}, {act}"]
        return "\n".join([*lines, *(finding.text() for finding in self.findings), f"all three: {self.outcome}"])

    def to_json(self) -> str:
        """Returns all fields, the names of the conditions, and the overall outcome as a JSON document."""
        findings = [{"name": NAMES[finding.condition], **asdict(finding)} for finding in self.findings]
        fields = {**asdict(self), "n_patterns": len(self.n_entries), "outcome": self.outcome, "findings": findings}
        return json.dumps(fields, indent=2)


def certify(
    patterns: Sequence[Any],
    order: Sequence[int] | None = None,
    *,
    repeat: bool = True,
    time_limit: float | int = TIME_LIMIT,
) -> Certificate:
    """Decides the three conditions for a sequence of patterns, one per layer.

    All diagonals must be full, the union must have a Hamiltonian path, and every token must finally read every token.

    Args:
        patterns: Boolean arrays, scipy sparse arrays, or EdgeLists of one example, whose heads are united. Self-loops
            are not added, so patterns without them fail condition 1.
        order: 1-based order of the layers; None keeps the listed order. Only condition 3 depends on it.
        repeat: Whether to repeat the patterns cyclically, as the theorem does. Otherwise, condition 3 must hold after
            one pass through the patterns, as in a trained network with finitely many layers.
        time_limit: Seconds allowed for exact search. If they are not enough, condition 2 is unknown.

    Paper: theorem on universal approximation, conditions 1 to 3. They are sufficient conditions for fixed patterns; for
    a model that samples its masks, a certificate covers only the masks that were passed.

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
    """Returns a number followed by its noun, as in "1 token" and "2 tokens"."""
    return f"{number} {one if number == 1 else many}"


def _self_loops(layers: list[csr_array]) -> Finding:
    missing = missing_self_loops(layers)
    if not missing:
        return Finding(1, "proved", "instance", "every pattern has a full diagonal")
    reason = f"{count_of(len(missing), 'diagonal entry is', 'diagonal entries are')} missing, as (layer, token)"
    return Finding(1, "refuted", "instance", reason, {"missing": [list(pair) for pair in missing[:_SHOWN]]})


def _path(layers: list[csr_array], time_limit: float | int) -> Finding:
    try:
        found = search(union(layers), time_limit)
    except Undecided as undecided:
        return Finding(2, "unknown", "heuristic", f"no path was found, but none could be excluded: {undecided}")
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
        return Finding(3, "refuted", "theorem", "without self-loops, walks of equal length never join all tokens")
    return _reached(n_layers)


def _reach_once(layers: list[csr_array]) -> Finding:
    missing = missing_pairs(layers, len(layers), most=_SHOWN)
    if not missing:
        return _reached(next(t for t, reached in enumerate(layer_by_layer(layers), start=1) if reached.all()))
    hint = "; more cycles would help" if is_strongly_connected(layers) else ""
    reason = f"after {count_of(len(layers), 'layer', 'layers')} some pairs have not been read{hint}, as (query, key)"
    return Finding(3, "refuted", "instance", reason, {"missing": [list(pair) for pair in missing]})


def _reached(n_layers: int) -> Finding:
    return Finding(3, "proved", "instance", f"after {count_of(n_layers, 'layer', 'layers')}", {"n_layers": n_layers})

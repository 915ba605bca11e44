"""The three conditions on sampled masks: the share of draws in which each one holds, with a confidence interval."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from sbmt.errors import SbmtError
from theory.certificate import NAMES, certify, count_of
from theory.checks import is_number
from theory.exact_search import TIME_LIMIT


@dataclass(frozen=True)
class Estimate:
    """How often an event happened.

    Attributes:
        hits: Draws in which it was proved to happen.
        n_draws: All draws.
        n_undecided: Draws in which neither the event nor its opposite was proved in time.
    """

    hits: int
    n_draws: int
    n_undecided: int = 0

    @property
    def share(self) -> float:
        """Share of hits; NaN if a draw is undecided, since leaving it out would favour one side."""
        return float("nan") if self.n_undecided else self.hits / self.n_draws

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Clopper and Pearson's interval, which covers any probability with at least this confidence.

        Undecided draws count as misses for its lower end and as hits for its upper end.

        Raises:
            SbmtError: Unless 0 < confidence < 1.
        """
        lower, _ = clopper_pearson(self.hits, self.n_draws, confidence)
        _, upper = clopper_pearson(self.hits + self.n_undecided, self.n_draws, confidence)
        return lower, upper


@dataclass(frozen=True)
class Share:
    """How often one condition held.

    Attributes:
        name: The condition.
        proved, refuted, unknown: Counts of draws; they add up to all draws.
        interval: An interval for the probability that the condition holds, see :meth:`Estimate.interval`.
    """

    name: str
    proved: int
    refuted: int
    unknown: int
    interval: tuple[float, float]

    @property
    def n_draws(self) -> int:
        """The number of draws."""
        return self.proved + self.refuted + self.unknown

    @property
    def share(self) -> float:
        """Share of proved draws; NaN if some are unknown, as for :class:`Estimate`."""
        return float("nan") if self.unknown else self.proved / self.n_draws


@dataclass(frozen=True)
class DrawsReport:
    """Shares of draws for conditions 1, 2 and 3, and for all of them at once.

    Attributes:
        conditions: One per condition.
        together: All three in the same draw.
        level: Confidence of the intervals.
    """

    conditions: tuple[Share, Share, Share]
    together: Share
    level: float

    def text(self) -> str:
        """A few readable lines."""
        lines = [f"{count_of(self.together.n_draws, 'draw', 'draws')}, {self.level:.0%} Clopper-Pearson intervals"]
        for share in (*self.conditions, self.together):
            low, high = share.interval
            counts = f"{share.proved} proved, {share.refuted} refuted, {share.unknown} unknown"
            lines.append(f"{share.name}: {counts}; probability in [{low:.3f}, {high:.3f}] [simulated]")
        return "\n".join(lines)

    def to_json(self) -> str:
        """The same as a JSON document."""
        return json.dumps(asdict(self), indent=2)


def certify_draws(
    draws: Iterable[Sequence[Any]],
    order: Sequence[int] | None = None,
    *,
    repeat: bool = True,
    level: float = 0.95,
    time_limit: float | int = TIME_LIMIT,
) -> DrawsReport:
    """Runs :func:`~theory.certificate.certify` on draw after draw and counts the outcomes.

    Args:
        draws: Lists of patterns, one pattern per layer, drawn independently; may be a generator.
        order: See :func:`~theory.certificate.certify`, as for ``repeat``.
        repeat: Whether the patterns repeat for ever or act only once.
        level: Confidence of the intervals, in (0, 1).
        time_limit: Seconds of exact search per draw.

    Raises:
        SbmtError: If there is no draw, or ``level`` is not in (0, 1).
    """
    _check_level(level)
    if isinstance(draws, str) or not np.iterable(draws):
        raise SbmtError("lists of patterns", repr(draws), "give one list of patterns per draw")
    counts: list[Counter[str]] = [Counter() for _ in range(4)]
    for patterns in draws:
        certificate = certify(patterns, order, repeat=repeat, time_limit=time_limit)
        outcomes = [finding.outcome for finding in certificate.findings]
        for count, outcome in zip(counts, [*outcomes, certificate.outcome], strict=True):
            count[outcome] += 1
    if not counts[0]:
        raise SbmtError("at least one draw", 0, "sample some masks")
    names = [f"condition {number} ({name})" for number, name in NAMES.items()]
    one, two, three, together = (
        Share(
            name,
            count["proved"],
            count["refuted"],
            count["unknown"],
            Estimate(count["proved"], count.total(), count["unknown"]).interval(level),
        )
        for name, count in zip([*names, "all three"], counts, strict=True)
    )
    return DrawsReport((one, two, three), together, level)


def clopper_pearson(successes: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval for a probability, by scipy.

    Raises:
        SbmtError: Unless 0 < level < 1.

    Example:
        >>> [round(end, 4) for end in clopper_pearson(0, 20)]
        [0.0, 0.1684]
    """
    _check_level(level)
    interval = binomtest(successes, n).proportion_ci(level, method="exact")
    return float(interval.low), float(interval.high)


def _check_level(level: float) -> None:
    if not is_number(level, 0, 1) or level in (0, 1):
        raise SbmtError("a confidence level in (0, 1)", level, "0.95 is usual")

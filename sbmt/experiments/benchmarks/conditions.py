"""What a suite is asked for besides its question."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sbmt.experiments.benchmarks.progress import OnCase


def _ignore(_: Any) -> None:
    pass


@dataclass(frozen=True)
class Conditions:
    """How a suite is run.

    Attributes:
        is_quick: Whether a minute has to do: fewer cases, fewer rounds.
        on_case: Whom to tell about progress.
        on_found: Who takes what was found so far, after each case; only suites on a GPU call it.
        minutes: After this time no further case begins; None is no limit.
        before: What an earlier run of the suite found, to go on from.
    """

    is_quick: bool
    on_case: OnCase
    on_found: Callable[[dict[str, Any]], None] = _ignore
    minutes: float | None = None
    before: dict[str, Any] | None = None

"""What a suite is asked for besides its question, and how it reports progress."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Item = TypeVar("Item")
OnCase = Callable[[int, int], None]
"""Called with the number of cases done, and the total."""


@dataclass(frozen=True)
class Conditions:
    """How a suite is run.

    Attributes:
        is_quick: Whether it should take only a minute: fewer cases, fewer rounds.
        on_case: Called as cases are done.
        on_found: Called with everything found so far, after each case; only suites on a GPU call it.
        minutes: No further case begins after this time; None is no limit.
        before: What an earlier run of the suite found, to be continued.
    """

    is_quick: bool
    on_case: OnCase
    on_found: Callable[[dict[str, Any]], None] = lambda found: None
    minutes: float | None = None
    before: dict[str, Any] | None = None


def counted(items: Sequence[Item], total: int, on_case: OnCase, before: int = 0) -> Iterator[Item]:
    """Yields the items, with a call of ``on_case`` before the first and after each.

    Args:
        items: What a suite goes through.
        total: How many cases the suite has in all.
        on_case: What is called.
        before: How many cases were done before the first item.
    """
    on_case(before, total)
    for done, item in enumerate(items, start=before + 1):
        yield item
        on_case(done, total)

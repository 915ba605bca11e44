"""How suites tell where they are."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Item = TypeVar("Item")
OnCase = Callable[[int, int], None]
"""Called with how many cases are done, and how many there are."""


def counted(items: Sequence[Item], total: int, on_case: OnCase, before: int = 0) -> Iterator[Item]:
    """The items, with a call before the first and after each.

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

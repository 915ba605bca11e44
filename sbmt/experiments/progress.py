"""Progress of long loops: whoever runs one passes a function such as rich's ``track``."""

from collections.abc import Callable, Iterable
from typing import Any

Track = Callable[..., Iterable[Any]]  # called as track(items, description=...), which yields the same items


def untracked(items: Iterable[Any], description: str = "") -> Iterable[Any]:
    """Yields the items without showing anything."""
    return items

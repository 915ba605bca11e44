"""Progress of long loops: whoever runs one passes a function such as rich's ``track``."""

from collections.abc import Callable, Iterable
from typing import Any

Track = Callable[..., Iterable[Any]]
"""Called as ``track(items, description=...)``; yields the same items, and shows how many are done."""


def untracked(items: Iterable[Any], description: str = "") -> Iterable[Any]:
    """Yields the items without showing anything."""
    return items

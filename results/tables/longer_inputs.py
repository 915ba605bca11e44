"""The tables of networks that are asked about longer inputs than they were trained on."""

from collections.abc import Iterable, Iterator
from typing import Any

from results.tables.grid import grid

FEW = "fitted", "random", "window"
MANY = "fitted, all edges", "random, all edges"


def longer_table(tasks: dict[str, Any]) -> str:
    """Masks with as many edges a query as at the length of training: points they lose, and the cost of one answer."""
    rows = [
        (name, *length_of(at), share(at["kinds"]["fitted"]), *losses(at, FEW), *cost(at)) for name, at in lengths(tasks)
    ]
    return grid(("", "tokens", "full attention", "pairs", *FEW, "time", "memory"), rows)


def same_share_table(tasks: dict[str, Any]) -> str:
    """Masks that hold as large a share of the pairs as at the length of training."""
    rows = [
        (name, *length_of(at), share(at["kinds"][MANY[0]]), *losses(at, MANY))
        for name, at in lengths(tasks)
        if MANY[0] in at["kinds"]
    ]
    return grid(("", "tokens", "full attention", "pairs", "fitted", "random"), rows)


def lengths(tasks: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every task with each of its lengths."""
    return ((name, at) for name, task in tasks.items() for at in task["lengths"])


def length_of(at: dict[str, Any]) -> tuple[str, str]:
    """The length, and full attention's accuracy."""
    return f"{at['length']:,}", f"{at['kinds']['full']['accuracy']:.3f}"


def losses(at: dict[str, Any], kinds: Iterable[str]) -> list[str]:
    """Points of accuracy lost against full attention, ± standard error."""
    return [f"{100 * at['kinds'][kind]['lost']:.1f} ± {100 * at['kinds'][kind]['lost_error']:.1f}" for kind in kinds]


def cost(at: dict[str, Any]) -> tuple[str, str]:
    """Time and memory of an answer under the fitted mask, over full attention's."""
    added = at["memory"]
    return f"{at['times']['fitted']['ratio']:.2f} ×", f"{added['fitted']['added'] / added['full']['added']:.1f} ×"


def share(kind: dict[str, float]) -> str:
    """The share of pairs that are edges."""
    return f"{100 * kind['density']:.1f} %"

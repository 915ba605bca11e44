"""The tables of networks that are asked about longer inputs than they were trained on."""

from collections.abc import Iterator, Sequence
from typing import Any

from results.tables.grid import grid, points

FEW = "fitted", "random", "window"
MANY = "fitted, all edges", "random, all edges"


def longer_table(tasks: dict[str, Any]) -> str:
    """Masks with as many edges a query as at the length of training: points they lose, and the cost of one answer."""
    rows = [(*cells(name, at, FEW), *cost(at)) for name, at in lengths(tasks)]
    return grid(("", "tokens", "full attention", "pairs", *FEW, "time", "memory"), rows)


def same_share_table(tasks: dict[str, Any]) -> str:
    """Masks that hold as large a share of the pairs as at the length of training."""
    rows = [cells(name, at, MANY) for name, at in lengths(tasks) if MANY[0] in at["kinds"]]
    return grid(("", "tokens", "full attention", "pairs", "fitted", "random"), rows)


def lengths(tasks: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every task with each of its lengths."""
    return ((name, at) for name, task in tasks.items() for at in task["lengths"])


def cells(task: str, at: dict[str, Any], kinds: Sequence[str]) -> list[str]:
    """Task, length, full attention's accuracy, the first kind's share of pairs, and points that each kind loses."""
    found = [at["kinds"][kind] for kind in kinds]
    about = [task, f"{at['length']:,}", f"{at['kinds']['full']['accuracy']:.3f}", f"{100 * found[0]['density']:.1f} %"]
    return about + [points(kind["lost"], kind["lost_error"]) for kind in found]


def cost(at: dict[str, Any]) -> tuple[str, str]:
    """Time and memory of an answer under the fitted mask, over full attention's."""
    added = at["memory"]
    return f"{at['times']['fitted']['ratio']:.2f} ×", f"{added['fitted']['added'] / added['full']['added']:.1f} ×"

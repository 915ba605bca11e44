"""The table of networks that are asked about longer inputs than they were trained on."""

from collections.abc import Iterator
from typing import Any

from results.tables.grid import grid

KINDS = "fitted", "random", "window", "fitted, all edges", "random, all edges"


def longer_table(tasks: dict[str, Any]) -> str:
    """A row for each task and length: full attention's accuracy, points lost under masks, cost of reading an input."""
    headings = ("", "tokens", "full", "pairs", "fitted", "random", "window", "pairs", "fitted", "random")
    return grid((*headings, "time", "memory"), rows(tasks))


def rows(tasks: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Two groups of masks: with as many edges per query as at the first length, and with as large a share of pairs."""
    for name, task in tasks.items():
        for at in task["lengths"]:
            kinds = at["kinds"]
            few, all_edges = (
                (share(kinds[group[0]]), *(lost(kinds[kind]) for kind in group)) if group[0] in kinds else ("",) * 3
                for group in (KINDS[:3], KINDS[3:])
            )
            times, memory = at["times"]["fitted"], at["memory"]
            cost = f"{times['ratio']:.2f} ×", f"{memory['fitted']['added'] / memory['full']['added']:.1f} ×"
            yield name, f"{at['length']:,}", f"{kinds['full']['accuracy']:.3f}", *few, *all_edges, *cost


def share(kind: dict[str, float]) -> str:
    """The share of pairs that are edges."""
    return f"{100 * kind['density']:.1f} %"


def lost(kind: dict[str, float]) -> str:
    """Points of accuracy lost against full attention, ± standard error."""
    return f"{100 * kind['lost']:.1f} ± {100 * kind['lost_error']:.1f}"

"""The tables of how much attention masks see in trained networks."""

from collections.abc import Callable
from typing import Any

from results.tables.files import Files
from results.tables.grid import grid, points

SHOWN = 0.05
HEADS = {"Retrieval, topics": "Retrieval", "masked language model": "language"}  # so that tables fit the page


def attention_mass_page(files: Files) -> dict[str, str]:
    """What goes into docs/attention-mass.md."""
    if not files.has("attention_mass"):
        return {}
    networks = files.load("attention_mass")["networks"]
    return {
        "attention-seen": kinds_table(networks, lambda kind: f"{100 * kind['attention_mass']:.0f} %"),
        "attention-error": kinds_table(networks, lambda kind: f"{kind['error']:.2f}"),
        "attention-lost": lost_table(networks),
        "attention-tuned": lost_table({name: found["tuned"] for name, found in networks.items() if "tuned" in found}),
    }


def kinds_table(networks: dict[str, Any], show: Callable[[dict[str, Any]], str]) -> str:
    """A row per kind of mask, a column per network."""
    columns = [[show(kind) for kind in shown(network)] for network in networks.values()]
    kinds = [kind["kind"] for kind in shown(next(iter(networks.values())))]
    return grid(("", *(HEADS.get(name, name) for name in networks)), list(zip(kinds, *columns, strict=True)))


def lost_table(networks: dict[str, Any]) -> str:
    """Full attention's accuracy, and the points that each kind of mask loses, ± standard error."""
    table = kinds_table(networks, lambda kind: points(kind["lost"], kind["lost_error"]))
    head, line, *rows = table.split("\n")
    tokens = [f"{network['mean_keys']:.0f}" for network in networks.values()]
    full = [f"{network['full']['accuracy']:.3f}" for network in networks.values()]
    above = [f"| {' | '.join(row)} |" for row in (("tokens", *tokens), ("full attention's accuracy", *full))]
    return "\n".join([head, line, *above, *rows])


def shown(network: dict[str, Any]) -> list[dict[str, Any]]:
    """The kinds of masks of one network, with the share of pairs that tables show."""
    found: list[dict[str, Any]] = network["levels"][network["shares"].index(SHOWN)]
    return found

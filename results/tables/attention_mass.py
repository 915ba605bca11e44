"""The tables of how much attention masks see in trained networks."""

from typing import Any

from results.tables.files import Files
from results.tables.grid import grid

SHOWN = 0.05


def attention_mass_page(files: Files) -> dict[str, str]:
    """What goes into docs/attention-mass.md."""
    if not files.has("attention_mass"):
        return {}
    networks = files.load("attention_mass")["networks"]
    return {
        "attention-seen": kinds_table(networks, lambda kind: f"{100 * kind['recall']:.0f} %"),
        "attention-error": kinds_table(networks, lambda kind: f"{kind['error']:.2f}"),
        "attention-lost": lost_table(networks),
        "attention-tuned": lost_table({name: found["tuned"] for name, found in networks.items() if "tuned" in found}),
    }


def kinds_table(networks: dict[str, Any], show: Any) -> str:
    """A row per network, a column per kind of mask."""
    rows = [(name, *(show(kind) for kind in shown(network))) for name, network in networks.items()]
    first = next(iter(networks.values()))
    return grid(("", *(kind["kind"] for kind in shown(first))), rows)


def lost_table(networks: dict[str, Any]) -> str:
    """A row per network: full attention's accuracy, and the points that each kind of mask loses, ± standard error."""
    rows = []
    for name, network in networks.items():
        points = [f"{100 * kind['lost']:.1f} ± {100 * kind['lost_error']:.1f}" for kind in shown(network)]
        rows.append((name, f"{network['mean_keys']:.0f}", f"{network['full']['accuracy']:.3f}", *points))
    first = next(iter(networks.values()))
    return grid(("", "tokens", "full", *(kind["kind"] for kind in shown(first))), rows)


def shown(network: dict[str, Any]) -> list[dict[str, Any]]:
    """The kinds of masks of one network, with the share of pairs that tables show."""
    found: list[dict[str, Any]] = network["levels"][network["shares"].index(SHOWN)]
    return found

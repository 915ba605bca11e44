"""The paper's tables of costs, and how our counts and measurements compare with them."""

from collections.abc import Iterable, Sequence
from typing import Any

from results.paper_costs.claims import TABLE_3
from sbmt.experiments.costs.methods import METHODS
from sbmt.experiments.costs.tables import short_title
from sbmt.experiments.tables import LEFT_OUT, Table


def paper_table(kind: str) -> Table:
    """The paper's own Table 3, to be shown beside ours.

    Args:
        kind: ``"flops"`` or ``"memory"``.
    """
    which, title = {"flops": (0, "FLOPs"), "memory": (1, "peak memory")}[kind]
    rows = tuple((short_title(name), *(f"{x:.2f}" for x in both[which])) for name, both in TABLE_3.items())
    headings = ("", "L (2K)", "T (3K)", "R (4K)", "I (1K)", "P (1K)")
    return Table(f"paper-{kind}", f"The paper's Table 3: {title}, full attention = 1", headings, rows)


def verdict_table(verdicts: Iterable[dict[str, Any]]) -> Table:
    """Claims of Tables 5 and 6 beside our counts, each the fields of a :class:`~results.paper_costs.growth.Verdict`."""
    rows = []
    for one in verdicts:
        found = ((symbol, *both) for symbol, both in one["exponents"].items())
        exponents = ", ".join(f"{symbol} {claimed} → {slope:.2f}" for symbol, claimed, slope in found)
        beyond, unused = (", ".join(one[name]) or LEFT_OUT for name in ("beyond", "unused"))
        rows.append((one["title"], f"O({one['claimed']})", exponents, beyond, unused))
    title = "Tables 5 and 6, time: claimed exponent → log-log slope of our count"
    return Table("claims", title, ("", "claimed", "exponents", "not in the claim", "not needed"), tuple(rows))


def slope_table(products: Sequence[dict[str, Any]], memory: Sequence[dict[str, Any]]) -> Table:
    """Measured log-log slopes beside those of the claims over the same sizes."""
    rows = []
    for what, found in (("products, by torch's counter", products), ("peak memory", memory)):
        for one in found:
            held = ", ".join(f"{symbol} = {size:,}" for symbol, size in one["base"].items() if symbol != one["symbol"])
            grows = f"{one['symbol']} = {', '.join(f'{value:,}' for value in one['values'])}"
            slopes = (f"{one[name]:.2f}" if name in one else LEFT_OUT for name in ("claimed", "slope"))
            rows.append((METHODS[one["method"]].title, what, grows, held, *slopes))
    headings = ("", "measured", "grows", "held", "claimed slope", "slope")
    notes = tuple(dict.fromkeys(one["missing"] for one in memory if "missing" in one))
    return Table("slopes", "Log-log slopes of what is measured", headings, tuple(rows), notes)

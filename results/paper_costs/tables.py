"""The paper's tables of costs, and how our counts and measurements compare with them."""

from collections.abc import Iterable
from typing import Any

from results.paper_costs.claims import TABLE_3
from sbmt.experiments.costs import short_title
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

"""Tables of costs, for the terminal and for the documentation."""

from collections.abc import Sequence
from typing import Any

from sbmt.cost.claims import TABLE_3
from sbmt.cost.methods import METHODS, REFERENCE
from sbmt.cost.operations import OperationCount
from sbmt.cost.slopes import Verdict
from sbmt.experiments.tables import LEFT_OUT, Table


def cost_tables(report: dict[str, Any]) -> list[Table]:
    """Table 3's numbers from :func:`~sbmt.cost.report.cost_report`: FLOPs, then peak memory, full attention = 1."""
    operations = [(method, mine) for method, mine in report["operations"].items() if method != "full-fused"]
    tables = []
    for kind, title in (("attention", "FLOPs of the attention alone"), ("model", "FLOPs of the whole model")):
        flops = {method: [one[kind]["n_flops"] for one in mine] for method, mine in operations}
        titles = {method: _short_title(method) for method in flops}
        tables.append(_relative(f"flops-{kind}", title, report, flops, titles))
    if "memory" in report:
        peaks = {method: [one.get("forward") for one in mine] for method, mine in report["memory"].items()}
        titles = {method: METHODS[method].title for method in peaks}
        missing = (
            f"{titles[method]}: {one['missing']}"
            for method, mine in report["memory"].items()
            for one in mine
            if "missing" in one
        )
        notes = tuple(dict.fromkeys(missing))
        tables.append(_relative("memory", "Peak memory of a forward pass", report, peaks, titles, notes))
    return tables


def _relative(
    name: str,
    title: str,
    report: dict[str, Any],
    found: dict[str, list[Any]],
    titles: dict[str, str],
    notes: tuple[str, ...] = (),
) -> Table:
    """Numbers per method and column, divided by those of full attention."""
    headings = ("", *(f"{column['title']}, {100 * column['density']:.3g} %" for column in report["columns"]))
    rows = []
    for method, numbers in found.items():
        cells = (_ratio(number, whole) for number, whole in zip(numbers, found[REFERENCE], strict=True))
        rows.append((titles[method], *cells))
    return Table(name, f"{title}, full attention = 1", headings, tuple(rows), notes)


def paper_table(kind: str) -> Table:
    """The paper's own Table 3, to lay beside ours.

    Args:
        kind: ``"flops"`` or ``"memory"``.
    """
    which, title = {"flops": (0, "FLOPs"), "memory": (1, "peak memory")}[kind]
    rows = tuple((_short_title(name), *(f"{x:.2f}" for x in both[which])) for name, both in TABLE_3.items())
    headings = ("", "L (2K)", "T (3K)", "R (4K)", "I (1K)", "P (1K)")
    return Table(f"paper-{kind}", f"The paper's Table 3: {title}, full attention = 1", headings, rows)


def parts_table(count: OperationCount, title: str) -> Table:
    """Where the operations of a model are; alike parts of different layers in one row."""
    rows: dict[tuple[str, str, str], list[int]] = {}
    for row in count.rows:
        if row.n_flops or row.n_elementwise:
            sums = rows.setdefault((row.part, row.flops, row.elementwise), [0, 0, 0])
            for place, number in enumerate((1, row.n_flops, row.n_elementwise)):
                sums[place] += number
    cells = [
        (part, f"{many} ×", flops, f"{n_flops:,}", f"{n_flops / max(1, count.n_flops):.1%}", elementwise, f"{other:,}")
        for (part, flops, elementwise), (many, n_flops, other) in rows.items()
    ]
    cells.append(("all", "", "", f"{count.n_flops:,}", "100.0%", "", f"{count.n_elementwise:,}"))
    headings = ("part", "times", "FLOPs each", "FLOPs", "share", "elementwise each", "elementwise")
    return Table("parts", title, headings, tuple(cells))


def verdict_table(verdicts: Sequence[Verdict]) -> Table:
    """Claims of Tables 5 and 6 beside our counts."""
    rows = []
    for one in verdicts:
        exponents = ", ".join(f"{symbol} {claimed} → {slope:.2f}" for symbol, (claimed, slope) in one.exponents.items())
        beyond, unused = (", ".join(terms) or LEFT_OUT for terms in (one.beyond, one.unused))
        rows.append((one.title, f"O({one.claimed})", exponents, beyond, unused))
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


def _short_title(method: str) -> str:
    """Whether scores are kept makes no difference to their number."""
    return "full attention" if method == REFERENCE else METHODS[method].title


def _ratio(number: float | int | None, whole: float | int | None) -> str:
    return LEFT_OUT if number is None or not whole else f"{number / whole:.2f}"

"""Tables of costs, for the terminal and for the documentation."""

from typing import Any

from sbmt.cost import OperationCount
from sbmt.experiments.costs.methods import REFERENCE, method_of
from sbmt.experiments.tables import LEFT_OUT, Table


def cost_tables(report: dict[str, Any]) -> list[Table]:
    """FLOPs and peak memory relative to full attention, from :func:`~sbmt.experiments.costs.report.cost_report`."""
    counted = {short_title(name): mine for name, mine in report["operations"].items() if name != "full-fused"}
    tables = []
    for kind, title in (("attention", "FLOPs of the attention alone"), ("model", "FLOPs of the whole model")):
        flops = {name: [one.get(kind, {}).get("n_flops") for one in mine] for name, mine in counted.items()}
        tables.append(_relative(f"flops-{kind}", title, report, flops, _notes(counted)))
    if "memory" in report:
        measured = {method_of(name).title: mine for name, mine in report["memory"].items()}
        peaks = {name: [one.get("forward") for one in mine] for name, mine in measured.items()}
        tables.append(_relative("memory", "Peak memory of a forward pass", report, peaks, _notes(measured)))
    return tables


def parts_table(count: OperationCount, title: str) -> Table:
    """Where in a model its operations are; equal parts of different layers share a row."""
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


def short_title(method: str) -> str:
    """A method's title where only operations matter: they are the same whether or not scores are kept."""
    return "full attention" if method == REFERENCE else method_of(method).title


def _relative(
    name: str, title: str, report: dict[str, Any], found: dict[str, list[Any]], notes: tuple[str, ...]
) -> Table:
    """Numbers per method and column, divided by those of full attention, which is the first row."""
    headings = ("", *(f"{column['title']}, {100 * column['density']:.3g} %" for column in report["columns"]))
    full = next(iter(found.values()))
    rows = tuple((row, *(_ratio(*pair) for pair in zip(numbers, full, strict=True))) for row, numbers in found.items())
    return Table(name, f"{title}, full attention = 1", headings, rows, notes)


def _notes(found: dict[str, list[dict[str, Any]]]) -> tuple[str, ...]:
    """Why numbers are missing, each reason once."""
    missing = (f"{name}: {one['missing']}" for name, mine in found.items() for one in mine if "missing" in one)
    return tuple(dict.fromkeys(missing))


def _ratio(number: float | int | None, whole: float | int | None) -> str:
    return LEFT_OUT if number is None or not whole else f"{number / whole:.2f}"

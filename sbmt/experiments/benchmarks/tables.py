"""Tables of what the suites found, for the terminal and for the documentation."""

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

from sbmt.experiments.benchmarks.attention import OURS, REFERENCE
from sbmt.experiments.tables import LEFT_OUT, Table

WAYS = {True: ("training", "Training step, forward + backward"), False: ("forward", "Forward")}
TITLES = {REFERENCE: "SDPA", OURS: "SBM", "transformer_conv": "TransformerConv"}
Cases = list[dict[str, Any]]


def tables_of(result: dict[str, Any]) -> list[Table]:
    """The tables of a results file; suites of earlier versions that measured something else have none."""
    tables = []
    for name, one in result["suites"].items():
        found = one["found"]
        if name == "backends":
            tables += backend_tables(found)
        elif name == "memory":
            tables += memory_tables("memory", found["cases"], "step")
        elif "sweeps" in found["cases"][0]:
            tables += sweep_tables(name, found["cases"])
        if "memory" in found:
            tables += memory_tables(f"{name}-memory", found["memory"]["cases"], "step")
    return tables


def sweep_tables(suite: str, cases: Cases) -> list[Table]:
    """Per sweep, forward and training step: times, ratios to full attention, and on a GPU the peaks of memory."""
    tables, titles = [], TITLES | ({OURS: "fitted"} if suite == "fitted" else {})
    for sweep in dict.fromkeys(sweep for case in cases for sweep in case["sweeps"]):
        name = suite if sweep == suite else f"{suite}-{sweep}"
        mine = [case for case in cases if sweep in case["sweeps"]]
        for is_training, (way, title) in WAYS.items():
            if some := [case for case in mine if case["is_training"] == is_training]:
                tables.append(_times(f"{name}-{way}", title, some, titles))
        if any("peak" in one for case in mine for one in case["results"].values()):
            tables += memory_tables(f"{name}-memory", mine, "peak")
    return tables


def memory_tables(name: str, cases: Cases, key: str) -> list[Table]:
    """Mebibytes that one training step, and one forward pass, of each contestant adds."""

    def cell(result: dict[str, Any]) -> str:
        return f"{result[key]:,.0f}" if key in result else LEFT_OUT

    tables = []
    for suffix, is_training, what in (("", True, "training step"), ("-forward", False, "forward pass")):
        if mine := [case for case in cases if case["is_training"] == is_training]:
            cells = {f"{TITLES.get(x, x)}, MiB": (x, cell) for x in _names(mine)}
            tables.append(_table(name + suffix, f"Memory that one {what} adds", mine, cells))
    return tables


def _times(name: str, title: str, cases: Cases, titles: dict[str, str]) -> Table:
    """Times of full attention and of the first of our ways, and ratios to full attention."""
    ours = next(x for x in (OURS, "sparse") if x in cases[0]["results"])  # the latter in earlier files of a GPU
    shown = titles.get(ours, ours)
    others = [x for x in _names(cases) if x not in (REFERENCE, ours)]
    cells = {"SDPA, ms": (REFERENCE, _time), f"{shown}, ms": (ours, _time)}
    cells |= {f"{shown} / SDPA": (ours, _ratio), "quartiles": (ours, _quartiles)}
    cells |= {f"{titles.get(x, x)} / SDPA": (x, _ratio) for x in others}
    return _table(name, title, cases, cells)


def _table(
    name: str, title: str, cases: Cases, cells: Mapping[str, tuple[str, Callable[[dict[str, Any]], str]]]
) -> Table:
    """A row per case; what is the same for all of them moves to the title, and a contestant that never ran goes."""
    cases = sorted(cases, key=lambda case: (case["kind"], case["n"], case["density"], case["n_clusters"]))
    columns = {
        "memberships": [case["kind"] for case in cases],
        "n": [f"{case['n']:,}" for case in cases],
        "density": [percent(case["density"]) for case in cases],
        "k": [f"{case['n_clusters']:,}" for case in cases],
    }
    if cases[0]["kind"] in ("fitted", "shared"):
        columns["keys per query"] = [f"{case['n'] * case['density']:.0f}" for case in cases]
    same = [f"{heading} = {column[0]}" for heading, column in columns.items() if len(set(column)) == 1]
    columns = {heading: column for heading, column in columns.items() if len(set(column)) > 1}
    for heading, (contestant, cell) in cells.items():
        column = [cell(case["results"].get(contestant, {})) for case in cases]
        columns |= {} if set(column) == {LEFT_OUT} else {heading: column}
    results = [(TITLES.get(x, x), one) for case in cases for x, one in case["results"].items() if "missing" in one]
    notes = dict.fromkeys(f"{contestant}: {one['missing']}" for contestant, one in results)
    rows = tuple(zip(*columns.values(), strict=True))
    return Table(name, "; ".join([title, *same]), tuple(columns), rows, tuple(notes))


def backend_tables(found: dict[str, Any]) -> list[Table]:
    """How much slower the automatic choice is than the best one, and every mask."""
    losses, tables = [], []
    for name, one in found.items():
        names = dict.fromkeys(x for cell in one["cells"] for x in cell["results"])
        rows, lost = [], []
        for cell in one["cells"]:
            times = {
                x: result["ratio"] / cell["results"][cell["best"]]["ratio"] for x, result in cell["results"].items()
            }
            lost += [times[cell["auto"]]] if cell["auto"] in times else []
            ratios = (f"{times[x]:.2f}" if x in times else LEFT_OUT for x in names)
            about = f"{cell['n_graphs']} × {cell['n']}²", percent(cell["density"])
            rows.append((*about, *ratios, cell["best"], cell["auto"]))
        headings = ("graphs", "density", *(f"{x} / best" for x in names), "best", "taken")
        what = "`edge_attention`" if name == "attention" else f"`{name}`"
        tables.append(Table(f"backends-{name}", f"{what}, forward + backward", headings, tuple(rows)))
        losses.append((what, f"{median(lost):.2f}", f"{max(lost):.2f}"))
    title = "Time of the automatic choice / time of the best"
    return [Table("backends-loss", title, ("", "median", "worst"), tuple(losses)), *tables]


def percent(share: float) -> str:
    """A density to three digits.

    Example:
        >>> percent(0.0025), percent(0.5)
        ('0.25 %', '50 %')
    """
    return f"{100 * share:.3g} %"


def milliseconds(x: float) -> str:
    """A time to about three digits.

    Example:
        >>> milliseconds(0.1234), milliseconds(12.34), milliseconds(1234.5)
        ('0.123', '12.3', '1,234')
    """
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}" if x >= 1 else f"{x:.3f}"


def _names(cases: Cases) -> list[str]:
    return list(dict.fromkeys(name for case in cases for name in case["results"]))


def _time(result: dict[str, Any]) -> str:
    return milliseconds(result["median"]) if "median" in result else LEFT_OUT


def _ratio(result: dict[str, Any]) -> str:
    return f"{result['ratio']:.2f}" if "ratio" in result else LEFT_OUT


def _quartiles(result: dict[str, Any]) -> str:
    return f"{result['ratio_low']:.2f}–{result['ratio_high']:.2f}" if "ratio" in result else LEFT_OUT

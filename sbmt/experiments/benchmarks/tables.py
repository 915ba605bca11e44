"""Tables of the suites' results, for the terminal and the documentation."""

from typing import Any

from sbmt.experiments.benchmarks.suites import OURS, REFERENCE, SUITES
from sbmt.experiments.tables import LEFT_OUT, Table

WAYS = {True: ("training", "Training step, forward + backward"), False: ("forward", "Forward")}
TITLES = {REFERENCE: "SDPA", "math": "SDPA, scores kept", OURS: "SBM", "transformer_conv": "TransformerConv"}
WRITTEN = {
    "{}, ms": ("median", lambda one: milliseconds(one["median"])),
    "{} / SDPA": ("ratio", lambda one: f"{one['ratio']:.2f}"),
    "quartiles": ("ratio", lambda one: f"{one['ratio_low']:.2f}–{one['ratio_high']:.2f}"),
    "{}, MiB": ("peak", lambda one: f"{one['peak']:,.0f}"),
}
"""By the heading of a column: the number that a contestant's result needs, and how it is written."""


def tables_of(result: dict[str, Any]) -> list[Table]:
    """The tables of a results file: per sweep, forward and training step, times and peaks of memory."""
    tables = []
    for suite in (name for name in result["suites"] if name in SUITES):  # older files contain others
        cases = result["suites"][suite]["found"]["cases"]
        titles = TITLES | ({OURS: "fitted"} if suite == "fitted" else {})
        for sweep in dict.fromkeys(sweep for case in cases for sweep in case["sweeps"]):
            for is_training, (way, title) in WAYS.items():
                mine = [case for case in cases if sweep in case["sweeps"] and case["is_training"] == is_training]
                names = list(dict.fromkeys(name for case in mine for name in case["results"]))
                others = [(name, "{} / SDPA") for name in names if name not in (REFERENCE, OURS)]
                ours = [(OURS, "{}, ms"), (OURS, "{} / SDPA"), (OURS, "quartiles")]
                times = [(REFERENCE, "{}, ms"), *ours, *others]
                tables.append(_table(f"{suite}-{sweep}-{way}", title, mine, times, titles))
                peaks = [(name, "{}, MiB") for name in names]
                memory = _table(f"{suite}-{sweep}-{way}-memory", f"{title}: memory", mine, peaks, titles)
                tables += [memory] if any("MiB" in heading for heading in memory.headings) else []
    return tables


def _table(
    name: str, title: str, cases: list[dict[str, Any]], shown: list[tuple[str, str]], titles: dict[str, str]
) -> Table:
    """A row per case; common values move to the title, and contestants that never ran are left out."""
    cases = sorted(cases, key=lambda case: (case["kind"], case["n"], case["density"], case["n_clusters"]))
    columns = {
        "memberships": [case["kind"] for case in cases],
        "n": [f"{case['n']:,}" for case in cases],
        "density": [percent(case["density"]) for case in cases],
        "k": [f"{case['n_clusters']:,}" for case in cases],
    }
    if cases[0]["kind"] == "fitted":
        columns["keys per query"] = [f"{case['n'] * case['density']:.0f}" for case in cases]
    same = [f"{heading} = {column[0]}" for heading, column in columns.items() if len(set(column)) == 1]
    columns = {heading: column for heading, column in columns.items() if len(set(column)) > 1}
    for contestant, heading in shown:
        (needed, write), found = WRITTEN[heading], [case["results"].get(contestant, {}) for case in cases]
        column = [write(one) if needed in one else LEFT_OUT for one in found]
        columns |= {} if set(column) == {LEFT_OUT} else {heading.format(titles.get(contestant, contestant)): column}
    results = [(titles.get(x, x), one) for case in cases for x, one in case["results"].items() if "missing" in one]
    notes = dict.fromkeys(f"{contestant}: {one['missing']}" for contestant, one in results)
    rows = tuple(zip(*columns.values(), strict=True))
    return Table(name, "; ".join([title, *same]), tuple(columns), rows, tuple(notes))


def percent(share: float) -> str:
    """A density to three digits: ``0.25 %``."""
    return f"{100 * share:.3g} %"


def milliseconds(x: float) -> str:
    """A time to about three digits.

    Example:
        >>> milliseconds(0.1234), milliseconds(12.34), milliseconds(1234.5)
        ('0.123', '12.3', '1,234')
    """
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}" if x >= 1 else f"{x:.3f}"

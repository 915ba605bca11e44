"""Tables of the suites' results, for the terminal."""

from typing import Any

from rich.table import Table

from sbmt.experiments.benchmarks.suites import GRAPHS, OURS, REFERENCE, SUITES

LEFT_OUT = "–"  # an empty cell


def percent(share: float) -> str:
    """Formats a density with three digits: ``0.25 %``."""
    return f"{100 * share:.3g} %"


def milliseconds(x: float) -> str:
    """Formats a time with about three digits: ``0.123``, ``12.3``, ``1,234``."""
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}" if x >= 10 else f"{x:.2f}" if x >= 1 else f"{x:.3f}"


WRITTEN = {"median": ("ms", milliseconds), "ratio": ("/ SDPA", "{:.2f}".format), "peak": ("MiB", "{:,.1f}".format)}
TITLES = {REFERENCE: "SDPA", OURS: "SBM", "compiled": "compiled PyTorch"}
TITLES |= {name: f"{TITLES[other]} in a CUDA graph" for name, other in GRAPHS.items()}


def tables_of(result: dict[str, Any]) -> list[Table]:
    """Returns tables of the times and peak memory of forward passes and training steps, for each suite."""
    tables = []
    for suite in (name for name in result["suites"] if name in SUITES):  # older files contain others
        for is_training, title in enumerate(("Forward", "Training step, forward + backward")):
            cases = [x for x in result["suites"][suite]["found"]["cases"] if x["is_training"] == is_training]
            tables.append(_table(title, cases))
    return tables


def _table(title: str, cases: list[dict[str, Any]]) -> Table:
    """Returns a row per case; shared properties move to the title, and columns without numbers are omitted."""
    cases = sorted(cases, key=lambda case: (case["kind"], case["n_heads"], case["n"], case["density"]))
    columns = {
        "memberships": [case["kind"] for case in cases],
        "heads": [f"{case['n_heads']} × {case['d_head']}" for case in cases],
        "n": [f"{case['n']:,}" for case in cases],
        "density": [percent(case["density"]) for case in cases],
        "keys per query": [f"{case['n'] * case['density']:.0f}" for case in cases],
        "k": [f"{case['n_clusters']:,}" for case in cases],
    }
    same = [f"{heading} = {column[0]}" for heading, column in columns.items() if len(set(column)) == 1]
    columns = {heading: column for heading, column in columns.items() if len(set(column)) > 1}
    notes: dict[str, None] = {}
    for contestant in dict.fromkeys(name for case in cases for name in case["results"]):
        found = [case["results"].get(contestant, {}) for case in cases]
        who = TITLES.get(contestant, contestant)
        for number, (unit, write) in WRITTEN.items():
            column = [write(one[number]) if number in one else LEFT_OUT for one in found]
            columns |= {f"{who} {unit}": column} if set(column) != {LEFT_OUT} else {}
        notes |= dict.fromkeys(f"{who}: {one['missing']}" for one in found if "missing" in one)
    columns.pop("SDPA / SDPA", None)
    table = Table(*columns, title="; ".join([title, *same]), caption="\n".join(f"{LEFT_OUT} {note}." for note in notes))
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table

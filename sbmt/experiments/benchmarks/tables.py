"""Tables of what the suites found, for the terminal and for the documentation."""

from collections.abc import Iterable, Mapping
from typing import Any

from sbmt.experiments.benchmarks.contestants import (
    CONTESTANTS,
    FITTED_CONTESTANTS,
    GPU_CONTESTANTS,
    OURS,
    REFERENCE,
    Contestant,
)
from sbmt.experiments.benchmarks.parts import PARTS, WHOLE
from sbmt.experiments.benchmarks.sampler import TITLES, slope
from sbmt.experiments.tables import LEFT_OUT, Table

WAYS = {True: ("training", "Training step, forward + backward"), False: ("forward", "Forward")}
Cases = list[dict[str, Any]]
GROWS_FROM = 4096
"""Tokens from which on growth is told: below, what does not grow weighs too much."""


def attention_tables(found: dict[str, Any]) -> list[Table]:
    """Two tables per sweep, forward and training step, and the step broken down into its parts."""
    tables = []
    for is_training, (way, title) in WAYS.items():
        for sweep in ("target", "density", "n", "clusters"):
            cases = [c for c in found["cases"] if sweep in c["sweeps"] and c["is_training"] == is_training]
            if cases:
                tables.append(_times(f"attention-{sweep}-{way}", title, cases, CONTESTANTS, OURS))
    return [*tables, _parts_table(found["parts"])]


def fitted_tables(found: dict[str, Any]) -> list[Table]:
    """Over the number of tokens and over the keys per query, forward and training step; how the step grows; memory."""
    tables = []
    for is_training, (way, title) in WAYS.items():
        for sweep in ("n", "shared", "keys", "bfloat16"):
            cases = [c for c in found["cases"] if sweep in c["sweeps"] and c["is_training"] == is_training]
            if cases:
                more = "; bfloat16" if sweep == "bfloat16" else ""
                tables.append(_times(f"fitted-{sweep}-{way}", title + more, cases, FITTED_CONTESTANTS, OURS))
    rows = []
    for sweep, what in (("n", "a graph for each head"), ("shared", "one graph for all heads")):
        long = [c for c in found["cases"] if c["is_training"] and sweep in c["sweeps"] and c["n"] >= GROWS_FROM]
        if len(long) > 1:
            growth = slope([case["n"] for case in long], [case["results"][OURS]["median"] for case in long])
            rows.append((f"{what}, {long[0]['n']:,} to {long[-1]['n']:,} tokens", f"{growth:.2f}"))
    if rows:
        tables.append(Table("fitted-growth", "Growth of a training step", ("", "slope"), tuple(rows)))
    return tables + memory_tables(found["memory"], "fitted-memory")


def gpu_tables(found: dict[str, Any]) -> list[Table]:
    """Ratios and memory, forward and for a training step, and the settings for which there was no time."""
    tables = []
    for is_training, (way, title) in WAYS.items():
        if cases := [case for case in found["cases"] if case["is_training"] is is_training]:
            one = cases[0]
            size = f"{one['n_heads']} heads of width {one['d_head']}; {one['dtype']}"
            tables.append(_times(f"gpu-{way}", f"{title}; {size}", cases, GPU_CONTESTANTS, "sparse"))
            tables.append(_peaks(f"gpu-memory-{way}", f"{title}: memory on the GPU", cases))
    left_out = tuple((setting, "no time left") for setting in found["left_out"])
    return [*tables, Table("gpu-left-out", "Not measured", ("", "why"), left_out)] if left_out else tables


def _times(name: str, title: str, cases: Cases, contestants: Mapping[str, Contestant], ours: str) -> Table:
    """Times, and ratios to full attention; columns that have one value move to the title."""
    columns = _about(cases)
    same = [f"{heading} = {cells[0]}" for heading, cells in columns.items() if len(set(cells)) == 1]
    columns = {heading: cells for heading, cells in columns.items() if len(set(cells)) > 1}
    results = [case["results"] for case in _ordered(cases)]
    titles = _titles(cases, contestants)
    columns["SDPA, ms"] = [_time(one[REFERENCE]) for one in results]
    columns[f"{titles[ours]}, ms"] = [_time(one[ours]) for one in results]
    columns[f"{titles[ours]} / SDPA"] = [_ratio(one[ours]) for one in results]
    columns["quartiles"] = [_quartiles(one[ours]) for one in results]
    for other in (other for other in titles if other not in (REFERENCE, ours)):
        cells = [_ratio(one.get(other)) for one in results]
        if set(cells) != {LEFT_OUT}:
            columns[f"{titles[other]} / SDPA"] = cells
    return _table(name, "; ".join([title, *same]), columns, _reasons(cases, titles))


def _peaks(name: str, title: str, cases: Cases) -> Table:
    columns = _about(cases)
    for other, shown in _titles(cases, GPU_CONTESTANTS).items():
        columns[f"{shown}, MiB"] = [_number(case["results"].get(other, {}).get("peak")) for case in _ordered(cases)]
    return _table(name, title, columns)


def _titles(cases: Cases, contestants: Mapping[str, Contestant]) -> dict[str, str]:
    """Titles of those who took part; an earlier version's contestant that is gone keeps its name."""
    names = dict.fromkeys(name for case in cases for name in case["results"])
    return {name: contestants[name].title if name in contestants else name for name in names}


def _ordered(cases: Cases) -> Cases:
    return sorted(cases, key=lambda case: (case["kind"], case["n"], case["density"], case["n_clusters"]))


def _about(cases: Cases) -> dict[str, list[str]]:
    """Columns that tell what the cases are."""
    cases = _ordered(cases)
    columns = {
        "memberships": [case["kind"] for case in cases],
        "n": [f"{case['n']:,}" for case in cases],
        "density": [percent(case["density"]) for case in cases],
        "k": [f"{case['n_clusters']:,}" for case in cases],
    }
    if {case["kind"] for case in cases} <= {"fitted", "shared"}:
        columns["keys per query"] = [f"{case['n'] * case['density']:.0f}" for case in cases]
    return columns


def _table(name: str, title: str, columns: dict[str, list[str]], notes: tuple[str, ...] = ()) -> Table:
    return Table(name, title, tuple(columns), tuple(zip(*columns.values(), strict=True)), notes)


def _parts_table(cases: Cases) -> Table:
    rows = []
    for case in cases:
        results = case["results"]
        shares = (f"{milliseconds(results[part]['median'])} ({results[part]['ratio']:.0%})" for part in PARTS)
        about = (case["kind"], f"{case['n']:,}", percent(case["density"]))
        rows.append((*about, _time(results[WHOLE]), *shares))
    title = "Parts of the training step in milliseconds, and their share of it"
    return Table("attention-parts", title, ("memberships", "n", "density", WHOLE, *PARTS), tuple(rows))


def sampler_tables(found: dict[str, Any]) -> list[Table]:
    """Cost per edge, and growth with n."""
    others = [name for name in TITLES if name != "exact"]
    rows = []
    for case in found["cases"]:
        exact = case["results"]["exact"]
        about = (case["kind"], f"{case['n']:,}", percent(case["density"]), f"{case['n_edges']:,}")
        per_edge = (f"{exact['ns_per_edge']:.0f}", _number(exact.get("marginal_ns_per_edge")))
        ratios = (_ratio(case["results"][name]) for name in others)
        rows.append((*about, _time(exact), *per_edge, *ratios))
    headings = ["memberships", "n", "density", "edges", "exact, ms", "ns per edge", "ns per further edge"]
    headings += [f"{TITLES[name]} / exact" for name in others]
    density = Table("sampler-density", "Drawing edges, 4 heads", tuple(headings), tuple(rows))
    sweeps = [(sweep, name, one) for sweep in found["scaling"] for name, one in sweep["samplers"].items()]
    sizes = [row["n"] for row in sweeps[0][2]["rows"]]
    rows = [
        (str(sweep["certain_rows"]), TITLES[name], *(_time(row) for row in one["rows"]), f"{one['slope']:.2f}")
        for sweep, name, one in sweeps
    ]
    headings = ["rows of certainty", "sampler", *(f"n = {n:,}, ms" for n in sizes), "slope"]
    return [density, Table("sampler-scaling", "Drawing 16 keys per query, one head", tuple(headings), tuple(rows))]


def backend_tables(found: dict[str, Any]) -> list[Table]:
    """How much slower the automatic choice is than the best one, and every cell."""
    what = {name: name for name in found} | {"attention": "edge_attention"}
    rows = [
        (f"`{what[name]}`", f"{one['loss']['median']:.2f}", f"{one['loss']['worst']:.2f}")
        for name, one in found.items()
    ]
    tables = [
        Table("backends-loss", "Time of the automatic choice / time of the best", ("", "median", "worst"), tuple(rows))
    ]
    for name, one in found.items():
        names = list(dict.fromkeys(x for cell in one["cells"] for x in cell["results"]))
        rows = []
        for cell in one["cells"]:
            best = cell["results"][cell["best"]]["ratio"]
            shown = (f"{cell['results'][x]['ratio'] / best:.2f}" if x in cell["results"] else LEFT_OUT for x in names)
            about = (f"{cell['n_graphs']} × {cell['n']}²", percent(cell["density"]))
            rows.append((*about, *shown, cell["best"], cell["auto"]))
        headings = ("graphs", "density", *(f"{x} / best" for x in names), "best", "taken")
        tables.append(Table(f"backends-{name}", f"`{what[name]}`, forward + backward", headings, tuple(rows)))
    return tables


def memory_tables(found: dict[str, Any], name: str = "memory") -> list[Table]:
    """Mebibytes added by one training step, and by one answer."""
    tables = []
    for suffix, is_training, title in (
        ("", True, "Memory that one training step adds"),
        ("-forward", False, "Memory that one forward pass adds"),
    ):
        cases = [case for case in found["cases"] if case["is_training"] is is_training]
        titles = _titles(cases, CONTESTANTS)
        columns = _about(cases)
        shown = [heading for heading in columns if heading in ("n", "density") or len(set(columns[heading])) > 1]
        columns = {heading: columns[heading] for heading in shown}
        for one, heading in titles.items():
            columns[f"{heading}, MiB"] = [_number(c["results"][one].get("step")) for c in _ordered(cases)]
        if cases:
            tables.append(_table(name + suffix, title, columns, _reasons(cases, titles)))
    return tables


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


def _time(result: dict[str, Any]) -> str:
    return milliseconds(result["median"]) if "median" in result else LEFT_OUT


def _number(x: float | None) -> str:
    return LEFT_OUT if x is None else f"{x:,.0f}"


def _ratio(result: dict[str, Any] | None) -> str:
    return LEFT_OUT if result is None or "ratio" not in result else f"{result['ratio']:.2f}"


def _quartiles(result: dict[str, Any]) -> str:
    return f"{result['ratio_low']:.2f}–{result['ratio_high']:.2f}" if "ratio" in result else LEFT_OUT


def _reasons(cases: Iterable[dict[str, Any]], titles: Mapping[str, str]) -> tuple[str, ...]:
    """Why contestants are missing, each reason once."""
    found = [
        f"{titles[name]}: {result['missing']}"
        for case in cases
        for name, result in case["results"].items()
        if "missing" in result
    ]
    return tuple(dict.fromkeys(found))

"""Tables of what the suites found, for the terminal and for the documentation."""

from collections.abc import Mapping
from typing import Any

from sbmt.experiments.benchmarks.attention import WHOLE
from sbmt.experiments.benchmarks.contestants import CONTESTANTS, FITTED_CONTESTANTS, OURS, REFERENCE
from sbmt.experiments.benchmarks.sampler import TITLES, slope
from sbmt.experiments.tables import LEFT_OUT, Table

WAYS = {True: ("training", "Training step, forward + backward"), False: ("forward", "Forward")}
GONE = {"transformer_conv": "TransformerConv", "sparse": "sparse"}
"""Titles of contestants that only earlier files hold."""
GROWS_FROM = 4096
"""Tokens from which on growth is told: below, what does not grow weighs too much."""
Cases = list[dict[str, Any]]


def attention_tables(found: dict[str, Any]) -> list[Table]:
    """Two tables per sweep, forward and training step, and the step broken down into its parts."""
    sweeps = ("target", "density", "n", "clusters")
    return [*_sweeps("attention", found["cases"], sweeps, _titles(CONTESTANTS)), _parts_table(found["parts"])]


def fitted_tables(found: dict[str, Any]) -> list[Table]:
    """Over the number of tokens and over the keys per query, forward and training step; how the step grows; memory."""
    cases = found["cases"]
    tables = _sweeps("fitted", cases, ("n", "shared", "keys", "bfloat16"), _titles(FITTED_CONTESTANTS))
    rows = []
    for sweep, what in (("n", "a graph for each head"), ("shared", "one graph for all heads")):
        long = [c for c in cases if c["is_training"] and sweep in c["sweeps"] and c["n"] >= GROWS_FROM]
        if len(long) > 1:
            growth = slope([case["n"] for case in long], [case["results"][OURS]["median"] for case in long])
            rows.append((f"{what}, {long[0]['n']:,} to {long[-1]['n']:,} tokens", f"{growth:.2f}"))
    if rows:
        tables.append(Table("fitted-growth", "Growth of a training step", ("", "slope"), tuple(rows)))
    return tables + memory_tables(found["memory"], "fitted-memory")


def gpu_tables(found: dict[str, Any]) -> list[Table]:
    """Ratios and memory, forward and for a training step; in earlier files, settings for which there was no time."""
    tables, titles = [], _titles(CONTESTANTS)
    for is_training, (way, title) in WAYS.items():
        if cases := [case for case in found["cases"] if case["is_training"] is is_training]:
            one = cases[0]
            size = f"{one['n_heads']} heads of width {one['d_head']}; {one['dtype']}"
            tables.append(
                _times(
                    f"gpu-{way}", f"{title}; {size}", cases, titles, "sparse" if "sparse" in one["results"] else OURS
                )
            )
            columns = _about(cases) | _columns(cases, titles, lambda result: _number(result.get("peak")), "MiB")
            tables.append(_table(f"gpu-memory-{way}", f"{title}: memory on the GPU", columns))
    left_out = tuple((setting, "no time left") for setting in found.get("left_out", ()))
    return [*tables, Table("gpu-left-out", "Not measured", ("", "why"), left_out)] if left_out else tables


def memory_tables(found: dict[str, Any], name: str = "memory") -> list[Table]:
    """Mebibytes added by one training step, and by one forward pass."""
    tables, titles = [], _titles(CONTESTANTS)
    for suffix, is_training, what in (("", True, "training step"), ("-forward", False, "forward pass")):
        if cases := [case for case in found["cases"] if case["is_training"] is is_training]:
            about = _about(cases)
            columns = {x: cells for x, cells in about.items() if x in ("n", "density") or len(set(cells)) > 1}
            columns |= _columns(cases, titles, lambda result: _number(result.get("step")), "MiB")
            title = f"Memory that one {what} adds"
            tables.append(_table(name + suffix, title, columns, _reasons(cases, titles)))
    return tables


def sampler_tables(found: dict[str, Any]) -> list[Table]:
    """Cost per edge, and growth with n."""
    rows = []
    for case in found["cases"]:
        exact = case["results"]["exact"]
        row = _place(case) | {"edges": f"{case['n_edges']:,}", "exact, ms": _time(exact)}
        row |= {"ns per edge": f"{exact['ns_per_edge']:.0f}"}
        row |= {"ns per further edge": _number(exact.get("marginal_ns_per_edge"))}
        rows.append(row | {f"{TITLES[x]} / exact": _ratio(case["results"][x]) for x in TITLES if x != "exact"})
    scaling = []
    for sweep in found["scaling"]:
        for name, one in sweep["samplers"].items():
            row = {"rows of certainty": str(sweep.get("certain_rows", 0)), "sampler": TITLES[name]}
            row |= {f"n = {size['n']:,}, ms": _time(size) for size in one["rows"]}
            scaling.append(row | {"slope": f"{one['slope']:.2f}"})
    title = "Drawing 16 keys per query, one head"
    return [_by_row("sampler-density", "Drawing edges, 4 heads", rows), _by_row("sampler-scaling", title, scaling)]


def backend_tables(found: dict[str, Any]) -> list[Table]:
    """How much slower the automatic choice is than the best one, and every cell."""
    losses, tables = [], []
    for name, one in found.items():
        what = "`edge_attention`" if name == "attention" else f"`{name}`"
        losses.append((what, f"{one['loss']['median']:.2f}", f"{one['loss']['worst']:.2f}"))
        names = dict.fromkeys(x for cell in one["cells"] for x in cell["results"])
        rows = []
        for cell in one["cells"]:
            best = cell["results"][cell["best"]]["ratio"]
            row = {"graphs": f"{cell['n_graphs']} × {cell['n']}²", "density": percent(cell["density"])}
            for x in names:
                row[f"{x} / best"] = f"{cell['results'][x]['ratio'] / best:.2f}" if x in cell["results"] else LEFT_OUT
            rows.append(row | {"best": cell["best"], "taken": cell["auto"]})
        tables.append(_by_row(f"backends-{name}", f"{what}, forward + backward", rows))
    title = "Time of the automatic choice / time of the best"
    return [Table("backends-loss", title, ("", "median", "worst"), tuple(losses)), *tables]


def _sweeps(name: str, cases: Cases, sweeps: tuple[str, ...], titles: Mapping[str, str]) -> list[Table]:
    tables = []
    for is_training, (way, title) in WAYS.items():
        for sweep in sweeps:
            if mine := [case for case in cases if sweep in case["sweeps"] and case["is_training"] == is_training]:
                more = "; bfloat16" if sweep == "bfloat16" else ""
                tables.append(_times(f"{name}-{sweep}-{way}", title + more, mine, titles, OURS))
    return tables


def _times(name: str, title: str, cases: Cases, titles: Mapping[str, str], ours: str) -> Table:
    """Times, and ratios to full attention; columns that have one value move to the title."""
    about = _about(cases)
    same = [f"{heading} = {cells[0]}" for heading, cells in about.items() if len(set(cells)) == 1]
    columns = {heading: cells for heading, cells in about.items() if len(set(cells)) > 1}
    results = [case["results"] for case in _ordered(cases)]
    columns["SDPA, ms"] = [_time(one[REFERENCE]) for one in results]
    columns[f"{titles[ours]}, ms"] = [_time(one[ours]) for one in results]
    ratios = _columns(cases, titles, _ratio, "SDPA", " / ")
    del ratios[f"{titles[REFERENCE]} / SDPA"]
    first = f"{titles[ours]} / SDPA"
    columns |= {first: ratios.pop(first), "quartiles": [_quartiles(one[ours]) for one in results]}
    columns |= {heading: cells for heading, cells in ratios.items() if set(cells) != {LEFT_OUT}}
    return _table(name, "; ".join([title, *same]), columns, _reasons(cases, titles))


def _parts_table(cases: Cases) -> Table:
    rows = []
    for case in cases:
        shares = ("" if part == WHOLE else f" ({one['ratio']:.0%})" for part, one in case["results"].items())
        times = map(_time, case["results"].values())
        rows.append((*_place(case).values(), *map("".join, zip(times, shares, strict=True))))
    headings = ("memberships", "n", "density", *(cases[0]["results"] if cases else ()))
    return Table(
        "attention-parts", "Parts of the training step in milliseconds, and their share of it", headings, tuple(rows)
    )


def _titles(contestants: Mapping[str, Any]) -> dict[str, str]:
    return GONE | {name: one.title for name, one in contestants.items()}


def _columns(cases: Cases, titles: Mapping[str, str], cell: Any, unit: str, sep: str = ", ") -> dict[str, list[str]]:
    """A column for each contestant that took part."""
    names = dict.fromkeys(name for case in cases for name in case["results"])
    ordered = _ordered(cases)
    return {f"{titles.get(x, x)}{sep}{unit}": [cell(case["results"].get(x, {})) for case in ordered] for x in names}


def _ordered(cases: Cases) -> Cases:
    return sorted(cases, key=lambda case: (case["kind"], case["n"], case["density"], case["n_clusters"]))


def _place(case: dict[str, Any]) -> dict[str, str]:
    return {"memberships": case["kind"], "n": f"{case['n']:,}", "density": percent(case["density"])}


def _about(cases: Cases) -> dict[str, list[str]]:
    """Columns that tell what the cases are."""
    rows = [_place(case) | {"k": f"{case['n_clusters']:,}"} for case in _ordered(cases)]
    if {case["kind"] for case in cases} <= {"fitted", "shared"}:
        for row, case in zip(rows, _ordered(cases), strict=True):
            row["keys per query"] = f"{case['n'] * case['density']:.0f}"
    return {name: [row[name] for row in rows] for name in rows[0]}


def _by_row(name: str, title: str, rows: list[dict[str, str]]) -> Table:
    return Table(name, title, tuple(rows[0]), tuple(tuple(row.values()) for row in rows))


def _table(name: str, title: str, columns: dict[str, list[str]], notes: tuple[str, ...] = ()) -> Table:
    return Table(name, title, tuple(columns), tuple(zip(*columns.values(), strict=True)), notes)


def _reasons(cases: Cases, titles: Mapping[str, str]) -> tuple[str, ...]:
    """Why contestants are missing, each reason once."""
    every = [(name, result) for case in cases for name, result in case["results"].items()]
    found = (f"{titles.get(name, name)}: {result['missing']}" for name, result in every if "missing" in result)
    return tuple(dict.fromkeys(found))


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


def _ratio(result: dict[str, Any]) -> str:
    return f"{result['ratio']:.2f}" if "ratio" in result else LEFT_OUT


def _quartiles(result: dict[str, Any]) -> str:
    return f"{result['ratio_low']:.2f}–{result['ratio_high']:.2f}" if "ratio" in result else LEFT_OUT

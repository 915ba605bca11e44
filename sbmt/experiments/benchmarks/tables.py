"""Tables of what the suites found, for the terminal and for the documentation."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sbmt.experiments.benchmarks.contestants import CONTESTANTS, OURS, REFERENCE, Contestant
from sbmt.experiments.benchmarks.gpu_contestants import CONTESTANTS as GPU_CONTESTANTS
from sbmt.experiments.benchmarks.gpu_contestants import SPARSE
from sbmt.experiments.benchmarks.parts import PARTS, WHOLE
from sbmt.experiments.benchmarks.sampler import TITLES
from sbmt.experiments.tables import LEFT_OUT, Table

WAYS = {True: ("training", "Training step, forward + backward"), False: ("forward", "Forward")}


def attention_tables(found: dict[str, Any]) -> list[Table]:
    """Two tables per sweep, forward and training step, and the step taken apart."""
    tables = []
    for way, is_training in (("training", True), ("forward", False)):
        for sweep in ("target", "density", "n", "clusters"):
            cases = [c for c in found["cases"] if sweep in c["sweeps"] and c["is_training"] == is_training]
            if cases:
                tables.append(_sweep_table(f"attention-{sweep}-{way}", cases))
    return [*tables, _parts_table(found["parts"])]


def _sweep_table(name: str, cases: list[dict[str, Any]]) -> Table:
    cases = sorted(cases, key=lambda case: (case["kind"], case["n"], case["density"], case["n_clusters"]))
    columns = {
        "memberships": [case["kind"] for case in cases],
        "n": [f"{case['n']:,}" for case in cases],
        "density": [percent(case["density"]) for case in cases],
        "k": [str(case["n_clusters"]) for case in cases],
    }
    same = [f"{heading} = {cells[0]}" for heading, cells in columns.items() if len(set(cells)) == 1]
    columns = {heading: cells for heading, cells in columns.items() if len(set(cells)) > 1}
    results = [case["results"] for case in cases]
    columns["SDPA, ms"] = [_time(one[REFERENCE]) for one in results]
    columns["SBM, ms"] = [_time(one[OURS]) for one in results]
    columns["SBM / SDPA"] = [_ratio(one[OURS]) for one in results]
    columns["quartiles"] = [_quartiles(one[OURS]) for one in results]
    for other in (other for other in CONTESTANTS if other not in (REFERENCE, OURS)):
        cells = [_ratio(one.get(other)) for one in results]
        if set(cells) != {LEFT_OUT}:
            columns[f"{CONTESTANTS[other].title} / SDPA"] = cells
    what = "Training step, forward + backward" if cases[0]["is_training"] else "Forward"
    title = "; ".join([what, *same])
    return Table(name, title, tuple(columns), tuple(zip(*columns.values(), strict=True)), _reasons(cases))


def _parts_table(cases: list[dict[str, Any]]) -> Table:
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
    sizes = [row["n"] for row in sweeps[0][2]["rows"]] if sweeps else []
    rows = [
        (str(sweep["certain_rows"]), TITLES[name], *(_time(row) for row in one["rows"]), f"{one['slope']:.2f}")
        for sweep, name, one in sweeps
    ]
    headings = ["rows of certainty", "sampler", *(f"n = {n:,}, ms" for n in sizes), "slope"]
    return [density, Table("sampler-scaling", "Drawing 16 keys per query, one head", tuple(headings), tuple(rows))]


def backend_tables(found: dict[str, Any]) -> list[Table]:
    """How much slower the automatic choice is than the best one, and every cell."""
    what = {"attention": "edge_attention", "edge_dot": "edge_dot", "edge_gate": "edge_gate"}
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


def memory_tables(found: dict[str, Any]) -> list[Table]:
    """Mebibytes added by one training step."""
    names = list(dict.fromkeys(name for case in found["cases"] for name in case["results"]))
    rows = [
        (f"{case['n']:,}", percent(case["density"]), *(_number(case["results"][name].get("step")) for name in names))
        for case in found["cases"]
    ]
    headings = ("n", "density", *(f"{CONTESTANTS[name].title}, MiB" for name in names))
    title = "Memory that one training step adds"
    return [Table("memory", title, headings, tuple(rows), _reasons(found["cases"]))]


def gpu_tables(found: dict[str, Any]) -> list[Table]:
    """Ratios and memory, forward and for a training step, and what did not run."""
    tables = []
    for is_training, (way, title) in WAYS.items():
        cases = [case for case in found["cases"] if case["is_training"] is is_training]
        cases.sort(key=lambda case: (case["kind"], case["n"], case["density"]))
        if cases:
            one = cases[0]
            size = f"{one['n_heads']} heads of width {one['d_head']}; k = {one['n_clusters']}; {one['dtype']}"
            tables.append(_gpu_times(f"gpu-{way}", f"{title}, on a GPU; {size}", cases))
            tables.append(_gpu_memory(f"gpu-memory-{way}", f"{title}: memory on the GPU", cases))
    rows = _gpu_trouble(found)
    return [*tables, Table("gpu-trouble", "What did not run", ("", "why"), tuple(rows))] if rows else tables


def _gpu_times(name: str, title: str, cases: list[dict[str, Any]]) -> Table:
    others = [other for other in _gpu_names(cases) if other != REFERENCE]
    rows = []
    for case in cases:
        results = case["results"]
        times = (_gpu_cell(results.get(one), "median", milliseconds) for one in (REFERENCE, SPARSE))
        ratios = (_gpu_cell(results.get(one), "ratio", _small_ratio) for one in others)
        rows.append((case["kind"], f"{case['n']:,}", percent(case["density"]), *times, *ratios))
    titles = (f"{GPU_CONTESTANTS[one].title} / SDPA" for one in others)
    headings = ("memberships", "n", "density", "SDPA, ms", "sparse, ms", *titles)
    return Table(name, title, headings, tuple(rows), _reasons(cases, GPU_CONTESTANTS))


def _small_ratio(x: float) -> str:
    return f"{x:.2f}" if x >= 0.1 else f"{x:.3f}"


def _gpu_memory(name: str, title: str, cases: list[dict[str, Any]]) -> Table:
    names = _gpu_names(cases)
    rows = []
    for case in cases:
        peaks = (_gpu_cell(case["results"].get(one), "peak", lambda x: f"{x:,.0f}") for one in names)
        rows.append((case["kind"], f"{case['n']:,}", percent(case["density"]), *peaks))
    headings = ("memberships", "n", "density", *(f"{GPU_CONTESTANTS[one].title}, MiB" for one in names))
    return Table(name, title, headings, tuple(rows))


def _gpu_trouble(found: dict[str, Any]) -> list[tuple[str, str]]:
    failed: Counter[tuple[str, str]] = Counter()
    for case in found["cases"]:
        for name, result in case["results"].items():
            if "failed" in result:
                failed[GPU_CONTESTANTS[name].title, result["failed"]] += 1
    rows = [(f"{name}, {count} of {len(found['cases'])} races", why) for (name, why), count in failed.items()]
    rows += [(one["case"], one.get("failed") or one["missing"]) for one in found["failures"]]
    return rows + [(setting, "no time left") for setting in found["left_out"]]


def _gpu_names(cases: list[dict[str, Any]]) -> list[str]:
    present = {name for case in cases for name in case["results"]}
    return [name for name in GPU_CONTESTANTS if name in present]


def _gpu_cell(result: dict[str, Any] | None, key: str, show: Callable[[float], str]) -> str:
    if result is not None and "failed" in result:
        return "failed"
    return LEFT_OUT if result is None or result.get(key) is None else show(result[key])


def percent(share: float) -> str:
    """A density to three digits.

    Example:
        >>> percent(0.0025), percent(0.5)
        ('0.25 %', '50 %')
    """
    return f"{100 * share:.3g} %"


def milliseconds(x: float) -> str:
    """A time to three digits or so.

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


def _reasons(cases: Iterable[dict[str, Any]], contestants: Mapping[str, Contestant] = CONTESTANTS) -> tuple[str, ...]:
    """Why contestants are missing, each reason once."""
    found = [
        f"{contestants[name].title}: {result['missing']}"
        for case in cases
        for name, result in case["results"].items()
        if "missing" in result
    ]
    return tuple(dict.fromkeys(found))

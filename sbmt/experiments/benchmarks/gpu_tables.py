"""Tables of the suite ``gpu``."""

from collections.abc import Iterable
from typing import Any

from sbmt.experiments.benchmarks.contestants import REFERENCE
from sbmt.experiments.benchmarks.gpu_contestants import CONTESTANTS, SPARSE
from sbmt.experiments.benchmarks.tables import milliseconds, percent
from sbmt.experiments.tables import LEFT_OUT, Table

WAYS = {True: ("training", "Training step, forward + backward"), False: ("forward", "Forward")}


def gpu_tables(found: dict[str, Any]) -> list[Table]:
    """Ratios both ways, memory, where one way overtakes another, the kernels of two steps, and what went wrong."""
    tables = []
    for is_training, (way, title) in WAYS.items():
        cases = _sorted(case for case in found["cases"] if case["is_training"] is is_training)
        if cases:
            tables.append(_ratios(f"gpu-{way}", f"{title}, on a GPU{_setting(cases[0])}", cases))
            tables.append(_memory(f"gpu-memory-{way}", f"{title}: memory on the GPU", cases))
    if found["cut_offs"]:
        tables.append(_cut_offs(found["cut_offs"]))
    tables += [_kernels(name, one) for name, one in found["profiles"].items() if one.get("kernels")]
    wrong = _what_went_wrong(found)
    return [*tables, Table("gpu-trouble", "What did not run", ("", "why"), tuple(wrong))] if wrong else tables


def _sorted(cases: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(cases, key=lambda case: (case["kind"], case["n"], case["density"]))


def _setting(case: dict[str, Any]) -> str:
    return f"; {case['n_heads']} heads of width {case['d_head']}; k = {case['n_clusters']}; {case['dtype']}"


def _about(case: dict[str, Any]) -> tuple[str, str, str]:
    return case["kind"], f"{case['n']:,}", percent(case["density"])


def _names(cases: list[dict[str, Any]]) -> list[str]:
    there = {name for case in cases for name in case["results"]}
    return [name for name in CONTESTANTS if name in there]


def _ratios(name: str, title: str, cases: list[dict[str, Any]]) -> Table:
    names = _names(cases)
    others = [other for other in names if other != REFERENCE]
    rows = []
    for case in cases:
        results = case["results"]
        times = (_cell(results.get(one), "median", milliseconds) for one in (REFERENCE, SPARSE))
        rows.append((*_about(case), *times, *(_cell(results.get(one), "ratio", _ratio) for one in others)))
    ratios = (f"{CONTESTANTS[one].title} / SDPA" for one in others)
    headings = ("memberships", "n", "density", "SDPA, ms", "sparse, ms", *ratios)
    return Table(name, title, headings, tuple(rows), _notes(cases))


def _memory(name: str, title: str, cases: list[dict[str, Any]]) -> Table:
    names = _names(cases)
    rows = [(*_about(case), *(_cell(case["results"].get(one), "peak", _count) for one in names)) for case in cases]
    headings = ("memberships", "n", "density", *(f"{CONTESTANTS[one].title}, MiB" for one in names))
    return Table(name, title, headings, tuple(rows))


def _cell(result: dict[str, Any] | None, key: str, show: Any) -> str:
    if result is not None and "failed" in result:
        return "failed"
    return LEFT_OUT if result is None or result.get(key) is None else show(result[key])


def _ratio(x: float) -> str:
    return f"{x:.2f}" if x >= 0.1 else f"{x:.3f}"


def _count(x: float) -> str:
    return f"{x:,.0f}"


def _notes(cases: list[dict[str, Any]]) -> tuple[str, ...]:
    found = [
        f"{CONTESTANTS[name].title}: {result['missing']}"
        for case in cases
        for name, result in case["results"].items()
        if "missing" in result
    ]
    return tuple(dict.fromkeys(found))


def _cut_offs(found: list[dict[str, Any]]) -> Table:
    rows = [
        (
            one["kind"],
            f"{one['n']:,}",
            WAYS[one["is_training"]][0],
            *(x for name in ("tiled_beats_sparse", "sdpa_beats_sparse") for x in _from(one[name])),
        )
        for one in found
    ]
    headings = ("memberships", "n", "", "tiled beats sparse from", "near", "SDPA beats sparse from", "near ")
    return Table("gpu-cut-offs", "Density from which on one is faster than the other", headings, tuple(rows))


def _from(one: dict[str, float | None]) -> tuple[str, str]:
    if one["first"] is None:
        return ("never" if one["before"] is not None else LEFT_OUT), LEFT_OUT
    return percent(one["first"]), LEFT_OUT if one["at"] is None else percent(one["at"])


def _kernels(name: str, one: dict[str, Any]) -> Table:
    rows = tuple(
        (
            f"`{kernel['name'].replace('|', ' ')}`",
            milliseconds(kernel["milliseconds"]),
            f"{kernel['calls']:,}",
            f"{kernel['share']:.0%}",
        )
        for kernel in one["kernels"]
    )
    title = f"Kernels of one training step, {name} ({one['case']}): {milliseconds(one['milliseconds'])} ms in all"
    return Table(f"gpu-kernels-{name}", title, ("kernel", "ms", "calls", "share"), rows)


def _what_went_wrong(found: dict[str, Any]) -> list[tuple[str, str]]:
    failed: dict[tuple[str, str], int] = {}
    for case in found["cases"]:
        for name, result in case["results"].items():
            if "failed" in result:
                key = CONTESTANTS[name].title, result["failed"]
                failed[key] = failed.get(key, 0) + 1
    rows = [(f"{name}, {count} of {len(found['cases'])} races", why) for (name, why), count in failed.items()]
    rows += [(f"profile of {name}", x) for name, one in found["profiles"].items() if (x := _failure(one)) is not None]
    rows += [(one["case"], _failure(one) or "") for one in found["failures"]]
    rows += [(f"{one['contestant']} ({one['case']})", f"lost the GPU: {one['why']}") for one in found["lost"]]
    return rows + [(words, "no time left") for words in found["left_out"]]


def _failure(one: dict[str, Any]) -> str | None:
    return one.get("failed") or one.get("missing")

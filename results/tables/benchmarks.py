"""The tables of the page on benchmarks."""

from collections.abc import Sequence
from itertools import product
from string import ascii_uppercase
from typing import Any

from results.tables.files import Files
from results.tables.grid import grid
from sbmt.experiments.benchmarks import tables_of
from sbmt.experiments.benchmarks.tables import milliseconds, percent
from sbmt.experiments.plots.benchmarks import crossing
from sbmt.experiments.tables import LEFT_OUT

GPU_TABLES = ("gpu-machine", "gpu-training", "gpu-forward", "gpu-memory-training", "gpu-memory-forward", "gpu-left-out")
NO_GPU = "*Not measured yet: run `make gpu`.*"
FIGURE = "Time of SBM attention over that of full attention, against the density and against the number of tokens"
FITTED_FIGURE = "Seconds of a training step against the number of tokens, with full attention and with a fitted mask"


def bench_page(files: Files) -> dict[str, str]:
    """The benchmarks' tables, figures and machines by name."""
    tables = _suites(files, "bench", FIGURE) | _suites(files, "bench_fitted", FITTED_FIGURE, "fitted-")
    for name in ("fitted", "attention"):
        measured = files.machines("bench_fitted" if name == "fitted" else "bench")
        measured = [one for one in measured if name in one["suites"]]
        if measured:
            tables |= _side_by_side(name, measured)
    return tables | _blocks(files) | _gpu(files)


def _suites(files: Files, name: str, caption: str, begins: str = "") -> dict[str, str]:
    """All tables of a results file, its machine and its figure, the names of which begin as is said."""
    if not files.has(name):
        return {}
    result = files.load(name)
    tables = _markdown(result) | {f"{begins}machine": _machine(result)}
    if (files.root / "results" / f"{name}.png").exists():
        tables[f"{begins}figure"] = f"![{caption}](assets/{name}.png)"
    return tables


def _markdown(result: dict[str, Any]) -> dict[str, str]:
    return {table.name: table.markdown() for table in tables_of(result)}


def _machine(result: dict[str, Any]) -> str:
    about = result["manifest"]
    if "gpu" in about:
        text = f"one {about['gpu']} ({about['gpu_memory_gib']:.0f} GiB), driver {about['driver']}, CUDA "
        text += f"{about['cuda']}, torch {about['torch']}, triton {about['triton']}, Python {about['python']}"
    else:
        text = f"{about['processor']}, {about['threads']} threads, `OMP_WAIT_POLICY` {about['OMP_WAIT_POLICY']}; "
        text += f"Python {about['python']}, torch {about['torch']}"
        text += f", numba {about['numba']}" if "numba" in about else ""  # as up to commit 1318f51
    quickly = ", quickly" if result["is_quick"] else ""
    return f"Measured on {text}; by `{about['command']}` on {about['date']}{quickly}."


def _side_by_side(suite: str, measured: Sequence[dict[str, Any]]) -> dict[str, str]:
    """What a suite found on each processor: a table, and for fitted masks what they gain, in words."""
    found = [_by_case(suite, one) for one in measured]
    headings, machines = ["", "n" if suite == "fitted" else "n, density"], []
    for letter, one in zip(ascii_uppercase, measured, strict=False):
        headings += [f"{letter}: SDPA, ms", f"{letter}: ours / SDPA"]
        machines.append(f"{letter}: {one['manifest']['processor']}, {one['manifest']['date']}")
    rows = []
    for case in found[0]:
        is_training, _, kind, n, density = case
        about = f"{kind}, {'training' if is_training else 'forward'}"
        size = f"{n:,}" if suite == "fitted" else f"{n:,}, {percent(density)}"
        rows.append([about, size, *(cell for one in found for cell in _times(one.get(case)))])
    tables = {f"{suite}-machines": f"{grid(headings, rows)}\n\n*{'; '.join(machines)}.*"}
    return tables | ({"fitted-gain": _gain(found)} if suite == "fitted" else {})


Case = tuple[bool, str, str, int, float]
"""Whether it is a training step, the sweep, the kind of memberships, n, and density."""


def _by_case(suite: str, result: dict[str, Any]) -> dict[Case, dict[str, Any]]:
    """The contestants' results in the sweeps that are compared between processors, where full attention ran."""
    sweeps = ("n", "shared") if suite == "fitted" else ("target",)
    return {
        (case["is_training"], sweep, case["kind"], case["n"], case["density"]): case["results"]
        for is_training, sweep in product((True, False), sweeps)
        for case in result["suites"][suite]["found"]["cases"]
        if case["is_training"] is is_training and sweep in case["sweeps"] and "ratio" in case["results"]["sbm"]
    }


def _times(results: dict[str, Any] | None) -> tuple[str, str]:
    """Full attention's time, and ours over it with quartiles."""
    if results is None:
        return LEFT_OUT, LEFT_OUT
    ratio, *quartiles = (results["sbm"][name] for name in ("ratio", "ratio_low", "ratio_high"))
    form = ".2f" if ratio > 0.1 else ".3f"
    between = "–".join(f"{quartile:{form}}" for quartile in quartiles)
    return milliseconds(results["sdpa"]["median"]), f"{ratio:{form}} ({between})"


def _gain(found: Sequence[dict[Case, dict[str, Any]]]) -> str:
    """What a fitted mask of 16 keys per query gains over full attention, and from which number of tokens on.

    Where processors differ, both ends of the range are given.
    """
    sentences = []
    ways = ((True, "A training step"), (False, "A forward pass"))
    masks = (("n", "a fitted mask of 16 keys per query"), ("shared", "one such mask for all heads"))
    for (is_training, what), (sweep, mask) in product(ways, masks):
        ratios = [
            {case[3]: results["sbm"]["ratio"] for case, results in one.items() if case[:2] == (is_training, sweep)}
            for one in found
        ]
        ratios = [one for one in ratios if one]
        if not ratios:
            continue
        places = [_break_even(one) for one in ratios]
        known = [place for place in places if place is not None]
        begins = "is not faster on every processor"
        if len(known) == len(places):
            where = f"{_range(known, ',.0f')} tokens"
            if any(next(iter(one.values())) < 1 for one in ratios):  # already at the least that was measured
                least, to, most = where.partition(" to ")
                where = f"{least} or fewer to {most}" if to else f"{where} or fewer"
            begins = f"is as fast as full attention's at about {where}"
        common = [n for n in ratios[0] if all(n in one for one in ratios)]
        gains = ", ".join(
            f"{_range([1 / one[n] for one in ratios], '.1f')} times as fast at {n:,}"
            for n in common
            if max(one[n] for one in ratios) < 0.95
        )
        sentences.append(f"- {what} with {mask} {begins}{', ' if gains else ''}{gains}.")
    return "\n".join(sentences)


def _break_even(ratios: dict[int, float]) -> float | None:
    """The number of tokens from which on a ratio is below 1: the least that was measured if it always is."""
    where = crossing(list(ratios), list(ratios.values()), [1.0] * len(ratios))
    if where is not None:
        return round(where[0], -2)
    return min(ratios) if next(iter(ratios.values())) < 1 else None


def _range(values: Sequence[float], form: str) -> str:
    ends = dict.fromkeys(f"{value:{form}}" for value in (min(values), max(values)))
    return " to ".join(ends)


def _blocks(files: Files) -> dict[str, str]:
    """The share of FlexAttention's blocks that hold an edge, with tokens as given and in order of clusters."""
    if not files.has("block_masks"):
        return {"block-masks": "*Not measured yet: run `python results/measure/block_masks.py`.*"}
    names = {"fitted": "as trained, four groups of crossed partitions", "structured": "one partition"}
    rows = [
        (names[r["kind"]], f"{r['n']:,}", r["block_size"], f"{r['as_given']:.1%}", f"{r['sorted']:.1%}")
        for r in files.load("block_masks")["rows"]
    ]
    return {"block-masks": grid(("memberships", "n", "block", "as given", "in order of clusters"), rows)}


def _gpu(files: Files) -> dict[str, str]:
    """The suite ``gpu`` and the runs at full size, which ``make gpu`` writes on a machine with a GPU."""
    tables = dict.fromkeys((*GPU_TABLES, "gpu-runs"), NO_GPU)
    if files.has("gpu/bench"):
        result = files.load("gpu/bench")
        tables |= {"gpu-left-out": "Everything was measured.", "gpu-machine": _machine(result)} | _markdown(result)
    if files.has("gpu/runs"):
        tables["gpu-runs"] = _runs(files.load("gpu/runs")["runs"])
    return tables


def _runs(runs: dict[str, dict[str, Any]]) -> str:
    rows = []
    for name, one in runs.items():
        cells = [LEFT_OUT] * 3
        if (result := one.get("result")) is not None:
            test = result["test"]
            cells = [f"{100 * test['accuracy']:.2f}", f"{100 * test['density']:.2f}", f"{result['seconds'] / 60:.1f}"]
        rows.append((name, one["status"], *cells))
    return grid(("run", "status", "accuracy, %", "density, %", "minutes"), rows)

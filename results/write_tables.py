"""Writes the tables of README.md and the site from the result files, between pairs of markers.

``python results/write_tables.py`` rewrites them; with ``--check`` it exits with 1 where one is stale.
"""

import json
import re
import runpy
import sys
from functools import partial
from math import exp
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT))  # for those who have the source tree but no installed package
BENCH = ROOT / "results" / "bench.json"
BEGIN, END = "<!-- demo table: make results -->", "<!-- end of demo table -->"
STUDIES = ("figure4", "figure4-64", "collapse", "decides", "sparse")
TABLE_BLOCK = re.compile(r"(<!-- table (\S+): [^>]+? -->\n).*?(\n<!-- end of table \2 -->)", re.DOTALL)
BENCH_BLOCK = re.compile(r"(<!-- bench (\S+): make bench -->\n).*?(\n<!-- end of bench \2 -->)", re.DOTALL)
NOT_YET = "*Not measured yet: run `make bench`.*"
NOT_TRAINED_YET = "*Not measured yet: run `make {target}`.*"
TITLES = {
    "full": "full attention",
    "sbm": "**SBM**, exact edge law",
    "sbm-algorithm-1": "SBM, the paper's Algorithm 1",
    "random-equal": "random mask of the SBM's density",
    "random-quarter": "random mask of density ¼",
}


def demo_table() -> str:
    """Medians and ranges over seeds, one row per method."""
    runs = json.loads((ROOT / "results" / "demo.json").read_text("utf-8"))["runs"]
    seeds = sorted({run["config"]["seed"] for run in runs})
    rows = [f"| {len(seeds)} seeds: median (range) | accuracy | density |", "|---|---|---|"]
    for method, title in TITLES.items():
        cells = []
        for name in ("accuracy", "density"):
            values = [run["test"][name] for run in runs if run["trial"] == method]
            cells.append(f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})")
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def with_demo_table(text: str) -> str:
    """A page with its demo table as the results have it."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{demo_table()}\n{END}{after}"


def bench_blocks() -> dict[str, str]:
    """The benchmarks' tables, figure and machine by the names that the markers call them."""
    if not BENCH.exists():
        return {}
    from sbmt.benchmarks import tables_of

    result = json.loads(BENCH.read_text("utf-8"))
    about = result["manifest"]
    machine = f"Measured on {about['processor']}, {about['threads']} threads, `OMP_WAIT_POLICY` "
    machine += f"{about['OMP_WAIT_POLICY']}; Python {about['python']}, torch {about['torch']}, numba {about['numba']}; "
    machine += f"by `{about['command']}` on {about['date']}{', quickly' if result['is_quick'] else ''}."
    blocks = {table.name: table.markdown() for table in tables_of(result)} | {"machine": machine}
    if BENCH.with_suffix(".png").exists():
        title = (
            "Time of SBM attention over that of full attention, against the density and against the number of tokens"
        )
        blocks["figure"] = f"![{title}](assets/bench.png)"
    return blocks


def with_bench_blocks(text: str, blocks: dict[str, str]) -> str:
    """A page with its benchmarks as the results have them."""
    return BENCH_BLOCK.sub(lambda found: found[1] + blocks.get(found[2], NOT_YET) + found[3], text)


def study_table(result: dict[str, Any]) -> str:
    """A row per trial: parameters, seeds, and medians with ranges over the seeds."""
    rows = ["| | parameters | seeds | accuracy | density | loss |", "|---|---|---|---|---|---|"]
    for trial, title in result["titles"].items():
        mine = [run for run in result["runs"] if run["trial"] == trial]
        cells = [f"{mine[0]['n_parameters']:,}", f"{len(mine)}"]
        for name in ("accuracy", "density", "loss"):
            values = [run["test"][name] for run in mine]
            spread = f" ({min(values):.3f} to {max(values):.3f})" if len(mine) > 1 else ""
            cells.append(f"{median(values):.3f}{spread}")
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def seeds_table(result: dict[str, Any]) -> str:
    """A row per trial, a column per seed: accuracy / density."""
    seeds = sorted({run["config"]["seed"] for run in result["runs"]})
    rows = [f"| seed | {' | '.join(map(str, seeds))} |", "|---" * (len(seeds) + 1) + "|"]
    by_run = {(run["trial"], run["config"]["seed"]): run["test"] for run in result["runs"]}
    for trial, title in result["titles"].items():
        tests = [by_run.get((trial, seed)) for seed in seeds]
        cells = [f"{test['accuracy']:.3f} / {test['density']:.2f}" if test else "" for test in tests]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def algorithm_1_table(result: dict[str, Any]) -> str:
    """Where the density of Algorithm 1 ends, with exploration and without, beside its limits."""
    rows = ["| Algorithm 1 | limit | density reached |", "|---|---|---|"]
    run = next(run for run in result["runs"] if run["trial"] == "sbm-algorithm-1")
    for title, rate, density in (
        ("while training, δ = .01", 1.01, run["curve"]["density"][-1]),
        ("in eval mode", 1.0, run["test"]["density"]),
    ):
        rows.append(f"| {title} | 1 − exp(−{rate:g}) = {1 - exp(-rate):.3f} | {density:.3f} |")
    return "\n".join(rows)


def pushes_table(result: dict[str, Any]) -> str:
    """What each kind of edge asks for, at a few moments of training."""
    rows = ["| | step | loss | density | p of twins | push of self | of twins | of others |", "|---" * 8 + "|"]
    for title, found in result["cases"].items():
        for step in (100, 200, 300, 500, 700, 900):
            i = found["step"].index(step)
            columns = ("loss", "density", "p_twin", "push_self", "push_twin", "push_other")
            digits = (2, 2, 2, 3, 3, 3)
            cells = [f"{found[name][i]:.{n}f}" for name, n in zip(columns, digits, strict=True)]
            rows.append(f"| {title} | {step} | {' | '.join(cells)} |")
    return "\n".join(rows)


def trained_blocks() -> dict[str, str]:
    """The tables of the synthetic task's page by the names that the markers call them."""
    blocks = {}
    for name in STUDIES:
        if (path := ROOT / "results" / f"{name}.json").exists():
            result = json.loads(path.read_text("utf-8"))
            blocks[name] = study_table(result)
            blocks[f"{name}-seeds"] = seeds_table(result)
            if "sbm-algorithm-1" in result["titles"]:
                blocks["algorithm-1"] = algorithm_1_table(result)
    if (path := ROOT / "results" / "gate_gradients.json").exists():
        blocks["gate-gradients"] = pushes_table(json.loads(path.read_text("utf-8")))
    if (path := ROOT / "results" / "ste_bias.json").exists():
        table = runpy.run_path(str(ROOT / "results" / "measure_ste_bias.py"))["ste_bias_table"]
        result = json.loads(path.read_text("utf-8"))
        blocks["ste-bias"] = table(result)
        blocks["ste-bias-aligned"] = table(result, scores="scores aligned with use")
    return blocks


def long_range_blocks() -> dict[str, str]:
    """The tables of the long-range tasks and of what attention costs, by the names that the markers call them."""
    tables = runpy.run_path(str(ROOT / "results" / "long_range_tables.py"))
    paths = {task: ROOT / "results" / f"{task}.json" for task in tables["TASKS"]}
    results = {task: json.loads(path.read_text("utf-8")) for task, path in paths.items() if path.exists()}
    if not results:
        return {}
    names = ("accuracy", "interval", "settings", "layers")
    blocks = {f"long-range-{name}": tables[f"{name}_table"](results) for name in names}
    for name, script in (("retrieval_ceiling", "measure_retrieval_ceiling"), ("full_size", "start_full_size")):
        if (path := ROOT / "results" / f"{name}.json").exists():
            table = runpy.run_path(str(ROOT / "results" / f"{script}.py"))[f"{script.split('_', 1)[1]}_table"]
            blocks[name.replace("_", "-")] = table(json.loads(path.read_text("utf-8")))
    return blocks


def language_blocks() -> dict[str, str]:
    """The tables and the figure of the language tasks by the names that the markers call them."""
    from sbmt.tasks.glue import GLUE
    from sbmt.training import language_tables as tables
    from sbmt.training.language_studies import TABLE_4

    rows = [f"| | {' | '.join(task.folder for task in GLUE.values())} |", "|---" * (len(GLUE) + 1) + "|"]
    rows += [f"| {title} | {' | '.join(f'{score:.1f}' for score in scores)} |" for title, scores in TABLE_4.items()]
    blocks = {"paper-table-4": "\n".join(rows)}
    if (path := ROOT / "results" / "glue.json").exists():
        result = json.loads(path.read_text("utf-8"))
        found = [tables.mlm_table(result["mlm"])]
        names = ("accuracy", "f1", "runs", "layers", "settings")
        found += [getattr(tables, f"glue_{name}_table")(result) for name in names]
        blocks |= {table.name: table.markdown() for table in found}
        if path.with_suffix(".png").exists():
            title = "Perplexity after pre-training, and accuracy on each task, against the density of the masks"
            blocks["glue-figure"] = f"![{title}](assets/glue.png)"
    if (path := ROOT / "results" / "window_coverage.json").exists():
        table = runpy.run_path(str(ROOT / "results" / "measure_window_coverage.py"))["window_coverage_table"]
        blocks["window-coverage"] = table(json.loads(path.read_text("utf-8")))
    if (path := ROOT / "results" / "full_size.json").exists():
        script = runpy.run_path(str(ROOT / "results" / "start_full_size.py"))
        blocks["glue-full-size"] = script["full_size_table"](json.loads(path.read_text("utf-8")), script["LANGUAGE"])
    return blocks


def with_trained_blocks(text: str, blocks: dict[str, str], target: str = "results") -> str:
    """A page with its tables as the results have them; what is missing says which target makes it."""
    missing = NOT_TRAINED_YET.format(target=target)
    return TABLE_BLOCK.sub(lambda found: found[1] + blocks.get(found[2], missing) + found[3], text)


def main() -> int:
    """Rewrites or checks every page."""
    write = {
        ROOT / "README.md": with_demo_table,
        ROOT / "docs" / "index.md": with_demo_table,
        ROOT / "docs" / "synthetic.md": partial(with_trained_blocks, blocks=trained_blocks()),
        ROOT / "docs" / "long-range.md": partial(with_trained_blocks, blocks=long_range_blocks(), target="long-range"),
        ROOT / "docs" / "language.md": partial(with_trained_blocks, blocks=language_blocks(), target="language"),
        ROOT / "docs" / "benchmarks.md": partial(with_bench_blocks, blocks=bench_blocks()),
    }
    stale = []
    for page, renewed in write.items():
        text = page.read_text("utf-8")
        new = renewed(text)
        if new != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(new, "utf-8")
    if stale and "--check" in sys.argv:
        print(f"stale: {', '.join(stale)}; run python results/write_tables.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

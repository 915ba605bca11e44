"""The tables of the page on benchmarks."""

from itertools import product
from typing import Any

from results.tables.files import Files
from results.tables.grid import grid
from sbmt.experiments.benchmarks import tables_of
from sbmt.experiments.plots.benchmarks import crossing
from sbmt.experiments.tables import LEFT_OUT

GPU_TABLES = ("gpu-machine", "gpu-training", "gpu-forward", "gpu-memory-training", "gpu-memory-forward", "gpu-left-out")
NO_GPU = "*Not measured yet: run `make gpu`.*"
FIGURE = "Time of SBM attention over that of full attention, against the density and against the number of tokens"
FITTED_FIGURE = "Seconds of a training step against the number of tokens, with full attention and with a fitted mask"


def bench_page(files: Files) -> dict[str, str]:
    """The benchmarks' tables, figures and machines by name."""
    tables = _suites(files, "bench", FIGURE) | _suites(files, "bench_fitted", FITTED_FIGURE, "fitted-")
    if files.has("bench_fitted"):
        tables["fitted-gain"] = _gain(files.load("bench_fitted")["suites"]["fitted"]["found"]["cases"])
    return tables | _blocks(files) | _builds(files) | _gpu(files)


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
        text += f"Python {about['python']}, torch {about['torch']}, numba {about['numba']}"
    quickly = ", quickly" if result["is_quick"] else ""
    return f"Measured on {text}; by `{about['command']}` on {about['date']}{quickly}."


def _gain(cases: list[dict[str, Any]]) -> str:
    """What a fitted mask of 16 keys per query gains over full attention, and from which number of tokens on."""
    sentences = []
    ways = ((True, "A training step"), (False, "A forward pass"))
    masks = (("n", "a fitted mask of 16 keys per query"), ("shared", "one such mask for all heads"))
    for (is_training, what), (sweep, mask) in product(ways, masks):
        mine = [
            c
            for c in cases
            if c["is_training"] is is_training and sweep in c["sweeps"] and "ratio" in c["results"]["sbm"]
        ]
        if not mine:
            continue
        ratios = [case["results"]["sbm"]["ratio"] for case in mine]
        where = crossing([case["n"] for case in mine], ratios, [1.0] * len(mine))
        if where is not None:
            begins = f"is as fast as full attention's at about {round(where[0], -2):,.0f} tokens"
        else:
            least = f"is no slower than full attention's from {mine[0]['n']:,} tokens on"
            begins = least if ratios[0] < 1 else "is not faster"
        gains = ", ".join(
            f"{1 / r:.1f} times as fast at {c['n']:,}" for c, r in zip(mine, ratios, strict=True) if r < 0.95
        )
        sentences.append(f"{what} with {mask} {begins}{', ' if gains else ''}{gains}.")
    return " ".join(sentences)


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


def _builds(files: Files) -> dict[str, str]:
    """Registers of the GPU's kernels, for which no GPU is needed."""
    if not files.has("gpu_builds"):
        return {"gpu-builds": "*Not built yet: run `python results/measure/gpu_builds.py`.*"}
    result = files.load("gpu_builds")
    rows = ["| kernel | registers of a thread | spilled, bytes |", "| --- | ---: | ---: |"]
    rows += [f"| {one['kernel']} | {one['registers']} | {one['spilled']} |" for one in result["kernels"]]
    return {"gpu-builds": "\n".join(rows) + f"\n\n*Built with triton {result['triton']}.*"}


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

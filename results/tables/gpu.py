"""What the page on benchmarks says of GPUs: from ``results/gpu``, which ``make gpu`` fills where there is one."""

from typing import Any

from results.tables.references import Results

KERNELS = ("gpu-kernels-sparse", "gpu-kernels-tiled")
TROUBLE = "gpu-trouble"


def gpu_blocks(results: Results) -> dict[str, str]:
    """The tables of the suite ``gpu``, its machine, and the runs of full size, by the names that the markers call."""
    blocks = {}
    if results.has("gpu/bench"):
        from sbmt.experiments.benchmarks import tables_of

        result = results.load("gpu/bench")
        blocks = {table.name: table.markdown() for table in tables_of(result)}
        blocks.setdefault(TROUBLE, "Everything ran.")
        blocks |= {name: "*The profile failed.*" for name in KERNELS if name not in blocks}
        blocks["gpu-machine"] = _machine(result)
    if results.has("gpu/runs"):
        blocks["gpu-runs"] = _runs(results.load("gpu/runs")["runs"])
    return blocks


def _machine(result: dict[str, Any]) -> str:
    about = result["manifest"]
    gpu = f"Measured on one {about['gpu']} ({about['gpu_memory_gib']:.0f} GiB), driver {about['driver']}, CUDA "
    gpu += f"{about['cuda']}, torch {about['torch']}, triton {about['triton']}, Python {about['python']}; "
    return gpu + f"by `{about['command']}` on {about['date']}{', quickly' if result['is_quick'] else ''}."


def _runs(runs: dict[str, dict[str, Any]]) -> str:
    rows = ["| run | status | accuracy, % | density, % | minutes |", "| --- | --- | ---: | ---: | ---: |"]
    for name, one in runs.items():
        result = one.get("result")
        if result is None:
            steps = f", step {one['last']['step']}" if "step" in one.get("last", {}) else ""
            rows.append(f"| {name} | {one['status']}{steps} | – | – | – |")
        else:
            test = result["test"]
            cells = (f"{100 * test['accuracy']:.2f}", f"{100 * test['density']:.2f}", f"{result['seconds'] / 60:.1f}")
            rows.append(f"| {name} | {one['status']} | {' | '.join(cells)} |")
    return "\n".join(rows)

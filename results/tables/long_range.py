"""The tables of the page on long-range tasks, from the results of their studies."""

from statistics import mean
from typing import Any

from results.tables.references import Results

TASKS = {
    "listops": "ListOps",
    "text": "Text",
    "retrieval-topics": "Retrieval, topics",
    "retrieval": "Retrieval, films",
    "image": "Image",
    "pathfinder": "Pathfinder",
}


def accuracy_table(results: dict[str, dict[str, Any]]) -> str:
    """In the layout of the paper's Tables 1 and 2: mean ± deviation over seeds, and density, in percent."""
    from sbmt.experiments.cli.tables import accuracy_cell

    titles = {trial: title for result in results.values() for trial, title in result["titles"].items()}
    rows = [f"| | {' | '.join(TASKS[task] for task in results)} |", "|---" * (len(results) + 1) + "|"]
    for trial, title in titles.items():
        cells = [accuracy_cell([run for run in result["runs"] if run["trial"] == trial]) for result in results.values()]
        rows.append(f"| {title} | {' | '.join(cells)} |")
    chances = [f"{100 * result['runs'][0]['chance']:.2f}" for result in results.values()]
    rows.append(f"| always the commonest label | {' | '.join(chances)} |")
    return "\n".join(rows)


def interval_table(results: dict[str, dict[str, Any]]) -> str:
    """Every run with the 95 % interval that its test examples allow, beside what guessing reaches."""
    rows = ["| task | attention | seed | accuracy | 95 % interval | guessing | seconds |", "|---" * 7 + "|"]
    for task, result in results.items():
        for trial, title in result["titles"].items():
            for run in (r for r in result["runs"] if r["trial"] == trial):
                low, high = run["interval"]
                cells = [TASKS[task], title, str(run["config"]["seed"]), f"{run['test']['accuracy']:.3f}"]
                cells += [f"{low:.3f} to {high:.3f}", f"{run['chance']:.3f}", f"{run['seconds']:.0f}"]
                rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def settings_table(results: dict[str, dict[str, Any]]) -> str:
    """What was reduced, task by task."""
    rows = ["| | examples | tokens | batch, steps | train, test examples | origin |", "|---" * 6 + "|"]
    for task, result in results.items():
        run = result["runs"][0]
        config, data = run["config"], run["data"]
        sizes = f"{data['n_train']:,}, {run['n_test']:,}"
        numbers = (config["length"], f"{config['batch_size']}, {config['steps']}", sizes, data["origin"])
        rows.append(f"| {TASKS[task]} | `{data['name']}` | {' | '.join(map(str, numbers))} |")
    return "\n".join(rows)


def layers_table(results: dict[str, dict[str, Any]]) -> str:
    """Density of SBM's masks by layer and head, in percent: means over seeds."""
    rows = ["| | layer 1, head 1 | layer 1, head 2 | layer 2, head 1 | layer 2, head 2 |", "|---" * 5 + "|"]
    for task, result in results.items():
        mine = [run["test"]["densities"] for run in result["runs"] if run["trial"] == "sbm"]
        cells = [f"{100 * mean(d[a][b] for d in mine):.1f}" for a in range(2) for b in range(2)]
        rows.append(f"| {TASKS[task]} | {' | '.join(cells)} |")
    return "\n".join(rows)


def long_range_blocks(results: Results) -> dict[str, str]:
    """The page's tables by the names that the markers call them."""
    from results.measure_retrieval_ceiling import retrieval_ceiling_table
    from results.start_full_size import full_size_table

    found = {task: results.load(task) for task in TASKS if results.has(task)}
    if not found:
        return {}
    tables = {
        "accuracy": accuracy_table,
        "interval": interval_table,
        "settings": settings_table,
        "layers": layers_table,
    }
    blocks = {f"long-range-{name}": table(found) for name, table in tables.items()}
    if results.has("retrieval_ceiling"):
        blocks["retrieval-ceiling"] = retrieval_ceiling_table(results.load("retrieval_ceiling"))
    if results.has("full_size"):
        blocks["full-size"] = full_size_table(results.load("full_size"))
    return blocks

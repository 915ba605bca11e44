"""The table of the landing page and of README.md: what SBM attention reaches, and at what price in time."""

from statistics import median
from typing import Any

from results.tables.files import Files
from results.tables.grid import grid
from sbmt.experiments.tables import LEFT_OUT

TITLES = {
    "full": "full attention",
    "sbm": "SBM, as published",
    "fitted": "**SBM, fitted**",
    "random-equal": "random mask of the fitted density",
}
# Tokens and density of the benchmark's cases shown here: one too short, one too dense, and two where SBM pays off.
CASES = ((1024, 0.04), (4096, 0.16), (4096, 0.01), (16384, 0.0025))


def landing_page(files: Files) -> dict[str, str]:
    """The page's only table by name."""
    return {"demo": demo_table(files)} if files.has("demo") else {}


def demo_table(files: Files) -> str:
    """A row per attention: accuracy, edges per query and time of a step; below it, times on longer sequences."""
    runs = files.load("demo")["runs"]
    timed = files.load("landing") if files.has("landing") else None
    seeds = sorted({run["config"]["seed"] for run in runs})
    heads = (f"{len(seeds)} seeds", "accuracy", "edges per query", "time of a step")
    rows = []
    for trial, title in TITLES.items():
        mine = [run for run in runs if run["trial"] == trial]
        cells = [_spread([run["test"]["accuracy"] for run in mine])]
        cells.append(_spread([run["test"]["density"] * run["config"]["length"] for run in mine], ".1f"))
        ratios = [found[trial]["ratio"] for found in timed["seeds"].values()] if timed else []
        cells.append("1 ×" if trial == "full" else _spread(ratios, ".1f", " ×"))
        rows.append((title, *cells))
    parts = [grid(heads, rows), _caption(runs[0]["config"], seeds, timed)]
    if files.has("bench"):
        parts.append(
            _where_it_pays(files.load("bench"), files.load("fitted_cost") if files.has("fitted_cost") else None)
        )
    return "\n\n".join(parts)


def _spread(values: list[float], digits: str = ".3f", unit: str = "") -> str:
    if not values:
        return LEFT_OUT
    middle, least, most = (f"{of(values):{digits}}" for of in (median, min, max))
    return f"{middle}{unit}" if least == most else f"{middle}{unit} ({least} to {most})"


def _caption(config: dict[str, Any], seeds: list[int], timed: dict[str, Any] | None) -> str:
    text = f"*Median (range) over seeds {seeds[0]} to {seeds[-1]}; {config['length']} tokens, {config['steps']} steps. "
    if timed is None:
        return text + "Time was not measured yet: run `python results/measure/landing.py`.*"
    text += "Time is that of a whole training step over full attention's, all of them taking turns in one process"
    return f"{text} ({machine(timed['manifest'])}).*"


def machine(manifest: dict[str, Any]) -> str:
    """The machine on which times were measured, in a few words."""
    threads = "one thread" if manifest["threads"] == 1 else f"{manifest['threads']} threads"
    return f"{manifest['processor']}, {threads}, torch {manifest['torch']}"


def _where_it_pays(bench: dict[str, Any], fitted: dict[str, Any] | None) -> str:
    rows = [(f"{n:,} tokens", f"{100 * p:g} %", f"{step_ratios(bench, n, p)} ×") for n, p in CASES]
    for n, found in fitted["attention"].items() if fitted else ():
        density, ratio = found["keys_per_query"] / int(n), found["fitted"]["ratio"]
        rows.append((f"{int(n):,} tokens, fitted by training", f"{100 * density:.2g} %", f"{ratio:.2f} ×"))
    about = bench["manifest"]
    text = "*The attention layer alone, over PyTorch's fused full attention, for memberships easy and hard to draw from"
    text = f"{text} ({machine(about)})" + (f"; fitted masks: {machine(fitted['manifest'])}" if fitted else "")
    return grid(("SBM on longer sequences", "density", "time of a step"), rows) + f"\n\n{text}.*"


def step_ratios(bench: dict[str, Any], n: int, density: float, *, is_training: bool = True) -> str:
    """Time over that of full attention for the cheaper and the more expensive kind of memberships, k = 128."""
    found = [
        case["results"]["sbm"]["ratio"]
        for case in bench["suites"].get("attention", {"found": {"cases": []}})["found"]["cases"]
        if (case["n"], case["density"], case["n_clusters"], case["is_training"]) == (n, density, 128, is_training)
        and "ratio" in case["results"].get("sbm", {})
    ]
    return f"{min(found):.2f} to {max(found):.2f}" if found else LEFT_OUT

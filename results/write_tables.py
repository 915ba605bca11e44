"""Writes the tables of README.md and the site from the result files, between a pair of markers.

``python results/write_tables.py`` rewrites them; with ``--check`` it exits with 1 where one is stale.
"""

import json
import sys
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "index.md")
BEGIN, END = "<!-- demo table: make results -->", "<!-- end of demo table -->"
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
            values = [run["test"][name] for run in runs if run["method"] == method]
            cells.append(f"{median(values):.3f} ({min(values):.3f} to {max(values):.3f})")
        rows.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main() -> int:
    """Rewrites or checks every page."""
    stale = []
    for page in PAGES:
        text = page.read_text("utf-8")
        before, rest = text.split(BEGIN)
        _, after = rest.split(END)
        new = f"{before}{BEGIN}\n{demo_table()}\n{END}{after}"
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

"""Writes the tables of README.md and the site from the result files, between pairs of markers.

``python results/write_tables.py`` rewrites them; with ``--check`` it exits with 1 where one is stale.
"""

import json
import re
import sys
from functools import partial
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parent.parent
BENCH = ROOT / "results" / "bench.json"
BEGIN, END = "<!-- demo table: make results -->", "<!-- end of demo table -->"
BENCH_BLOCK = re.compile(r"(<!-- bench (\S+): make bench -->\n).*?(\n<!-- end of bench \2 -->)", re.DOTALL)
NOT_YET = "*Not measured yet: run `make bench`.*"
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
    sys.path.append(str(ROOT))  # for those who have the source tree but no installed package
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


def main() -> int:
    """Rewrites or checks every page."""
    write = {
        ROOT / "README.md": with_demo_table,
        ROOT / "docs" / "index.md": with_demo_table,
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

"""Counts operations and measures memory as the paper's Tables 3, 5 and 6 do; writes ``results/costs.json``.

``python results/measure/costs.py`` takes three minutes on one core; memory is measured only on Linux. Counts are the
same each time, memory varies by a few per cent.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.progress import track

from results.paper_costs.claims import TABLE_3
from results.paper_costs.growth import compare_with_claims
from results.paper_costs.measured_growth import MEMORY, PRODUCTS, measure_memory, measure_products
from sbmt.command import run_command
from sbmt.experiments.costs import cost_report, cost_tables
from sbmt.experiments.files import write_json
from sbmt.experiments.training.run import manifest

ROOT = Path(__file__).resolve().parents[2]


def measure() -> dict[str, Any]:
    """Everything; reports progress on the terminal."""
    torch.set_num_threads(1)
    report = cost_report(track=track)
    paper = {name: {"flops": list(both[0]), "memory": list(both[1])} for name, both in TABLE_3.items()}
    claims = {name: asdict(verdict) for name, verdict in compare_with_claims().items()}
    products = [measure_products(sweep) for sweep in PRODUCTS]
    memory = [measure_memory(sweep) for sweep in track(MEMORY, description="slopes of memory")]
    slopes = {"products": products, "memory": memory}
    return report | {"paper": paper, "claims": claims, "slopes": slopes, "manifest": manifest()}


def main() -> None:
    """Measures and writes."""
    found = measure()
    write_json(ROOT / "results" / "costs.json", found)
    print(*(table.markdown() for table in cost_tables(found)), sep="\n\n")


if __name__ == "__main__":
    run_command(main, "costs")

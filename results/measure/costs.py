"""Counts operations and measures memory as the paper's Table 3 does; writes ``results/costs.json``.

``python results/measure/costs.py`` takes three minutes on one core; memory is measured only on Linux. Counts are the
same each time, memory varies by a few per cent.
"""

import tomllib
from typing import Any

import numpy as np
from rich.progress import track

from results.measure.common import RESULTS, run, write
from sbmt.experiments.costs import Column, cost_report, cost_tables, peak_memory

SIZES = {"n_layers": 1, "n_heads": 1, "d_model": 32, "d_hidden": 8, "n_chunk": 16, "n_clusters": 128}
LENGTHS, EDGES_PER_TOKEN = (4096, 8192, 16384), 64


def memory_slope(method: str) -> dict[str, Any]:
    """The exponent with which the peak memory of a forward pass grows with the length, for 64 edges per token."""
    peaks = peak_memory(method, [Column("", n, EDGES_PER_TOKEN / n) for n in LENGTHS], **SIZES)
    about = {"method": method, "symbol": "n", "values": LENGTHS}
    if missing := [one["missing"] for one in peaks if "missing" in one]:
        return about | {"missing": missing[0]}
    costs = [one["forward"] for one in peaks]
    return about | {"costs": costs, "slope": round(float(np.polyfit(np.log(LENGTHS), np.log(costs), 1)[0]), 3)}


def main() -> None:
    """Measures and writes."""
    report = cost_report(track=track)
    report["paper"] = tomllib.loads((RESULTS / "paper_costs.toml").read_text("utf-8"))["table_3"]
    report["slopes"] = {"memory": [memory_slope(name) for name in ("full-fused", "sbm-algorithm-1", "sbm")]}
    write("costs", report)
    print(*(table.markdown() for table in cost_tables(report)), sep="\n\n")


if __name__ == "__main__":
    run(main, "costs")

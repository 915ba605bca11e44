"""Counts operations as the paper's Table 3 does; writes ``results/costs.json``, the same each time.

The memory in that file was measured at commit a9f0fe7 and is kept, with its manifest.
"""

import tomllib

from results.lookup import load
from results.measure.common import RESULTS, run, write
from sbmt.experiments.costs import cost_report, cost_tables


def main() -> None:
    """Counts and writes."""
    measured = load("costs")
    table_3 = tomllib.loads((RESULTS / "paper_costs.toml").read_text("utf-8"))["table_3"]
    counted = cost_report() | {"paper": table_3}
    write("costs", measured | counted, measured["manifest"])
    print(*(table.markdown() for table in cost_tables(counted)), sep="\n\n")


if __name__ == "__main__":
    run(main, "costs")

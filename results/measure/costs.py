"""Counts operations as the paper's Tables 3, 5 and 6 do; writes ``results/costs.json``, the same each time.

What that file says of memory was measured at commit a9f0fe7 and stays in it, with the manifest.
"""

from results.measure.common import load, run, write
from results.paper_costs import PAPER, compare_with_claims
from sbmt.experiments.costs import cost_report, cost_tables


def main() -> None:
    """Counts and writes."""
    measured = load("costs")
    counted = cost_report() | {"paper": PAPER["table_3"], "claims": compare_with_claims()}
    write("costs", measured | counted, measured["manifest"])
    print(*(table.markdown() for table in cost_tables(counted)), sep="\n\n")


if __name__ == "__main__":
    run(main, "costs")

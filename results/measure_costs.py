"""Counts operations and measures memory as the paper's Tables 3, 5 and 6 do; writes costs.json beside this file.

``python results/measure_costs.py``: three minutes on one core; only Linux tells the memory. It also writes the tables
of docs/api/cost.md, between pairs of markers; ``--tables`` does only that, from the file that is there. Counts are the
same each time, memory to a few per cent.
"""

import argparse
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))  # for those who have the source tree but no installed package

from results.paper_costs.claims import TABLE_3  # noqa: E402
from results.paper_costs.growth import Verdict, compare_with_claims  # noqa: E402
from results.paper_costs.measured_growth import MEMORY, PRODUCTS, measure_memory, measure_products  # noqa: E402
from results.paper_costs.tables import paper_table, slope_table, verdict_table  # noqa: E402
from sbmt.command import run_command  # noqa: E402
from sbmt.experiments.costs.methods import METHODS, Case  # noqa: E402
from sbmt.experiments.costs.report import cost_report, count_case, paper_columns  # noqa: E402
from sbmt.experiments.costs.tables import cost_tables, parts_table  # noqa: E402
from sbmt.experiments.files import read_json, write_bytes, write_json  # noqa: E402

RESULT, PAGE = ROOT / "results" / "costs.json", ROOT / "docs" / "api" / "cost.md"
BLOCK = re.compile(r"(<!-- costs (\S+): results/measure_costs\.py -->\n).*?(<!-- end of costs \2 -->)", re.DOTALL)


def measure() -> dict[str, Any]:
    """Everything; tells on the terminal where it is."""
    from sbmt.experiments.training.runs import manifest

    torch.set_num_threads(1)
    report = cost_report(on_method=lambda done, total: _tell("Table 3", done, total))
    claims = {name: asdict(verdict) for name, verdict in compare_with_claims().items()}
    products = [measure_products(sweep) for sweep in PRODUCTS]
    memory = []
    for done, sweep in enumerate(MEMORY, start=1):
        memory.append(measure_memory(sweep))
        _tell("slopes of memory", done, len(MEMORY))
    slopes = {"products": products, "memory": memory}
    paper = {name: {"flops": list(both[0]), "memory": list(both[1])} for name, both in TABLE_3.items()}
    return report | {"paper": paper, "claims": claims, "slopes": slopes, "manifest": manifest()}


def blocks(result: dict[str, Any]) -> dict[str, str]:
    """The page's tables, by the names that its markers call them."""
    verdicts = [Verdict.from_dict(one) for one in result["claims"].values()]
    listops = paper_columns()[0]
    count = count_case(Case("sbm", listops.n, listops.density))
    tables = [
        *cost_tables(result),
        paper_table("flops"),
        paper_table("memory"),
        verdict_table(verdicts),
        slope_table(**result["slopes"]),
        parts_table(count, f"{METHODS['sbm'].title}, {listops.title}, a density of {100 * listops.density:.3g} %"),
    ]
    about = result["manifest"]
    machine = f"Measured on {about['machine']}, one thread, torch {about['torch']}, {about['date']}."
    return {table.name: table.markdown() for table in tables} | {"machine": machine}


def with_blocks(text: str, found: dict[str, str]) -> str:
    """A page with its tables as the results have them."""
    return BLOCK.sub(lambda match: f"{match[1]}{found[match[2]]}\n{match[3]}", text)


def _tell(what: str, done: int, total: int) -> None:
    print(f"\r{what}: {done}/{total}", end="" if done < total else "\n", flush=True)


def main() -> None:
    """Measures unless told not to, and writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", action="store_true", help="only write the tables of the page")
    if not parser.parse_args().tables:
        write_json(RESULT, measure())
    found = blocks(read_json(RESULT))
    write_bytes(PAGE, with_blocks(PAGE.read_text("utf-8"), found).encode())
    print(*(found[name] for name in ("flops-attention", "memory")), sep="\n\n")


if __name__ == "__main__":
    run_command(main, "measure_costs")

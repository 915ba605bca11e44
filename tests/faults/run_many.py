"""Runs many degenerate inputs, mistakes and random command lines, and writes what came of them.

``python tests/faults/run_many.py --cases 10000 --json results/faults.json``: ten minutes on one core. Cases are drawn
from fixed seeds, so that they are the same each time. Exit code 1 if a property failed anywhere.
"""

import argparse
import os
import sys
import time
import traceback
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from sbmt.experiments.files import check_writable, write_json
from sbmt.experiments.training.run import manifest
from tests.faults.attentions import check_attention_by_name, check_edge_attention, check_model
from tests.faults.cases import Case
from tests.faults.command_lines import check_command_line, sandbox
from tests.faults.graphs import check_block_model, check_edge_list
from tests.faults.mistakes import check_mistake

CHUNK = 250
GROUPS = {
    "block models": (check_block_model, 0.15),
    "edge lists": (check_edge_list, 0.15),
    "attention along edges": (check_edge_attention, 0.2),
    "attentions by name": (check_attention_by_name, 0.2),
    "models": (check_model, 0.1),
    "mistakes": (check_mistake, 0.1),
    "command lines": (check_command_line, 0.1),
}
"""What must hold of a case, and the group's share of all cases.

A check raises where a property does not hold; otherwise it says "answered" or, of what must not be taken, "refused".
"""


def run_cases(name: str, n_cases: int, number: int = 0) -> Counter[str]:
    """Runs cases of a group, drawn from seed ``number``; the first failure is shrunk and raised.

    Returns:
        How many were answered and refused.
    """
    found = Counter[str]()

    @seed(number)
    @settings(max_examples=n_cases, database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def run(data: st.DataObject) -> None:
        found[GROUPS[name][0](Case(data))] += 1

    with sandbox() if name == "command lines" else nullcontext():
        run()
    return found


def run_group(name: str, n_cases: int) -> dict[str, Any]:
    """Runs a group in chunks, each with its own seed; returns counts, processor seconds and what failed."""
    start, found, failures = time.process_time(), Counter[str](), []
    for number, first in enumerate(range(0, n_cases, CHUNK)):
        try:
            found += run_cases(name, min(CHUNK, n_cases - first), number)
        except Exception as error:  # whatever a property, or the code under test, raises
            failure = "".join(traceback.format_exception(error))[-8000:]  # with the case, which is at its end
            print(f"{name}, chunk {number}:\n{failure}")
            failures.append({"chunk": number, "failure": failure})
    seconds = round(time.process_time() - start, 1)
    counts = {"n_cases": found.total(), "answered": found["answered"], "refused": found["refused"]}
    print(f"{name:<24}{found.total():>8,} cases, {found['refused']:>7,} refused, {seconds:6.1f} s", flush=True)
    return counts | {"seconds": seconds, "failures": failures}


def main() -> int:
    """Runs, prints and writes; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000, help="of all groups together")
    parser.add_argument("--group", action="append", choices=list(GROUPS), help="repeat it for several; all if left out")
    parser.add_argument("--json", type=Path, help="where the result goes")
    asked = parser.parse_args()
    if asked.cases < 1:
        parser.error("expected at least one case")
    if asked.json is not None:
        check_writable(asked.json)
    names = sorted(asked.group or GROUPS)
    total = sum(GROUPS[name][1] for name in names)
    groups = {name: run_group(name, max(1, round(asked.cases * GROUPS[name][1] / total))) for name in names}
    n_cases = sum(group["n_cases"] for group in groups.values())
    n_failures = sum(len(group["failures"]) for group in groups.values())
    print(f"{n_cases:,} cases, {n_failures} failures")
    if asked.json is not None:
        write_json(asked.json, {"n_cases": n_cases, "n_failures": n_failures, "groups": groups, "manifest": manifest()})
    return 1 if n_failures else 0


if __name__ == "__main__":
    sys.exit(main())

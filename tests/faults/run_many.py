"""Runs many degenerate inputs, mistakes and fuzzed command lines, and writes what came of them.

``python tests/faults/run_many.py --cases 100000 --json results/faults.json``: a quarter of an hour on one core. Chunk i
of a group draws from seed i, so that the cases are the same each time, whatever the number of processes. Exit code 1
if a property failed anywhere.
"""

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.faults.groups import GROUPS, run_cases  # noqa: E402 - tests are no package that is installed

CHUNK = 250
Job = tuple[str, int, int]
"""Group, number of the chunk, cases."""


def plan(n_cases: int, names: list[str]) -> list[Job]:
    """Chunks of all groups, every group by its share, and at least one case of each."""
    total = sum(GROUPS[name].share for name in names)
    jobs = []
    for name in names:
        left, number = max(1, round(n_cases * GROUPS[name].share / total)), 0
        while left:
            jobs.append((name, number, min(left, CHUNK)))
            left, number = left - jobs[-1][2], number + 1
    return sorted(jobs, key=lambda job: job[1])  # all groups from the beginning


def run_chunk(job: Job) -> tuple[Job, dict[str, int], float, str]:
    """The job, how many cases were answered and refused, processor seconds, and the smallest failure if any."""
    import torch

    torch.set_num_threads(1)
    name, number, n_cases = job
    start, found, failure = time.process_time(), Counter[str](), ""
    try:
        found = run_cases(name, n_cases, number)
    except Exception as error:  # whatever a property, or the code under test, raises
        failure = "".join(traceback.format_exception(error))[-8000:]  # with the cases, which are at its end
    return job, dict(found), time.process_time() - start, failure


def run_jobs(jobs: list[Job], n_workers: int) -> dict[str, dict[str, Any]]:
    """Results by group, with a bar meanwhile."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    groups: dict[str, dict[str, Any]] = {
        name: {"n_cases": 0, "answered": 0, "refused": 0, "seconds": 0.0, "failures": []} for name, *_ in jobs
    }
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    context = multiprocessing.get_context("spawn")
    with Progress(*columns) as progress, ProcessPoolExecutor(n_workers, context) as workers:
        bar = progress.add_task("cases", total=sum(n for *_, n in jobs))
        for done in as_completed([workers.submit(run_chunk, job) for job in jobs]):
            (name, number, n_cases), found, seconds, failure = done.result()
            group = groups[name]
            group["seconds"] = round(group["seconds"] + seconds, 1)
            if failure:
                group["failures"].append({"chunk": number, "failure": failure})
                progress.console.print(f"{name}, chunk {number}:\n{failure}", markup=False, highlight=False)
            else:
                group["n_cases"] += sum(found.values())
                group["answered"] += found.get("answered", 0)
                group["refused"] += found.get("refused", 0)
            progress.advance(bar, n_cases)
    return groups


def main() -> int:
    """Runs, prints and writes; returns the exit code."""
    from sbmt.experiments.files import check_writable, write_json
    from sbmt.experiments.training.run import manifest

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=100_000, help="of all groups together")
    parser.add_argument("--group", action="append", choices=list(GROUPS), help="repeat it for several; all if left out")
    parser.add_argument("--workers", type=int, default=2, help="processes, each with one thread")
    parser.add_argument("--json", type=Path, help="where the result goes")
    asked = parser.parse_args()
    if asked.cases < 1 or asked.workers < 1:
        parser.error("expected at least one case and one worker")
    if asked.json is not None:
        check_writable(asked.json)
    groups = run_jobs(plan(asked.cases, asked.group or list(GROUPS)), asked.workers)
    result = {
        "n_cases": sum(group["n_cases"] for group in groups.values()),
        "n_failures": sum(len(group["failures"]) for group in groups.values()),
        "groups": dict(sorted(groups.items())),
        "manifest": manifest(),
    }
    for name, group in result["groups"].items():
        rate = 1000 * group["seconds"] / max(group["n_cases"], 1)
        print(f"{name:<24}{group['n_cases']:>8,} cases, {group['refused']:>7,} refused, {rate:5.1f} ms each")
    print(f"{result['n_cases']:,} cases, {result['n_failures']} failures")
    if asked.json is not None:
        write_json(asked.json, result)
    return 1 if result["n_failures"] else 0


if __name__ == "__main__":
    sys.exit(main())

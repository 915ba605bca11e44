"""Measures on a machine with a GPU all that the site says of GPUs; goes on where it stopped.

``python results/measure/gpu.py`` runs three parts, each of which writes a file of its own under ``results/gpu``:

- ``tests``: the tests whose kernels need a GPU, and ``tests.json`` with their outcome;
- ``bench``: ``sbmt bench --device cuda``, and ``bench.json``, begun again where a call has lost the GPU;
- ``runs``: training at the paper's size, the most telling runs first, each within a time of its own, and ``runs.json``.

``--part`` chooses among them, ``--minutes`` bounds all of it. The source tree is enough: nothing has to be installed
but what it depends on. Text and Image are trained where ``sbmt data prepare`` finds their files.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # for those who have the source tree but no installed package

import typer  # noqa: E402

from sbmt.command import run_command  # noqa: E402
from sbmt.errors import SbmtError, choose  # noqa: E402
from sbmt.experiments.benchmarks.device import CUDA, gpu_manifest  # noqa: E402
from sbmt.experiments.benchmarks.manifest import machine_manifest  # noqa: E402
from sbmt.experiments.files import check_writable, read_json, write_json  # noqa: E402
from sbmt.experiments.training.devices import usable_device  # noqa: E402

PARTS = ("tests", "bench", "runs")
TESTS = ("tests/gpu", "tests/attention")
SBMT = (sys.executable, "-m", "sbmt")
GRACE = 60.0  # seconds that a process has to write its checkpoint
LEAST = 90.0  # seconds below which no process is begun again


@dataclass(frozen=True)
class Job:
    """One training run.

    Attributes:
        task: What ``sbmt train`` calls it.
        attention: Which attention.
        minutes: How long it may take at a time.
        arguments: What else ``sbmt train`` is told.
    """

    task: str
    attention: str
    minutes: float
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"{self.task}-{self.attention}"

    def command(self, folder: Path, density: float | None) -> list[str]:
        """How it is begun, or gone on with; ``density`` is what a random mask gets."""
        mine = folder / self.name
        words = [*SBMT, "train", self.task, "--attention", self.attention, *self.arguments, "--output", str(mine)]
        if self.attention == "random_mask":
            words += ["--mask-density", repr(density)]
        if (mine / "state.safetensors").exists():
            words.append("--resume")
        else:
            (mine / "config.json").unlink(missing_ok=True)  # begun, but stopped before its first checkpoint
        return words


SYNTHETIC = ("--size", "paper", "--device", "cuda")
TABLE_7 = ("--precision", "bf16-mixed")
JOBS = (
    *(Job("repeated-tokens", attention, 10.0, SYNTHETIC) for attention in ("sbm", "full", "random_mask")),
    *(Job(t, a, 60.0, TABLE_7) for t in ("listops", "image", "text") for a in ("sbm", "full", "random_mask")),
)
"""The most telling first."""


class Clock:
    """How much of the time is left."""

    def __init__(self, minutes: float | None) -> None:
        self._end = None if minutes is None else monotonic() + 60 * minutes

    def left(self) -> float | None:
        """Seconds, at least 0; None is no limit."""
        return None if self._end is None else max(0.0, self._end - monotonic())

    def within(self, minutes: float) -> float:
        """Seconds that a part of so many minutes may take."""
        left = self.left()
        return 60 * minutes if left is None else min(left, 60 * minutes)


def call(command: Sequence[str], seconds: float | None, log: Path | None = None) -> int | None:
    """Runs a command in the source tree, its output on the terminal or in a file; None if the time was up.

    It is then interrupted, so that it can write a checkpoint, and killed if it does not end.
    """
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    out = None if log is None else log.open("w", encoding="utf-8")
    process = subprocess.Popen(
        list(command), cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, stdout=out, stderr=subprocess.STDOUT
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        return None
    except SystemExit:  # of a SIGTERM; Ctrl-C reaches the process by itself
        process.terminate()
        raise
    finally:
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if out is not None:
            out.close()


def measure_tests(out: Path, clock: Clock) -> None:
    """The tests that are there."""
    paths = [path for path in TESTS if (ROOT / path).exists()]
    if not paths:
        raise SbmtError("tests in the source tree", "none", f"run it in a tree that has {TESTS[0]}")
    log = out / "tests.log"
    command = [sys.executable, "-m", "pytest", *paths, "-q", "-p", "no:cacheprovider"]
    if find_spec("beartype") is None:  # which checks types while tests run
        command += ["-o", "addopts=--import-mode=importlib"]
    code = call(command, clock.left(), log)
    lines = log.read_text("utf-8", errors="replace").splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    found = {
        "paths": paths,
        "exit_code": code,
        "is_stopped": code is None,
        "summary": next((line.strip("= ") for line in reversed(lines) if line.strip()), ""),
        "failed": failed,
    }
    write_json(out / "tests.json", found | {"manifest": about()})
    print("tests:", found["summary"], flush=True)
    for line in failed:
        print(" ", line)


def measure_bench(out: Path, clock: Clock, is_quick: bool) -> None:
    """The suite ``gpu``, begun again where a call has lost the GPU, for as long as that gets it further."""
    path = out / "bench.json"
    while True:
        before, left = bench_progress(path), clock.left()
        command = [*SBMT, "bench", "--device", "cuda", "--json", str(path)]
        command += ["--quick"] * is_quick + ["--resume"] * path.exists()
        command += [] if left is None else ["--minutes", f"{max(left / 60 - 1, 0.1):.2f}"]
        call(command, left)
        after, left = bench_progress(path), clock.left()
        if after[2] or after == before or (left is not None and left < LEAST):
            return


def bench_progress(path: Path) -> tuple[int, int, bool]:
    """How many races there are, how many calls have lost the GPU, and whether nothing is left to do."""
    found = read_json(path)["suites"].get("gpu", {}).get("found") if path.exists() else None
    if found is None:
        return 0, 0, False
    is_done = not found["left_out"] and found["trying"] is None
    return len(found["cases"]), len(found["lost"]) + (found["trying"] is not None), is_done


def measure_runs(out: Path, clock: Clock) -> None:
    """Every run that is not finished, for as long as it may take."""
    folder, path = out / "runs", out / "runs.json"
    found: dict[str, Any] = read_json(path)["runs"] if path.exists() else {}
    folder.mkdir(parents=True, exist_ok=True)
    has_data = {"repeated-tokens": True}
    for job in JOBS:
        if found.get(job.name, {}).get("status") != "finished":
            if job.task not in has_data:
                log = out / f"prepare-{job.task}.log"
                has_data[job.task] = call([*SBMT, "data", "prepare", job.task], clock.left(), log) == 0
            no_data = {"status": "skipped", "why": f"no data for {job.task}"}
            found[job.name] = run(job, folder, found, clock) if has_data[job.task] else no_data
            write_json(path, {"runs": found, "manifest": about()})
        print(job.name, {name: x for name, x in found[job.name].items() if name != "result"}, flush=True)


def run(job: Job, folder: Path, found: dict[str, Any], clock: Clock) -> dict[str, Any]:
    """What came of a run: its result once it is finished, else how far it is; ``found`` is what came of others."""
    seconds = clock.within(job.minutes)
    if seconds == 0:
        return {"status": "not begun", "why": "no time left"} | how_far(folder / job.name)
    sbm = found.get(f"{job.task}-sbm", {})
    if job.attention == "random_mask" and "result" not in sbm:
        return {"status": "skipped", "why": "its density is that of the SBM run, which is not finished"}
    command = job.command(folder, sbm["result"]["test"]["density"] if "result" in sbm else None)
    log = folder / f"{job.name}.log"
    start = monotonic()
    code = call(command, seconds, log)
    one: dict[str, Any] = {"command": " ".join(["sbmt", *command[3:]]), "seconds": round(monotonic() - start, 1)}
    result = folder / job.name / "result.json"
    if result.exists():
        return one | {"status": "finished", "result": read_json(result)}
    if code is None:
        return (
            one | {"status": "stopped", "why": "its time was up; it goes on when asked again"} | how_far(result.parent)
        )
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return one | {"status": "failed", "why": " … ".join(lines[-3:])[-600:]} | how_far(result.parent)


def how_far(run: Path) -> dict[str, Any]:
    """The last row of a run's metrics, if there is one."""
    path = run / "metrics.csv"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return {"last": dict(zip(lines[0].split(","), lines[-1].split(","), strict=False))} if len(lines) > 1 else {}


def about() -> dict[str, Any]:
    """The manifest of this process on its GPU."""
    return machine_manifest() | gpu_manifest(CUDA)


app = typer.Typer(add_completion=False)


@app.command()
def main(
    part: Annotated[list[str] | None, typer.Option(help="tests, bench or runs; may be given several times")] = None,
    out: Annotated[Path, typer.Option(help="folder of what is found")] = Path("results/gpu"),
    minutes: Annotated[float | None, typer.Option(help="for all of it; no limit if left out")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="the quick benchmark")] = False,
) -> None:
    """Measure on a machine with a GPU; what was interrupted goes on where it stopped."""
    chosen = [choose("part", name, {name: name for name in PARTS}) for name in part or PARTS]
    if minutes is not None and not 0 < minutes < float("inf"):
        raise SbmtError("minutes > 0", minutes, "give it some time")
    usable_device("cuda")
    out = out.resolve()
    check_writable(out / "tests.json")
    clock = Clock(minutes)
    measure: dict[str, Callable[[Path, Clock], None]] = {
        "tests": measure_tests,
        "bench": partial(measure_bench, is_quick=quick),
        "runs": measure_runs,
    }
    for name in PARTS:
        if name in chosen:
            measure[name](out, clock)


if __name__ == "__main__":
    run_command(app, "gpu")

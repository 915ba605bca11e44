"""Measures, on a machine with a GPU, everything that the site says about GPUs.

``python results/measure/gpu.py`` has three parts, each of which writes a file under ``results/gpu``:

- ``tests`` runs the tests of attention on a GPU, and writes ``tests.json`` with their outcome;
- ``bench`` runs ``sbmt bench --device cuda``, which writes ``bench.json``;
- ``runs`` trains at the paper's size, the most telling runs first, each for a limited time, and writes ``runs.json``.

``--part`` chooses among them, and ``--minutes`` limits them together. Called again, the script continues where it
stopped. The source tree and the library's dependencies are enough: the library need not be installed. Text and Image
are trained if ``sbmt data prepare`` finds their files.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))  # for those who have the source tree but no installed package

import typer  # noqa: E402

from sbmt.command import run_command  # noqa: E402
from sbmt.errors import SbmtError, choose  # noqa: E402
from sbmt.experiments.benchmarks.attention import CUDA  # noqa: E402
from sbmt.experiments.benchmarks.manifest import gpu_manifest, machine_manifest  # noqa: E402
from sbmt.experiments.devices import usable_device  # noqa: E402
from sbmt.experiments.files import check_writable, read_json, write_json  # noqa: E402

TESTS = ("tests/attention",)
SBMT = (sys.executable, "-m", "sbmt")
GRACE = 60.0  # seconds that an interrupted process has to write its checkpoint
ATTENTIONS = ("sbm", "full", "random_mask")  # a random mask gets the density of the SBM run
TASKS = {"repeated-tokens": 10.0, "listops": 60.0, "image": 60.0, "text": 60.0}
"""Minutes for each run of a task, the most telling task first."""


def call(command: Sequence[str], seconds: float, log: Path | None = None) -> int | None:
    """Runs a command in the source tree, its output going to the terminal or to a file; returns None if time was up.

    The process is then interrupted, so that it can write a checkpoint, and killed if it does not end.
    """
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    out = None if log is None else log.open("w", encoding="utf-8")
    try:
        process = subprocess.Popen(
            list(command), cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, stdout=out, stderr=subprocess.STDOUT
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            return None
        finally:
            try:
                process.wait(GRACE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    finally:
        if out is not None:
            out.close()


def last_lines(log: Path, n_lines: int) -> str:
    """The end of a log in one line."""
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return " … ".join(lines[-n_lines:])[-600:]


def measure_tests(out: Path, seconds: float) -> None:
    """Runs the tests."""
    log = out / "tests.log"
    code = call([sys.executable, "-m", "pytest", "-k", "gpu", *TESTS, "-q", "-p", "no:cacheprovider"], seconds, log)
    found = {"exit_code": code, "summary": last_lines(log, 1)}
    write_json(out / "tests.json", found | {"manifest": manifest()})
    print("tests:", found["summary"], flush=True)


def measure_bench(out: Path, seconds: float) -> None:
    """Runs or continues the benchmark."""
    path = out / "bench.json"
    command = [*SBMT, "bench", "--device", "cuda", "--json", str(path)]
    command += ["--resume"] * path.exists()
    if seconds < float("inf"):
        command += ["--minutes", f"{max(seconds / 60 - 1, 0.1):.2f}"]
    call(command, seconds)


def measure_runs(out: Path, seconds: float) -> None:
    """Trains everything that is not finished yet."""
    end = monotonic() + seconds
    path = out / "runs.json"
    found: dict[str, Any] = read_json(path)["runs"] if path.exists() else {}
    (out / "runs").mkdir(parents=True, exist_ok=True)
    for task, minutes in TASKS.items():
        density = None
        for attention in ATTENTIONS:
            name = f"{task}-{attention}"
            if found.get(name, {}).get("status") != "finished":
                left = min(60 * minutes, end - monotonic())
                found[name] = train(task, attention, density, out / "runs" / name, left)
                write_json(path, {"runs": found, "manifest": manifest()})
            if attention == "sbm" and "result" in found[name]:
                density = found[name]["result"]["test"]["density"]
            print(name, found[name]["status"], found[name].get("why", ""), flush=True)


def train(task: str, attention: str, density: float | None, folder: Path, seconds: float) -> dict[str, Any]:
    """What became of a run: its ``status``, ``why`` it is not finished, and its ``result`` if it is."""
    if seconds <= 0:
        return {"status": "not begun", "why": "no time left"}
    if attention == "random_mask" and density is None:
        return {"status": "skipped", "why": "its density is that of the SBM run, which is not finished"}
    log = folder.with_suffix(".log")
    if task != "repeated-tokens" and call([*SBMT, "data", "prepare", task], seconds, log) != 0:
        return {"status": "skipped", "why": f"no data for {task}"}
    command = train_command(task, attention, density, folder)
    code = call(command, seconds, log)
    one: dict[str, Any] = {"command": " ".join(["sbmt", *command[3:]])}
    if (folder / "result.json").exists():
        return one | {"status": "finished", "result": read_json(folder / "result.json")}
    if code is None:
        return one | {"status": "stopped", "why": "its time was up; it continues when called again"}
    return one | {"status": "failed", "why": last_lines(log, 3)}


def train_command(task: str, attention: str, density: float | None, folder: Path) -> list[str]:
    """The command that begins a run, or continues it from its checkpoint."""
    sizes = ["--size", "paper", "--device", "cuda"] if task == "repeated-tokens" else ["--precision", "bf16-mixed"]
    command = [*SBMT, "train", task, "--attention", attention, *sizes, "--output", str(folder)]
    if attention == "random_mask":
        command += ["--mask-density", repr(density)]
    if (folder / "state.ckpt").exists():
        return [*command, "--resume"]
    (folder / "config.json").unlink(missing_ok=True)  # begun, but stopped before its first checkpoint
    return command


def manifest() -> dict[str, Any]:
    """The machine and its GPU."""
    return machine_manifest() | gpu_manifest(CUDA)


PARTS = {"tests": measure_tests, "bench": measure_bench, "runs": measure_runs}
app = typer.Typer(add_completion=False)


@app.command()
def main(
    part: Annotated[list[str] | None, typer.Option(help="tests, bench or runs; may be given several times")] = None,
    out: Annotated[Path, typer.Option(help="folder for what is found")] = Path("results/gpu"),
    minutes: Annotated[float, typer.Option(help="for all parts together; no limit if left out")] = float("inf"),
) -> None:
    """Measure on a machine with a GPU; what was interrupted continues where it stopped."""
    chosen = [choose("part", name, PARTS) for name in part or PARTS]
    if not minutes > 0:
        raise SbmtError("minutes > 0", minutes, "give it some time")
    usable_device("cuda")
    out = out.resolve()
    check_writable(out / "tests.json")
    end = monotonic() + 60 * minutes
    for measure in chosen:
        measure(out, max(end - monotonic(), 1.0))


if __name__ == "__main__":
    run_command(app, "gpu")

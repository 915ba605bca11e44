"""Studies, which train sets of trials with several seeds in one or more processes, and can be resumed."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from statistics import median
from typing import Any

import torch

from sbmt.errors import SbmtError, check_sizes, choose, is_integer
from sbmt.experiments.data.source import check_names, check_texts
from sbmt.experiments.files import only_writer
from sbmt.experiments.manifest import manifest
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.fit import STATE, fit, has_kept
from sbmt.experiments.training.run import Run, Step, load_run, read_config
from sbmt.layers.registry import load_plugins

MOST_SEEDS = 10_000
Report = Callable[[str, int, Step | int], None]
"""Called with a trial's name, its seed, and a step or, at the start of a run, the number of finished steps."""


@dataclass(frozen=True)
class Trial:
    """A variant of a study's common configuration, which is trained with one or more seeds."""

    name: str  # name in folders and results
    title: str  # title in tables and figures
    settings: dict[str, Any] = field(default_factory=dict)  # changes to the configuration and its options
    density_of: str | None = None
    """Name of the trial whose test density on the same seed becomes ``mask_density``, or its mean edge probability if
    both masks contain a window."""
    n_seeds: int | None = None  # number of seeds, if it differs from the study's


@dataclass(frozen=True)
class Study:
    """A set of trials, each of which changes some settings of a common configuration."""

    name: str
    title: str
    config: TrainingConfig
    trials: tuple[Trial, ...]
    n_seeds: int

    def __post_init__(self) -> None:
        counts = {trial.name: self.n_seeds if trial.n_seeds is None else trial.n_seeds for trial in self.trials}
        if not counts or len(counts) < len(self.trials):
            names = [trial.name for trial in self.trials]
            raise SbmtError("at least one trial, and a different name for each", names, "rename or add trials")
        for name in (self.name, *counts):
            check_names("studies and trials", str(name).split("."))
        check_texts("titles", [self.title, *(trial.title for trial in self.trials)])
        if not all(is_integer(n) and 1 <= n <= MOST_SEEDS for n in counts.values()):
            raise SbmtError(f"1 to {MOST_SEEDS:,} seeds per trial", counts, "change the number of seeds")
        own = {trial.name: counts[trial.name] for trial in self.trials if trial.density_of is None}
        for trial in self.trials:
            if trial.density_of and choose("density_of", trial.density_of, own) < counts[trial.name]:
                expected = f"as many seeds for {trial.density_of!r} as for {trial.name!r}, which uses its density"
                raise SbmtError(expected, own[trial.density_of], "increase n_seeds")

    def plan(self) -> list[tuple[Trial, int]]:
        """Returns all pairs of a trial and a seed, ordered by seed."""
        pairs = [(t, seed) for t in self.trials for seed in range(self.n_seeds if t.n_seeds is None else t.n_seeds)]
        return [(t, self.config.seed + seed) for t, seed in sorted(pairs, key=lambda pair: pair[1])]


def run_study(
    study: Study, folder: Path | str, n_workers: int = 1, report: Report = lambda name, seed, step: None
) -> list[tuple[str, Run]]:
    """Trains all unfinished runs of a study, each in a folder ``{trial}-seed{seed}``, and resumes interrupted ones.

    A single worker trains in this process with all of its threads. Several workers are processes of one thread each.
    Returns the trial's name and the run for each pair in :meth:`Study.plan`.
    """
    check_sizes(n_workers=n_workers)
    folder, plan = Path(folder), study.plan()
    if os.path.lexists(folder / "config.json"):  # the folder of one run, whose result would be replaced
        raise SbmtError("a folder for several runs", f"{folder}, the folder of a single run", "choose another folder")
    with only_writer(folder):
        for is_second in (False, True):  # trials that use the density of other trials come second
            jobs = [
                (trial.name, seed, _config(study, trial, seed, folder), folder / f"{trial.name}-seed{seed}")
                for trial, seed in plan
                if (trial.density_of is not None) is is_second
            ]
            if n_workers > 1 and jobs:
                _in_processes(jobs, n_workers, report)
            else:
                for job in jobs:
                    _train_or_load(*job, report)
    return [(trial.name, load_run(folder / f"{trial.name}-seed{seed}")) for trial, seed in plan]


def summary(study: Study, runs: list[tuple[str, Run]]) -> dict[str, Any]:
    """Returns the result and a short curve of every run, the medians over each trial's seeds, and a manifest."""
    medians = {
        trial.name: {
            name: round(median(getattr(run.test, name) for who, run in runs if who == trial.name), 4)
            for name in ("loss", "accuracy", "density")
        }
        for trial in study.trials
    }
    results = [{"trial": name, **run.result(), "curve": run.curve()} for name, run in runs]
    for result in results:
        del result["manifest"]
    titles = {trial.name: trial.title for trial in study.trials}
    names = {"task": study.config.task, "study": study.name, "title": study.title, "titles": titles}
    return names | {"medians": medians, "runs": results, "manifest": manifest()}


def _config(study: Study, trial: Trial, seed: int, folder: Path) -> TrainingConfig:
    settings = dict(trial.settings)
    if trial.density_of is not None:
        reached = load_run(folder / f"{trial.density_of}-seed{seed}").test
        has_window = getattr(study.config.override(**settings).options, "window", None) is not None
        settings["mask_density"] = reached.expected_density if has_window else reached.density
    return study.config.override(**settings, seed=seed)


def _train_or_load(name: str, seed: int, config: TrainingConfig, folder: Path, report: Report) -> None:
    if has_kept(folder) and read_config(folder) != config:
        raise SbmtError(f"a run with these settings in {folder}", "different settings", "choose another --output")
    is_done = (folder / "result.json").exists()
    report(name, seed, config.steps if is_done else 0)
    if not is_done:
        resume = (folder / STATE).exists()
        fit(config, folder, resume=resume, on_step=lambda step: report(name, seed, step))


_reports: "SimpleQueue[tuple[str, int, Step | int]]"  # in a worker; put() blocks while the queue is full


def _in_processes(jobs: list[tuple[str, int, TrainingConfig, Path]], n_workers: int, report: Report) -> None:
    context = multiprocessing.get_context("spawn")
    reports = context.SimpleQueue()
    with ProcessPoolExecutor(min(n_workers, len(jobs)), context, _begin, (reports,)) as workers:
        try:
            running: set[Future[None]] = {workers.submit(_work, *job) for job in jobs}
            while running:
                done, running = wait(running, timeout=0.05, return_when=FIRST_COMPLETED)
                while not reports.empty():
                    report(*reports.get())
                for future in done:
                    future.result()
        except BaseException as error:
            for process in multiprocessing.active_children():
                process.kill()  # safe, since files are written atomically; no further job begins
            if isinstance(error, BrokenProcessPool):  # killed, usually because memory ran out
                do = "run the study again with fewer workers, to resume unfinished runs"
                raise SbmtError(f"the system killed a worker process: {do}") from error
            raise


def _begin(reports: Any) -> None:
    """Limits a worker to one thread and ignores Ctrl-C, which a terminal sends to the parent and all workers."""
    global _reports
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load_plugins()
    torch.set_num_threads(1)


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
        os._exit(1)  # the worker's run is resumed when the study runs again


def _work(name: str, seed: int, config: TrainingConfig, folder: Path) -> None:
    _train_or_load(name, seed, config, folder, lambda *given: _reports.put(given))

"""Studies: several trials on several seeds, resumable, in any number of processes."""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing.queues import Queue
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import torch

from sbmt.errors import SbmtError, choose, is_integer
from sbmt.experiments.files import remove_parts
from sbmt.experiments.locks import only_writer
from sbmt.experiments.training.config import TrainingConfig
from sbmt.experiments.training.fit import STATE, fit, has_kept
from sbmt.experiments.training.run import Run, Step, load_run, manifest, read_config
from sbmt.registration import load_plugins

MOST_SEEDS = 10_000
_REPORT_EVERY = 10  # steps between two reports of a worker

Report = Callable[[str, int, Step | int], None]
"""Called with a trial's name, its seed, and a step or, when a run begins, the number of steps already done."""


@dataclass(frozen=True)
class Trial:
    """One way to train."""

    name: str  # in folders and results
    title: str  # in tables and figures
    settings: dict[str, Any] = field(default_factory=dict)  # what it changes of the configuration and its attention
    density_of: str | None = None
    """Name of another trial, whose test density on the same seed becomes ``mask_density``; if the masks of both contain
    a window, its mean edge probability is taken instead."""
    n_seeds: int | None = None  # if it differs from the study's


@dataclass(frozen=True)
class Study:
    """Trials, each of which changes some settings of one configuration."""

    name: str
    title: str
    config: TrainingConfig
    trials: tuple[Trial, ...]
    n_seeds: int

    def __post_init__(self) -> None:
        counts = self._counts()
        if not self.trials or len(counts) < len(self.trials):
            names = [trial.name for trial in self.trials] or "none"
            raise SbmtError("at least one trial, and names of their own for all", names, "name what to train")
        for n_seeds in (self.n_seeds, *counts.values()):
            if not is_integer(n_seeds) or not 1 <= n_seeds <= MOST_SEEDS:
                raise SbmtError(f"at least one and at most {MOST_SEEDS:,} seeds", n_seeds, "each is a run")
        own = {trial.name: counts[trial.name] for trial in self.trials if trial.density_of is None}
        for trial in self.trials:
            if trial.density_of is not None:
                least = choose(f"density_of of {trial.name!r}", trial.density_of, own)
                if least < counts[trial.name]:
                    expected = f"as many seeds of {trial.density_of!r} as of {trial.name!r}, which takes its density"
                    raise SbmtError(expected, least, "run it on more")

    def _counts(self) -> dict[str, int]:
        """The number of seeds of every trial."""
        return {trial.name: self.n_seeds if trial.n_seeds is None else trial.n_seeds for trial in self.trials}

    def plan(self) -> list[tuple[Trial, int]]:
        """All pairs of trial and seed, seed by seed."""
        counts, first = self._counts(), self.config.seed
        seeds = range(first, first + max(counts.values()))
        return [(trial, seed) for seed in seeds for trial in self.trials if seed < first + counts[trial.name]]


def run_study(
    study: Study, folder: Path | str, n_workers: int = 1, report: Report | None = None
) -> list[tuple[str, Run]]:
    """Trains the runs that are not finished yet; interrupted ones are resumed.

    Each is kept in a folder ``{trial}-seed{seed}``. With one worker it trains in this process with all of its threads,
    otherwise in processes with one thread each.

    Returns:
        (trial's name, run) in the order of :meth:`Study.plan`.
    """
    if not is_integer(n_workers) or n_workers < 1:
        raise SbmtError("n_workers ≥ 1", n_workers, "give a positive integer")
    report = report or (lambda name, seed, step: None)
    folder = Path(folder)
    plan = study.plan()
    with only_writer(folder):
        for is_second in (False, True):  # trials that take their density from another one come after it
            jobs = [
                (trial.name, seed, _config(study, trial, seed, folder), _folder(folder, trial.name, seed))
                for trial, seed in plan
                if (trial.density_of is not None) is is_second
            ]
            if n_workers > 1 and jobs:
                _in_processes(jobs, n_workers, report)
            else:
                for job in jobs:
                    _train_or_load(*job, report)
    return [(trial.name, load_run(_folder(folder, trial.name, seed))) for trial, seed in plan]


def summary(study: Study, runs: list[tuple[str, Run]]) -> dict[str, Any]:
    """The result and a short curve of every run, the medians over seeds of every trial, and a manifest."""
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
    return {
        "task": study.config.task,
        "study": study.name,
        "title": study.title,
        "titles": {trial.name: trial.title for trial in study.trials},
        "medians": medians,
        "runs": results,
        "manifest": manifest(),
    }


def _folder(folder: Path, name: str, seed: int) -> Path:
    return folder / f"{name}-seed{seed}"


def _config(study: Study, trial: Trial, seed: int, folder: Path) -> TrainingConfig:
    settings = dict(trial.settings)
    if trial.density_of is not None:
        reached = load_run(_folder(folder, trial.density_of, seed)).test
        has_window = getattr(study.config.override(**settings).options, "window", None) is not None
        settings["mask_density"] = reached.expected_density if has_window else reached.density
    return study.config.override(**settings, seed=seed)


def _train_or_load(name: str, seed: int, config: TrainingConfig, folder: Path, report: Report) -> None:
    if has_kept(folder) and read_config(folder) != config:
        raise SbmtError(f"a run with these settings in {folder}", "another", "name another --output folder")
    is_done = (folder / "result.json").exists()
    report(name, seed, config.steps if is_done else 0)
    if not is_done:
        resume = (folder / STATE).exists()
        fit(config, folder, resume=resume, on_step=lambda step: report(name, seed, step))


Job = tuple[str, int, TrainingConfig, Path]
Reports: TypeAlias = "Queue[tuple[str, int, Step | int]]"


def _in_processes(jobs: list[Job], n_workers: int, report: Report) -> None:
    context = multiprocessing.get_context("spawn")
    reports: Reports = context.Queue()
    n_workers = min(n_workers, len(jobs))
    with ProcessPoolExecutor(n_workers, context, initializer=_prepare, initargs=(reports, os.getpid())) as workers:
        try:
            running: set[Future[None]] = {workers.submit(_work, *job) for job in jobs}
            while running:
                done, running = wait(running, timeout=0.2, return_when=FIRST_COMPLETED)
                _hand_over(reports, report)
                for future in done:
                    future.result()
        except BaseException as error:
            for process in multiprocessing.active_children():
                process.kill()  # files are written whole or not at all; without processes, no job begins
            if isinstance(error, BrokenProcessPool):  # killed, usually because memory ran out
                do = "run it again with fewer workers: runs that were begun are resumed"
                raise SbmtError("every worker to finish", "one that was killed", do) from error
            raise
        finally:
            for *_, folder in jobs:
                remove_parts(folder)  # which killed workers leave


def _hand_over(reports: Reports, report: Report) -> None:
    """Takes what workers have reported so far; a worker whose reports are not taken never ends."""
    while True:
        try:
            report(*reports.get(timeout=0.2))
        except queue.Empty:
            return


_reports: "Reports | None" = None  # of a worker


def _prepare(reports: Reports, parent: int) -> None:
    global _reports
    _reports = reports
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to workers too; their parent handles it
    load_plugins()
    torch.set_num_threads(1)
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()


def _leave_with(parent: int) -> None:
    """Ends this worker when its parent is gone; running the study again resumes the worker's run."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _work(name: str, seed: int, config: TrainingConfig, folder: Path) -> None:
    def report(name: str, seed: int, step: Step | int) -> None:
        assert _reports is not None
        if isinstance(step, int) or step.number % _REPORT_EVERY == 0 or step.number == config.steps:
            _reports.put((name, seed, step))

    _train_or_load(name, seed, config, folder, report)

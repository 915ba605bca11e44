"""Live progress of training runs and of benchmarks."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from sbmt.experiments.studies.study import Study
from sbmt.experiments.training.run import Step


class TrainingProgress:
    """One bar per run with loss, accuracy and density beside it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._smooth: dict[TaskID, tuple[float, float, float]] = {}

    def start(self, title: str, steps: int, done: int = 0) -> TaskID:
        """Starts the bar of a run."""
        self._last = self._progress.add_task(title, total=steps, completed=done, numbers="")
        return self._last

    def step(self, step: Step, task: TaskID | None = None) -> None:
        """Moves a bar, by default the last one; the numbers are running means."""
        task = self._last if task is None else task
        new = (step.loss, step.accuracy, step.density)
        old = self._smooth.get(task, new)
        loss, accuracy, density = self._smooth[task] = tuple(  # type: ignore[assignment]
            0.9 * a + 0.1 * b for a, b in zip(old, new, strict=True)
        )
        numbers = f"loss {loss:.2f} acc {accuracy:.3f} dens {density:.3f}"
        self._progress.update(task, completed=step.number, numbers=numbers)


class StudyProgress:
    """One bar for a study, and one for each run in progress."""

    def __init__(self, progress: Progress, study: Study) -> None:
        self._progress, self._runs = progress, TrainingProgress(progress)
        plan = study.plan()
        self._titles = {trial.name: trial.title for trial, _ in plan}
        self._steps = {(t.name, seed): study.config.override(**t.settings).steps for t, seed in plan}
        self._done = dict.fromkeys(self._steps, 0)
        self._bars: dict[tuple[str, int], TaskID] = {}
        self._whole = progress.add_task(study.title, total=sum(self._steps.values()), numbers=f"0/{len(plan)} runs")

    def __call__(self, name: str, seed: int, step: Step | int) -> None:
        """Takes a report of :func:`~sbmt.experiments.studies.study.run_study`."""
        run = name, seed
        self._done[run] = step if isinstance(step, int) else step.number
        is_done = self._done[run] == self._steps[run]
        if run not in self._bars and not is_done:
            self._bars[run] = self._runs.start(f"{self._titles[name]} #{seed}", self._steps[run])
        if isinstance(step, Step) and run in self._bars:
            self._runs.step(step, self._bars[run])
        if is_done and run in self._bars:
            self._progress.remove_task(self._bars.pop(run))
        finished = sum(self._done[r] == n for r, n in self._steps.items())
        numbers = f"{finished}/{len(self._steps)} runs"
        self._progress.update(self._whole, completed=sum(self._done.values()), numbers=numbers)


class CaseProgress:
    """One bar per suite of benchmarks."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def case(self, suite: str, done: int, total: int) -> None:
        """Moves the bar of a suite; the first call shows it."""
        if suite not in self._tasks:
            self._tasks[suite] = self._progress.add_task(suite, numbers="")
        self._progress.update(self._tasks[suite], completed=done, total=total, numbers=f"{done}/{total}")


@contextmanager
def training_progress(console: Console) -> Iterator[TrainingProgress]:
    """Shows bars while the block runs."""
    with _bars(console) as progress:
        yield TrainingProgress(progress)


@contextmanager
def study_progress(console: Console, study: Study) -> Iterator[StudyProgress]:
    """Shows bars while the block runs."""
    with _bars(console) as progress:
        yield StudyProgress(progress, study)


@contextmanager
def case_progress(console: Console) -> Iterator[CaseProgress]:
    """Shows bars while the block runs."""
    with _bars(console) as progress:
        yield CaseProgress(progress)


def _bars(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description:<25}", markup=False),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[numbers]}", markup=False),
    )
    return Progress(*columns, console=console)

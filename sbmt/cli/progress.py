"""Live progress of training runs and of benchmarks."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from sbmt.training.loop import Step


class TrainingProgress:
    """One bar per run with loss, accuracy and density beside it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._smooth: tuple[float, float, float] | None = None

    def start(self, title: str, steps: int, done: int = 0) -> None:
        """Begins the bar of a run."""
        self._task = self._progress.add_task(title, total=steps, completed=done, numbers="")
        self._smooth = None

    def step(self, step: Step) -> None:
        """Moves the bar; the numbers are running means."""
        new = (step.loss, step.accuracy, step.density)
        old = self._smooth or new
        self._smooth = tuple(0.9 * a + 0.1 * b for a, b in zip(old, new, strict=True))  # type: ignore[assignment]
        loss, accuracy, density = self._smooth or new
        numbers = f"loss {loss:.2f} acc {accuracy:.3f} dens {density:.3f}"
        self._progress.update(self._task, completed=step.number, numbers=numbers)


class CaseProgress:
    """One bar per suite of benchmarks."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def case(self, suite: str, done: int, total: int) -> None:
        """Moves the bar of a suite, which appears with its first call."""
        if suite not in self._tasks:
            self._tasks[suite] = self._progress.add_task(suite, numbers="")
        self._progress.update(self._tasks[suite], completed=done, total=total, numbers=f"{done}/{total}")


@contextmanager
def training_progress(console: Console) -> Iterator[TrainingProgress]:
    """Shows bars while the block runs."""
    with _bars(console) as progress:
        yield TrainingProgress(progress)


@contextmanager
def case_progress(console: Console) -> Iterator[CaseProgress]:
    """Shows bars while the block runs."""
    with _bars(console) as progress:
        yield CaseProgress(progress)


def _bars(console: Console) -> Progress:
    columns = (
        TextColumn("{task.description:<25}"),
        BarColumn(bar_width=12),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[numbers]}"),
    )
    return Progress(*columns, console=console)

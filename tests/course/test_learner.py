"""Simulates learners: a blank answer, every likely wrong answer, the right answer, and opening the solution first.

Only the cells that an exercise needs are run, so the course is not executed again.
"""

import tomllib
from pathlib import Path

import jaxtyping
import matplotlib
import matplotlib.pyplot as plt
import pytest
import torch

from sbmt.experiments import exercises as judging
from sbmt.experiments.exercises import BLANK, NOT_YET, NOTHING
from tests.course.reading import PATHS, Exercise, code_before, exercises

ALL = [pytest.param(path, exercise, id=exercise.name) for path in PATHS for exercise in exercises(path)]


@pytest.fixture(autouse=True)
def as_in_a_kernel_of_its_own(monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.setattr(plt, "show", lambda: plt.close("all"))
    jaxtyping.config.update("jaxtyping_disable", True)  # as in a kernel; a fixture of all tests restores it
    threads = torch.get_num_threads()
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)
    matplotlib.rcdefaults()


def wrong_answers(path: Path) -> dict[str, list[str]]:
    """Returns, for each exercise, wrong answers that learners are likely to give."""
    return tomllib.loads((Path(__file__).parent / "wrong" / f"{path.name[:2]}.toml").read_text("utf-8"))


class Learner:
    """Runs cells in one namespace, as a kernel does, and returns the output of the checks."""

    def __init__(self, path: Path, exercise: Exercise, monkeypatch, capsys):
        self.space = {"__name__": "__main__"}
        self.exercise, self.capsys = exercise, capsys
        self.hints: set[str] = set()
        monkeypatch.chdir(path.parent)
        for source in code_before(path, exercise):
            self.run(source)
        judge = judging.check

        def listening(*answers, right, wrong=None):
            self.hints |= set(wrong or {})
            judge(*answers, right=right, wrong=wrong)

        if "check" in self.space:
            self.space["check"] = listening
        self.run(exercise.stub)

    def run(self, source: str) -> str:
        torch.manual_seed(0)
        self.capsys.readouterr()
        exec(compile(source, "<cell>", "exec"), self.space)
        plt.close("all")
        return self.capsys.readouterr().out

    def verdict(self) -> str:
        return self.run(self.exercise.check).strip()

    def answers(self) -> dict[str, object]:
        return {name: self.space[name] for name in self.exercise.answers}


@pytest.fixture
def learner(monkeypatch, capsys):
    return lambda path, exercise: Learner(path, exercise, monkeypatch, capsys)


@pytest.mark.parametrize(("path", "exercise"), ALL)
def test_judged_as_a_teacher_would(path, exercise, learner):
    at = learner(path, exercise)
    assert at.verdict().endswith(BLANK)

    wrong, given = wrong_answers(path)[exercise.name], set()
    assert len(wrong) >= 2
    for answer in wrong:
        at.run(exercise.stub)
        at.run(answer)
        verdict = at.verdict()
        assert NOT_YET in verdict and "✓" not in verdict, answer
        given |= {hint for hint in at.hints if verdict.endswith(hint)}
    assert given == at.hints  # every hint is shown for some wrong answer

    before = at.answers()
    at.run(exercise.solution)
    assert all(at.answers()[name] is value for name, value in before.items())
    for name in exercise.answers:
        at.run(give(*exercise.answers) + f"{name} = None")
        assert at.verdict() == NOTHING
    at.run(give(*exercise.answers))
    assert at.verdict().endswith("✓ Right.")


def give(*names: str) -> str:
    return "".join(f"{name} = solution_{name}\n" for name in names)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda: [0.5][1], "Your function raises IndexError: list index out of range"),
        (lambda: print(end=""), "What your function returns cannot be checked. Does it end with `return` and a value?"),
        ("0.5", "Your answer cannot be checked."),
        ([None, 0.5], NOTHING),
    ],
)
def test_an_answer_that_cannot_be_checked_is_explained(answer, reason, capsys):
    judging.check(answer, right=lambda got: abs((got() if callable(got) else got) - 0.5) < 0.01)
    assert reason in capsys.readouterr().out


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem[:2])
def test_every_exercise_has_wrong_answers(path):
    assert list(wrong_answers(path)) == [exercise.name for exercise in exercises(path)]

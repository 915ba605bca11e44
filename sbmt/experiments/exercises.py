"""Checks the answers to exercises of the notebooks."""

import dis
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any

BLANK = "… Still blank: put your answer in place of the dots, run that cell, then this one again."
NOT_YET = "✗ Not yet."
NOTHING = f"{NOT_YET} An answer is `None`: give a value; a function has to `return` it."


def check(*answers: Any, right: Callable[..., Any], wrong: Mapping[str, Callable[..., Any]] | None = None) -> None:
    """Prints whether an answer is right, and if not, the hint for the mistake that it looks like.

    ``right`` takes the answers and returns whether they are right; ``wrong`` maps a hint for each likely mistake to a
    function that recognises it. An error while checking an answer is printed in one line.

    >>> check(0.25, right=lambda p: abs(p - 0.5) < 0.01, wrong={"Two coins, not three.": lambda p: p == 0.25})
    ✗ Not yet. Two coins, not three.
    >>> check(0.5, right=lambda p: abs(p - 0.5) < 0.01)
    ✓ Right.
    >>> check(..., right=lambda p: abs(p - 0.5) < 0.01)
    … Still blank: put your answer in place of the dots, run that cell, then this one again.
    """
    for blank, message in ((..., BLANK), (None, NOTHING)):
        if is_blank(answers, blank):
            print(message)
            return
    try:
        is_right = bool(right(*answers))
        reason = "Open the hint below, then try again."
    except Exception as error:  # anything that a learner's code may raise
        told = f"{type(error).__name__}: {error}".splitlines()[0]
        is_right, reason = False, f"Your answer cannot be checked ({told}). Is it what the exercise asks for?"
    if is_right:
        print("✓ Right.")
        return
    for hint, fits in (wrong or {}).items():
        with suppress(Exception):  # it is a different mistake
            if fits(*answers):
                reason = hint
                break
    print(f"{NOT_YET} {reason}")


def is_blank(answer: Any, blank: Any) -> bool:
    """Whether an answer is still ``blank``, contains it, or is a function whose body is ``...``."""
    if isinstance(answer, Mapping):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return any(is_blank(part, blank) for part in answer)
    if isinstance(answer, FunctionType):
        return all(step.argval is None for step in dis.get_instructions(answer) if step.opname != "RESUME")
    return answer is blank

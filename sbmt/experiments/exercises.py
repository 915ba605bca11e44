"""Checks the answers to exercises of the notebooks."""

import dis
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any

BLANK = "… Still blank: put your answer in place of the dots, run that cell, then this one again."
NOT_YET = "✗ Not yet."


def check(*answers: Any, right: Callable[..., Any], wrong: Mapping[str, Callable[..., Any]] | None = None) -> None:
    """Prints whether an answer is right, and if not, the hint for the mistake that it looks like.

    ``right`` takes the answers and returns whether they are right; ``wrong`` maps a hint for each likely mistake to a
    function that recognises it. If checking an answer raises an error, the error is printed.

    >>> check(0.25, right=lambda p: abs(p - 0.5) < 0.01, wrong={"Two coins, not three.": lambda p: p == 0.25})
    ✗ Not yet. Two coins, not three.
    >>> check(0.5, right=lambda p: abs(p - 0.5) < 0.01)
    ✓ Right.
    >>> check(..., right=lambda p: abs(p - 0.5) < 0.01)
    … Still blank: put your answer in place of the dots, run that cell, then this one again.
    """
    if any(is_blank(answer) for answer in answers):
        print(BLANK)
        return
    try:
        is_right = bool(right(*answers))
        reason = "Open the hint below, then try again."
    except Exception as error:  # anything that a learner's code may raise
        is_right, reason = False, f"Your answer ends in {type(error).__name__}: {error}"
    if is_right:
        print("✓ Right.")
        return
    for hint, fits in (wrong or {}).items():
        with suppress(Exception):  # it is a different mistake
            if fits(*answers):
                reason = hint
                break
    print(f"{NOT_YET} {reason}")


def is_blank(answer: Any) -> bool:
    """Whether an answer is still ``...``, contains it, or is a function with that body."""
    if isinstance(answer, Mapping):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return any(is_blank(part) for part in answer)
    if isinstance(answer, FunctionType):
        return all(step.argval is None for step in dis.get_instructions(answer) if step.opname != "RESUME")
    return answer is ...

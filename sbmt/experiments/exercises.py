"""Checks the answers to exercises of the notebooks."""

import dis
from collections.abc import Callable, Mapping
from contextlib import suppress
from traceback import walk_tb
from types import FunctionType
from typing import Any

BLANK = "… Still blank: put your answer in place of the dots, run that cell, then this one again."
NOT_YET = "✗ Not yet."
NOTHING = f"{NOT_YET} An answer is `None`. Give a value, or `return` one from your function."


def check(*answers: Any, right: Callable[..., Any], wrong: Mapping[str, Callable[..., Any]] | None = None) -> None:
    """Prints whether an answer is right, and if not, the hint for the mistake that it looks like.

    ``right`` takes the answers and returns whether they are right; ``wrong`` maps a hint for each likely mistake to a
    function that recognises it. An error while checking an answer is explained.

    >>> check(0.25, right=lambda p: abs(p - 0.5) < 0.01, wrong={"Two coins, not three.": lambda p: p == 0.25})
    ✗ Not yet. Two coins, not three.
    >>> check(0.5, right=lambda p: abs(p - 0.5) < 0.01)
    ✓ Right.
    >>> check(..., right=lambda p: abs(p - 0.5) < 0.01)
    … Still blank: put your answer in place of the dots, run that cell, then this one again.
    """
    print(_verdict(answers, right, wrong or {}))


def _verdict(answers: tuple[Any, ...], right: Callable[..., Any], wrong: Mapping[str, Callable[..., Any]]) -> str:
    if is_blank(answers, ...):
        return BLANK
    if is_blank(answers, None):
        return NOTHING
    reason = "Open the hint below, then try again."
    try:
        if right(*answers):
            return "✓ Right."
    except Exception as error:  # anything that a learner's code may raise
        reason = explain(error, answers)
    for hint, fits in wrong.items():
        with suppress(Exception):  # it is a different mistake
            if fits(*answers):
                return f"{NOT_YET} {hint}"
    return f"{NOT_YET} {reason}"


def explain(error: Exception, answers: tuple[Any, ...]) -> str:
    """Says whether a learner's function raised the error, or whether its result or an answer is of the wrong kind."""
    told = f"{type(error).__name__}: {error}".splitlines()[0]
    functions = [answer.__code__ for answer in answers if isinstance(answer, FunctionType)]
    if any(frame.f_code in functions for frame, _ in walk_tb(error.__traceback__)):
        return f"Your function raises {told}"
    if functions:
        return f"What your function returns cannot be checked. Does it end with `return` and a value? ({told})"
    return f"Your answer cannot be checked. Does it have the type and shape that the exercise asks for? ({told})"


def is_blank(answer: Any, blank: Any) -> bool:
    """Whether an answer is still ``blank``, contains it, or is a function whose body is ``...``."""
    if isinstance(answer, Mapping):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return any(is_blank(part, blank) for part in answer)
    if isinstance(answer, FunctionType):
        return all(step.argval is None for step in dis.get_instructions(answer) if step.opname != "RESUME")
    return answer is blank

"""Every operation that test vectors name, as a callable of the vector's input."""

from tests.theory.graph_operations import GRAPH_OPERATIONS, patterns_of
from tests.theory.probability_operations import PROBABILITY_OPERATIONS
from theory import check_path, union

OPERATIONS = GRAPH_OPERATIONS | PROBABILITY_OPERATIONS

PATHS = {"construct_path_complete_blocks"}
"""Operations that return a path; any that :func:`theory.check_path` accepts is right."""


def agrees(operation, given, got, expected, tol):
    """Whether an answer is the expected one: numbers within ``tol``, valid paths instead of equal ones."""
    if operation in PATHS and got is not None and expected is not None:
        return check_path(union(patterns_of(given)), got)
    return is_close(got, expected, tol)


def is_close(got, expected, tol):
    """Equality of nested JSON values, where numbers may differ by ``tol``."""
    if isinstance(expected, dict):
        return isinstance(got, dict) and got.keys() == expected.keys() and all(
            is_close(got[name], expected[name], tol) for name in expected
        )  # fmt: skip
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(
            is_close(one, other, tol) for one, other in zip(got, expected, strict=True)
        )  # fmt: skip
    if isinstance(expected, bool) or isinstance(expected, str) or expected is None:
        return type(got) is type(expected) and got == expected
    return not isinstance(got, bool | str) and got is not None and abs(got - expected) <= tol

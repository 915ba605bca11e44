"""Every statement that ``python -m theory`` checks; the order of the imports is that of the report."""

from theory.statements import layers, paths, randomness, sampler, weighted  # noqa: F401 - each adds its statements
from theory.statements.statement import STATEMENTS, Statement

__all__ = ["STATEMENTS", "Statement"]

"""Every statement that ``python -m theory`` checks, in the order of the report."""

from theory.statements import layers, paths, randomness, sampler
from theory.statements.statement import Finding, Statement

STATEMENTS = (*layers.STATEMENTS, *paths.STATEMENTS, *randomness.STATEMENTS, *sampler.STATEMENTS)

__all__ = ["STATEMENTS", "Finding", "Statement"]

"""Sets of runs that answer one question."""

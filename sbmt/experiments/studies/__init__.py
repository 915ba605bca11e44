"""Studies: sets of runs that each answer one question."""
